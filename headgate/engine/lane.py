"""A lane: one model's queue, cache and runner. The engine's step thread takes turns between its lanes."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from headgate.engine.chunk import Chunk
from headgate.engine.errors import lacks_memory
from headgate.engine.inputs import Interrupt
from headgate.engine.lane_adapters import LaneAdapters
from headgate.engine.lane_counts import LaneCounts
from headgate.engine.request import (
    Delta,
    ErrorCause,
    Finish,
    FinishReason,
    PromptState,
    Request,
    TokenLogprob,
    TokenScore,
)
from headgate.engine.runner import Probed, Runner, Sampled, Scored
from headgate.engine.scheduler import Scheduler
from headgate.engine.seeing import Seeing, differs, wanted
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.drafter import Drafter
from headgate.engine.speculation.proposing import Proposed, Proposing
from headgate.engine.stats import ModelStats
from headgate.engine.tally import Tally
from headgate.engine.text.pictures import Sight, told_apart

logger = logging.getLogger(__name__)

_NOT_FINITE = "the model's logits are not finite"
_MOST_STEPS = 64
"""Most steps in a row. Blocks for as many tokens are taken beforehand."""
_SHARE, _LONGEST_RUN_S = 20, 0.064
"""Steps in a row may take so many times what it costs to decide about them and to report, up to the time: with hundreds
of sequences that is as much as a large GPU's step, and takes the interpreter from those who write the tokens out."""


