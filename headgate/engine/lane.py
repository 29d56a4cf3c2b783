"""A lane: one model's queue, cache and runner. The engine's step thread takes turns between its lanes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping

from headgate.engine.lanes.adapters import LaneAdapters
from headgate.engine.lanes.counts import LaneCounts
from headgate.engine.lanes.stats import ModelStats
from headgate.engine.lanes.tally import Tally
from headgate.engine.request import Delta, ErrorCause, Finish, FinishReason, Request
from headgate.engine.runner import Runner
from headgate.engine.scheduler import Scheduler
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.drafter import Drafter
from headgate.engine.speculation.proposing import Proposing
from headgate.engine.stepping.found import Found, Sampled, Scored
from headgate.engine.stepping.inputs import Interrupt
from headgate.engine.stepping.pace import Pace
from headgate.engine.stepping.stepper import Stepper
from headgate.engine.text.pictures import Sight, told_apart

logger = logging.getLogger(__name__)

_NOT_FINITE = "the model's logits are not finite"


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
        """`cpu_clock`: see Pace. `adapters`: models of this lane besides the one that has it, in the order of their
        numbers from 1 on, and what changes when their files do. `lookup`: see Proposing.
        """
        self.adapters = LaneAdapters.of(adapters or {})
        self._held = 0
        self._scheduler = scheduler
        self._runner: Runner | None = runner
        self.sees = runner.seeing is not None
        """Whether prompts may have pictures."""
        self._clock = clock
        self._eos_ids = frozenset(eos_ids)
        self._arrivals = 0
        self._counts = LaneCounts()
        self._noise = random.Random()
        self._proposing = Proposing(lookup=lookup)
        self._sequences: dict[str, list[Sequence]] = {}
        self._stalled = -1  # revision of the scheduler for which nothing can be computed before a load ends
        tables, self._tiers = scheduler.tables, scheduler.tiers
        if self._tiers is not None:
            self._tiers.attach(runner.records())
        self.tally = Tally(context_length)
        """Distributions over what generates; may be read from another thread."""
        self._pace = Pace(cpu_clock)
        self._stepper = Stepper(scheduler, self._proposing, self._pace, self._counts, self.tally, clock)
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
        return running, waiting + max(len(self._scheduler.waiting), loading)

    @property
    def waiting(self) -> int:
        """Waiting sequences, background work aside; may be read from another thread."""
        return len(self._scheduler.waiting)

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
        return [self._ended(s, "cancelled") for s in chosen if not s.done]

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
        return [self._ended(s, "cancelled") for s in waiting]

    def step(self, *, alone: bool = True, run_s: float = 0.0, interrupt: Interrupt | None = None) -> list[Delta]:
        """Compute one step; returns what it added. A step that raises fails its own sequences only; one that does not
        fit the device's memory adds nothing, and smaller ones follow.

        `alone`: whether no other model's users want the device; otherwise there is no step for background work only.
        `run_s`: about how many seconds may pass until this returns, or more where many sequences make it dear to decide
        and to report; 0 for one step. Where steps take less, and nothing would be decided between them, several follow
        each other, unless `interrupt` is set meanwhile.
        """
        if self._runner is None:
            return []
        self._pace.begin()
        stepped = self._stepper.step(self._runner, alone=alone, run_s=run_s, interrupt=interrupt or Interrupt())
        if stepped is None:
            if self._tiers is not None and self._tiers.loading:
                self._stalled = self._scheduler.revision
            return []
        deltas = [self._fail(lost.sequence, lost.error, lost.cause) for lost in stepped.lost]
        if stepped.at is not None:
            deltas += [self._report(found, stepped.at) for found in stepped.found]
            self._pace.end()
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

    def _report(self, found: Found, now: float) -> Delta:
        if isinstance(found, Sampled):
            return self._advance(found, now)
        sequence, request = found.sequence, found.sequence.request
        if found.broken:
            return self._fail(sequence, _NOT_FINITE)
        if isinstance(found, Scored):
            return self._collect(found)
        if request.pin and not self._scheduler.pin(sequence, self._most_pinned):
            return self._ended(sequence, "length")
        finish = self._end(sequence, "stop")
        return Delta(request.id, sequence.choice, queue_s=sequence.queue_s, finish=finish, state=found.state)

    def _advance(self, sampled: Sampled, now: float) -> Delta:
        sequence, tokens = sampled.sequence, tuple(sampled.tokens)
        if sampled.broken:
            lost = sampled.lost
            return self._fail(sequence, _NOT_FINITE) if lost is None else self._fail(sequence, lost, "grammar")
        self.tally.emitted(sequence, len(tokens), now)
        if sequence.first_token_at is None:
            sequence.first_token_at = now
        self._counts.generated_tokens += len(tokens)
        finish = None
        if tokens[-1] in sequence.ends:
            finish = self._end(sequence, "stop")
        elif len(sequence.tokens) >= sequence.limit:
            finish = self._end(sequence, "length")
        logprobs = tuple(sampled.logprobs)
        return Delta(sequence.request.id, sequence.choice, tokens, logprobs, queue_s=sequence.queue_s, finish=finish)

    def _collect(self, scored: Scored) -> Delta:
        sequence, request = scored.sequence, scored.sequence.request
        sequence.scores.extend(scored.scores)
        finish = self._end(sequence, "stop") if len(sequence.scores) == len(request.score) else None
        return Delta(request.id, sequence.choice, scores=scored.scores, queue_s=sequence.queue_s, finish=finish)

    def _fail(self, sequence: Sequence, error: str, cause: ErrorCause = "fault") -> Delta:
        delta = self._ended(sequence, "error", error, cause)
        level = logging.WARNING if cause == "grammar" else logging.ERROR
        logger.log(level, "request %s failed: %s", sequence.request.id, error)
        return delta

    def _ended(
        self, sequence: Sequence, reason: FinishReason, error: str | None = None, cause: ErrorCause | None = None
    ) -> Delta:
        """The end of a sequence that no step has added anything to."""
        finish = self._end(sequence, reason, error, cause)
        return Delta(sequence.request.id, sequence.choice, queue_s=finish.queue_s, finish=finish)

    def _end(
        self, sequence: Sequence, reason: FinishReason, error: str | None = None, cause: ErrorCause | None = None
    ) -> Finish:
        """Let go of a sequence. What one with an error has computed is not found again."""
        now, discard = self._clock(), error is not None
        self._proposing.end(sequence)
        freed = self._scheduler.remove(sequence, discard=discard)
        if discard and self._runner is not None:
            self._runner.discard(freed, self._scheduler.tables.unused_pages(freed))
        choices = self._sequences[sequence.request.id]
        if all(s.done for s in choices):
            del self._sequences[sequence.request.id]
            if self.adapters.leaving and sequence.adapter not in self.adapters_needed:
                self.adapters.left()
        finish = sequence.finish(reason, now, error, cause)
        if sequence.generates:
            self.tally.ended(finish)
        return finish
