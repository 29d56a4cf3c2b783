"""One step of a model: what it computes, for how many steps in a row, and what is known after it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headgate.engine.errors import lacks_memory
from headgate.engine.lanes.counts import LaneCounts
from headgate.engine.lanes.tally import Tally
from headgate.engine.request import ErrorCause
from headgate.engine.runner import Runner
from headgate.engine.scheduler import Scheduler
from headgate.engine.scheduling.chunk import Chunk
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.proposing import Proposed, Proposing
from headgate.engine.stepping.found import Found, Sampled
from headgate.engine.stepping.inputs import Interrupt
from headgate.engine.stepping.pace import Pace
from headgate.engine.stepping.seeing import Seeing, differs, wanted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lost:
    """A sequence that a step has failed."""

    sequence: Sequence
    error: str
    cause: ErrorCause

    @classmethod
    def by(cls, error: Exception, sequence: Sequence) -> Lost:
        """What the exception makes of the sequence."""
        return cls(sequence, f"{type(error).__name__}: {error}", "memory" if lacks_memory(error) else "fault")


@dataclass(slots=True)
class Stepped:
    """What a step gave. Never changed; not frozen, as for `Delta`.

    Attributes:
        lost: who must end because of it.
        found: what others have got.
        at: when it was computed, by the lane's clock; None where it was not.
    """

    lost: list[Lost] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    at: float | None = None


@dataclass(slots=True)
class _Plan:
    """What a runner is given to compute.

    Attributes:
        chunks: of one step, proposed tokens among them.
        proposed: which these are.
        repeats: whether it computes several steps in a row of them.
        most: how many at most.
        ahead: how many of these it only begins.
    """

    chunks: list[Chunk]
    proposed: Proposed
    repeats: bool
    most: int = 1
    ahead: int = 0


class Stepper:
    """Steps of one model. The step thread's own."""

    def __init__(
        self,
        scheduler: Scheduler,
        proposing: Proposing,
        pace: Pace,
        counts: LaneCounts,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        """`counts` and `tally` are told what is computed."""
        self._scheduler, self._tiers = scheduler, scheduler.tiers
        self._proposing = proposing
        self._pace = pace
        self._counts = counts
        self._tally = tally
        self._clock = clock

    def step(self, runner: Runner, *, alone: bool, run_s: float, interrupt: Interrupt) -> Stepped | None:
        """Compute one step, or several where nothing would be decided between them; None where there is none.

        What it added is known to the sequences, to the scheduler and to the prefix cache then. Who is lost is still
        there. Arguments as of `Lane.step`.
        """
        chunks = self._scheduler.schedule(alone=alone)
        if not chunks:
            return None
        started = self._clock()
        for chunk in chunks:
            sequence = chunk.sequence
            if sequence.started_at is None:
                sequence.started_at = started
                sequence.queue_s = started - sequence.submitted_at
        sees, lost = False, list[Lost]()
        if runner.seeing is not None and any(chunk.sequence.request.sights for chunk in chunks):
            chunks, lost = self._look(runner.seeing, chunks)
            if not chunks:
                return Stepped(lost)
            sees, started = any(map(differs, chunks)), self._clock()
        plan = self._plan(runner, chunks, run_s, sees=sees)
        if self._tiers is not None:
            self._tiers.save()
        self._pace.pause()
        try:
            found = runner.run(plan.chunks, plan.most, interrupt, repeats=plan.repeats)
        except Exception as error:
            return Stepped([*lost, *self._failed(plan.chunks, error)])
        self._pace.resume()
        now = self._clock()
        self._scheduler.room.fitted()
        chunks = self._passed(plan, found, now - started)
        return Stepped(lost, self._keep(chunks, plan.proposed, found), now)

    def _look(self, seeing: Seeing, chunks: list[Chunk]) -> tuple[list[Chunk], list[Lost]]:
        """What of the step can be computed once one picture was looked at, if any has to be; and whose picture cannot
        be seen.

        One, so that nobody waits for those of all others: a chunk with a second one ends before it. But all of them
        where the model keeps states, which are to be copied at places that were decided on for the whole chunk.
        """
        self._pace.pause()
        whole, looked = self._scheduler.tables.states is not None, False
        seeing.begin()
        found, lost = list[Chunk](), list[Lost]()
        for chunk in chunks:
            most = chunk.count
            for sight in wanted(chunk):
                if seeing.has(sight):
                    continue
                if looked and not whole:
                    most = max(0, sight.start - chunk.start)
                    break
                looked = True
                try:
                    self._counts.looked(chunk.sequence, seeing.look(sight))
                except Exception as error:
                    logger.exception("a picture cannot be seen")
                    lost.append(Lost.by(error, chunk.sequence))
                    most = 0
                    break
            # Whoever waits for a look at his picture has got nothing, and is charged nothing.
            kept = chunk if most == chunk.count else self._scheduler.cut(chunk, most)
            if most:
                found.append(kept)
        self._pace.resume()
        return found, lost

    def _plan(self, runner: Runner, chunks: list[Chunk], run_s: float, *, sees: bool) -> _Plan:
        chunks, proposed = self._propose(chunks)
        if proposed or sees or not runner.repeats(chunks):
            return _Plan(chunks, proposed, repeats=False)
        ahead = runner.ahead(chunks)
        most = self._scheduler.repeats(chunks, self._pace.steps(run_s, ahead))
        return _Plan(chunks, proposed, repeats=True, most=most, ahead=ahead)

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

    def _failed(self, chunks: list[Chunk], error: Exception) -> list[Lost]:
        """Who is lost by a step that raised: nobody where smaller ones may fit the device's memory, else all of it."""
        if lacks_memory(error) and self._scheduler.shrink(chunks):
            self._counts.short_steps += 1
            logger.warning("a step of %d sequences does not fit the device's memory: %s", len(chunks), error)
            return []
        logger.exception("a step of %d sequences failed", len(chunks))
        self._counts.failed_steps += 1
        return [Lost.by(error, chunk.sequence) for chunk in chunks]

    def _passed(self, plan: _Plan, found: list[Found], seconds: float) -> list[Chunk]:
        """What was computed in so many seconds, steps in a row together; it is accounted for."""
        counted = max(len(one.tokens) for one in found if isinstance(one, Sampled)) if plan.most > 1 else 1
        chunks, proposed, steps = plan.chunks, plan.proposed, counted or 1
        self._proposing.see(chunks, proposed, steps, seconds)
        if plan.most > 1:
            # Where nobody has a token, any of the blocks may have been written to, and has to be wiped.
            begun = min(plan.most, steps + plan.ahead) if counted else plan.most
            chunks = self._scheduler.repeated(chunks, steps, begun)
        tokens = sum(chunk.count for chunk in chunks)
        self._tally.stepped(tokens, steps)
        self._counts.stepped(chunks, tokens, steps, seconds)
        if self._tiers is not None and steps == 1:
            self._tiers.computed(tokens, seconds)
        if not proposed and not proposed.read:
            self._pace.see(seconds / steps)
        return chunks

    def _keep(self, chunks: list[Chunk], proposed: Proposed, found: list[Found]) -> list[Found]:
        """Have everybody know what was found of these chunks; returns what of it there is to report."""
        for one in found:
            if isinstance(one, Sampled):
                one.sequence.tokens.extend(one.tokens)
                self._proposing.follow(one, proposed)
        # Logits may be broken by a proposed token; whether the answer's own are, the next step will show.
        found = [one for one in found if not one.broken or one.sequence not in proposed.tokens]
        # A sequence whose logits are broken must not share the blocks that broke them.
        broken = {one.sequence for one in found if one.broken}
        self._scheduler.commit([c for c in chunks if c.sequence not in broken] if broken else chunks)
        return found