class Lane:
    """Steps one model. Everything but `stats` belongs to the step thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        *,
        context_length: int,
        eos_ids: tuple[int, ...],
        clock: Callable[[], float],
        cpu_clock: Callable[[], float] = time.thread_time,
        adapters: Mapping[str, str] | None = None,
        lookup: bool = False,
    ) -> None:
        """`cpu_clock` gives the seconds that the calling thread has computed. `adapters`: models of this lane besides
        the one that has it, in the order of their numbers from 1 on, and what changes when their files do. `lookup`:
        see Proposing.
        """
        self.adapters = LaneAdapters.of(adapters or {})
        self._held = 0
        self._scheduler = scheduler
        self._runner: Runner | None = runner
        self.sees = runner.seeing is not None
        """Whether prompts may have pictures."""
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._deciding_s = 0.0  # of the last steps, around them
        self._eos_ids = frozenset(eos_ids)
        self._arrivals = 0
        self._counts = LaneCounts()
        self._noise = random.Random()
        self._pace = math.inf  # seconds of a step, by the latest without proposed tokens
        self._proposing = Proposing(lookup=lookup)
        self._sequences: dict[str, list[Sequence]] = {}
        self._stalled = -1  # revision of the scheduler for which nothing can be computed before a load ends
        tables, self._tiers = scheduler.tables, scheduler.tiers
        if self._tiers is not None:
            self._tiers.attach(runner.records())
        self.tally = Tally(context_length)
        """Distributions over what generates; may be read from another thread."""
        self.context_length = tables.longest(context_length)
        # Beside whatever is pinned the longest sequence fits, or it would wait forever.
        beside = tables.total_blocks - tables.most_blocks(self.context_length)
        self._most_pinned = min(int(tables.total_blocks * scheduler.limits.pinned_share), beside)
        self._most_probed = min(self.context_length, (tables.total_blocks - self._most_pinned) * tables.block_size)

    @property
    def idle(self) -> bool:
        """Nothing to do that can be done."""
        return self._runner is None or self._scheduler.idle or self.stalled

    @property
    def stalled(self) -> bool:
        """Whether all there is to do waits for keys and values that are loaded."""
        return self._tiers is not None and self._stalled == self._scheduler.revision

    @property
    def quiet(self) -> bool:
        """Nothing to do but background work."""
        return self._scheduler.quiet

    @property
    def wanted(self) -> tuple[int, int]:
        """How many sequences run and how many wait, background work that generates nothing aside. Who changes its
        adapters is one that runs.
        """
        running, waiting = self._scheduler.background.answering
        loading = 0 if self._tiers is None else self._tiers.loading  # who waited for them may be gone
        running += len(self._scheduler.running) + self._held
        return running, waiting + max(self._scheduler.waiting_count, loading)

    @property
    def waiting(self) -> int:
        """Waiting sequences, background work aside; may be read from another thread."""
        return self._scheduler.waiting_count

    @property
    def stats(self) -> ModelStats:
        """Current figures; consistent to within one step when read from another thread."""
        return self._counts.stats(self._scheduler, self._runner, self._proposing.counts)

    def resident(self, tenant: str, prompt: tuple[int, ...], model: str = "", sights: tuple[Sight, ...] = ()) -> int:
        """Tokens of a prompt that need not be computed for a model; may be asked from another thread."""
        known = told_apart(prompt, sights) if sights else prompt
        return self._scheduler.tables.resident(tenant, known, self.adapters.revision(model))

    def longest(self, request: Request) -> int:
        """Most tokens of a sequence of its: a probe looks at its whole prompt, which has to be there."""
        return self._most_probed if request.probe else self.context_length

    def draft_for(self, large: Lane, vocab_size: int) -> None:
        """Have this lane's model draft for another's. `vocab_size`: the lesser one of both models."""
        large._proposing.draft_with(
            Drafter(self._scheduler, lambda: self._runner, context_length=self.context_length, vocab_size=vocab_size)
        )

    def submit(self, request: Request, submitted_at: float) -> None:
        """Queue the request's choices. Later choices wait for the first one's prompt pass and share its blocks."""
        params = request.sampling
        if not request.score and not request.probe:
            self.tally.asked(request.n, params.max_tokens)
        adapter = self.adapters.number(request.model, request.revision) or 0
        revision = self.adapters.revision(request.model, request.revision)
        wanted = self.context_length if params.max_tokens is None else len(request.prompt) + params.max_tokens
        choices: list[Sequence] = []
        for choice in range(request.n):
            sequence = Sequence(
                request=request,
                choice=choice,
                arrival=self._arrivals,
                tokens=[*request.prompt, *request.score[:-1]],
                limit=min(wanted, self.context_length),
                ends=frozenset(params.stop_token_ids)
                if params.ignore_eos
                else self._eos_ids.union(params.stop_token_ids),
                table=self._scheduler.tables.table(request.tenant, revision, whole=request.probe),
                noise=self._noise.getrandbits(64),
                adapter=adapter,
                leader=choices[0] if choices else None,
                guide=None if request.grammar is None else request.grammar.guide(len(request.prompt)),
                submitted_at=submitted_at,
            )
            self._arrivals += 1
            self._proposing.begin(sequence)
            choices.append(sequence)
            self._scheduler.add(sequence)
        self._sequences[request.id] = choices

    def cancel(self, request_id: str, choice: int | None) -> list[Delta]:
        """End one choice, or all, of a request; nothing if they have ended already."""
        chosen = [s for s in self._sequences.get(request_id, []) if choice is None or s.choice == choice]
        return [self._end(s, "cancelled") for s in chosen if not s.done]

    def unpin(self, request_id: str) -> list[Delta]:
        """Let go of the blocks that a request has pinned."""
        self._scheduler.unpin(request_id)
        return []

    def cancel_all(self) -> list[Delta]:
        """End everything."""
        return [delta for request_id in list(self._sequences) for delta in self.cancel(request_id, None)]

    def hold(self) -> Runner | None:
        """What computes, and no sleep until `unhold`; None, and nothing changes, where the lane rests."""
        if self._runner is not None:
            self._held += 1
        return self._runner

    def unhold(self) -> None:
        """It may sleep again."""
        self._held -= 1

    @property
    def adapters_needed(self) -> set[int]:
        """Numbers of the adapters that can be asked for, and of those that somebody still computes with."""
        live = {s.adapter for choices in self._sequences.values() for s in choices if not s.done}
        return (self.adapters.numbers | live) - {0}

    def rest(self) -> list[Delta]:
        """Give up what computes, and with it all that is cached. Whoever comes waits until `resume`.

        Background work ends. Nothing else may be there: see `wanted`.
        """
        ended = self.cancel_background()
        self._scheduler.forget()
        if self._tiers is not None:
            self._tiers.attach(None)
        if self._runner is not None:
            self._counts.forward_before += self._runner.forward_seconds
            self._runner.release()
            self._runner = None
        return ended

    def resume(self, runner: Runner) -> None:
        """Compute again."""
        self._runner = runner
        if self._tiers is not None:
            self._tiers.attach(runner.records())

    @property
    def resting(self) -> bool:
        """Whether nothing is computed until `resume`."""
        return self._runner is None

    def fail_all(self, error: str, cause: ErrorCause = "fault") -> list[Delta]:
        """End everything with an error."""
        return [
            self._fail(s, error, cause) for choices in list(self._sequences.values()) for s in choices if not s.done
        ]

    def cancel_background(self) -> list[Delta]:
        """End what nobody waits for."""
        waiting = [s for choices in self._sequences.values() for s in choices if s.background and not s.done]
        return [self._end(s, "cancelled") for s in waiting]

    def step(self, *, alone: bool = True, run_s: float = 0.0, interrupt: Interrupt | None = None) -> list[Delta]:
        """Compute one step; returns what it added. A step that raises fails its own sequences only; one that does not
        fit the device's memory adds nothing, and smaller ones follow.

        `alone`: whether no other model's users want the device; otherwise there is no step for background work only.
        `run_s`: about how many seconds may pass until this returns, or more where many sequences make it dear to decide
        and to report; 0 for one step. Where steps take less, and nothing would be decided between them, several follow
        each other, unless `interrupt` is set meanwhile.
        """
        entered = self._cpu_clock()
        runner = self._runner
        chunks = [] if runner is None else self._scheduler.schedule(alone=alone)
        if runner is None or not chunks:
            if self._tiers is not None and self._tiers.loading:
                self._stalled = self._scheduler.revision
            return []
        started = self._clock()
        for chunk in chunks:
            sequence = chunk.sequence
            if sequence.started_at is None:
                sequence.started_at = started
                sequence.queue_s = started - sequence.submitted_at
        sees, failed = False, list[Delta]()
        if runner.seeing is not None and any(chunk.sequence.request.sights for chunk in chunks):
            looking = self._cpu_clock()
            chunks, failed = self._look(runner.seeing, chunks)
            entered += self._cpu_clock() - looking
            if not chunks:
                return failed
            sees, started = any(map(differs, chunks)), self._clock()
        chunks, proposed = self._propose(chunks)
        most, ahead, repeats = 1, 0, not proposed and not sees and runner.repeats(chunks)
        if repeats:
            ahead = runner.ahead(chunks)
            if run_s:
                run_s = max(run_s, min(_SHARE * self._deciding_s, _LONGEST_RUN_S))
            most = self._scheduler.repeats(chunks, min(_MOST_STEPS, max(1, int(run_s / self._pace)) + ahead))
        if self._tiers is not None:
            self._tiers.save()
        called = self._cpu_clock()
        try:
            sampled = runner.run(chunks, most, interrupt or Interrupt(), repeats=repeats)
        except Exception as error:
            short = lacks_memory(error)
            if short and self._scheduler.shrink(chunks):
                self._counts.short_steps += 1
                logger.warning("a step of %d sequences does not fit the device's memory: %s", len(chunks), error)
                return failed
            logger.exception("a step of %d sequences failed", len(chunks))
            self._counts.failed_steps += 1
            cause: ErrorCause = "memory" if short else "fault"
            return [
                *failed,
                *(self._fail(chunk.sequence, f"{type(error).__name__}: {error}", cause) for chunk in chunks),
            ]
        self._scheduler.room.fitted()
        returned, now = self._cpu_clock(), self._clock()
        counted = max(len(s.tokens) for s in sampled if isinstance(s, Sampled)) if most > 1 else 1
        steps = counted or 1
        self._proposing.see(chunks, proposed, steps, now - started)
        if most > 1:
            # Where nobody has a token, any of the blocks may have been written to, and has to be wiped.
            chunks = self._scheduler.repeated(chunks, steps, min(most, steps + ahead) if counted else most)
        self._account(chunks, steps, now - started)
        if not proposed and not proposed.read:
            self._pace = (now - started) / steps
        for one in sampled:
            if isinstance(one, Sampled):
                one.sequence.tokens.extend(one.tokens)
                self._proposing.follow(one, proposed)
        # Logits may be broken by a proposed token; whether the answer's own are, the next step will show.
        sampled = [s for s in sampled if not s.broken or s.sequence not in proposed.tokens]
        # A sequence whose logits are broken must not share the blocks that broke them.
        broken = {s.sequence for s in sampled if s.broken}
        self._scheduler.commit([c for c in chunks if c.sequence not in broken] if broken else chunks)
        deltas = [*failed, *(self._report(s, now) for s in sampled)]
        self._deciding_s = called - entered + self._cpu_clock() - returned
        return deltas

    def prepare(self, *, idle: bool) -> bool:
        """Do a piece of work that makes later steps faster; False if there is none, or, unless `idle`, none that is
        much wanted.
        """
        if self._runner is None:
            return False
        if self._runner.prepare(idle=idle):
            return True
        return idle and self._tiers is not None and self._scheduler.idle and self._tiers.save_idle()

    def check(self) -> None:
        """Raise AssertionError when the scheduler's or the cache's invariants do not hold."""
        self._scheduler.check()
        listed = {id(s) for choices in self._sequences.values() for s in choices if not s.done}
        background = self._scheduler.background
        held = {
            id(s)
            for s in (*self._scheduler.running, *self._scheduler.waiting, *background.running, *background.waiting)
        }
        assert listed == held, "the lane and the scheduler hold different sequences"

    def _propose(self, chunks: list[Chunk]) -> tuple[list[Chunk], Proposed]:
        """The step with proposed tokens, if there are any that it gains by.

        None where the model keeps a state: it cannot be taken back to a token before those that do not hold.
        """
        if self._scheduler.tables.states is not None:
            return chunks, Proposed()
        room = self._scheduler.room.tokens - sum(chunk.count for chunk in chunks)
        proposed = self._proposing.propose(chunks, room)
        if not proposed:
            return chunks, proposed
        chunks = [
            self._scheduler.draft(c, proposed.tokens[c.sequence]) if c.sequence in proposed.tokens else c
            for c in chunks
        ]
        # There may be blocks for fewer of them.
        return chunks, replace(proposed, tokens={c.sequence: c.drafted for c in chunks if c.drafted})

    def _look(self, seeing: Seeing, chunks: list[Chunk]) -> tuple[list[Chunk], list[Delta]]:
        """What of the step can be computed once one picture was looked at, if any has to be; whose picture cannot be
        seen ends.

        One, so that nobody waits for those of all others: a chunk with a second one ends before it. But all of them
        where the model keeps states, which are to be copied at places that were decided on for the whole chunk.
        """
        whole = self._scheduler.tables.states is not None
        seeing.begin()
        found, failed, looked = list[Chunk](), list[Delta](), False
        for chunk in chunks:
            sequence, most = chunk.sequence, chunk.count
            for sight in wanted(chunk):
                if seeing.has(sight):
                    continue
                if looked and not whole:
                    most = max(0, sight.start - chunk.start)
                    break
                looked = True
                try:
                    self._counts.looked(sequence, seeing.look(sight))
                except Exception as error:
                    logger.exception("a picture cannot be seen")
                    cause: ErrorCause = "memory" if lacks_memory(error) else "fault"
                    failed.append(self._fail(sequence, f"{type(error).__name__}: {error}", cause))
                    break
            if not sequence.done and most:
                found.append(chunk if most == chunk.count else self._scheduler.cut(chunk, most))
        return found, failed

    def _account(self, chunks: list[Chunk], steps: int, seconds: float) -> None:
        total = sum(chunk.count for chunk in chunks)
        self.tally.stepped(total, steps)
        if self._tiers is not None and steps == 1:
            self._tiers.computed(total, seconds)
        self._counts.stepped(chunks, total, steps, seconds)

    def _report(self, found: Sampled | Probed | Scored, now: float) -> Delta:
        if isinstance(found, Sampled):
            return self._advance(found, now)
        if found.broken:
            return self._fail(found.sequence, _NOT_FINITE)
        if isinstance(found, Probed):
            pin = found.sequence.request.pin
            if pin and not self._scheduler.pin(found.sequence, self._most_pinned):
                return self._end(found.sequence, "length")
            return self._end(found.sequence, "stop", state=found.state)
        return self._collect(found)

    def _advance(self, sampled: Sampled, now: float) -> Delta:
        sequence, tokens = sampled.sequence, tuple(sampled.tokens)
        if sampled.broken:
            lost = sampled.lost
            return self._fail(sequence, _NOT_FINITE) if lost is None else self._fail(sequence, lost, "grammar")
        self.tally.emitted(sequence, len(tokens), now)
        if sequence.first_token_at is None:
            sequence.first_token_at = now
        self._counts.generated_tokens += len(tokens)
        logprobs = tuple(sampled.logprobs)
        if tokens[-1] in sequence.ends:
            return self._end(sequence, "stop", tokens, logprobs)
        if len(sequence.tokens) >= sequence.limit:
            return self._end(sequence, "length", tokens, logprobs)
        return Delta(sequence.request.id, sequence.choice, tokens, logprobs, queue_s=sequence.queue_s)

    def _collect(self, scored: Scored) -> Delta:
        sequence, request = scored.sequence, scored.sequence.request
        sequence.scores.extend(scored.scores)
        if len(sequence.scores) == len(request.score):
            return self._end(sequence, "stop", scores=scored.scores)
        return Delta(request.id, sequence.choice, scores=scored.scores, queue_s=sequence.queue_s)

    def _fail(self, sequence: Sequence, error: str, cause: ErrorCause = "fault") -> Delta:
        delta = self._end(sequence, "error", error=error, cause=cause, discard=True)
        level = logging.WARNING if cause == "grammar" else logging.ERROR
        logger.log(level, "request %s failed: %s", sequence.request.id, error)
        return delta

    def _end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
        *,
        scores: tuple[TokenScore, ...] = (),
        state: PromptState | None = None,
        error: str | None = None,
        cause: ErrorCause | None = None,
        discard: bool = False,
    ) -> Delta:
        now = self._clock()
        self._proposing.end(sequence)
        freed = self._scheduler.remove(sequence, discard=discard)
        if discard and self._runner is not None:
            self._runner.discard(freed, self._scheduler.tables.unused_pages(freed))
        choices = self._sequences[sequence.request.id]
        if all(s.done for s in choices):
            del self._sequences[sequence.request.id]
            if self.adapters.leaving and sequence.adapter not in self.adapters_needed:
                self.adapters.left()
        started = now if sequence.started_at is None else sequence.started_at
        first = now if sequence.first_token_at is None else sequence.first_token_at
        finish = Finish(
            reason=reason,
            prompt_tokens=sequence.prompt_length,
            completion_tokens=0 if sequence.request.score else len(sequence.tokens) - sequence.prompt_length,
            cached_tokens=sequence.cached,
            queue_s=started - sequence.submitted_at,
            prefill_s=first - started,
            decode_s=now - first,
            device_s=sequence.device_s,
            accepted=0 if sequence.draft is None else sequence.draft.accepted,
            rejected=0 if sequence.draft is None else sequence.draft.rejected,
            error=error,
            cause=cause,
        )
        if sequence.generates:
            self.tally.ended(finish)
        return Delta(sequence.request.id, sequence.choice, token_ids, logprobs, scores, finish.queue_s, finish, state)
