"""From a plan to an answer that has begun: failing over, and checking a small model's answer before it is given.

Until something was said to the client the model can still be replaced. So the first piece of an answer is waited for,
bounded, before it is told who answers; what fails until then is tried elsewhere, and the reason of the route says why.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import msgspec

from headgate.gateway.road.destinations import Destination, Outcome, Pieces
from headgate.gateway.road.passage import Job
from headgate.gateway.road.plan import Plan
from headgate.gateway.road.request import Chunk
from headgate.gateway.routing.routes import Routes
from headgate.gateway.teams.metering import Cut, metered
from headgate.gateway.telemetry.record import CURRENT, Failed
from headgate.gateway.upstream.failures import cause_of
from headgate.gateway.wire.errors import ApiError, Refused, server_error
from headgate.routing.budget import Claim
from headgate.routing.cascade import Cascade

logger = logging.getLogger("headgate.gateway")


class Rejected(msgspec.Struct, frozen=True):
    """An answer that was computed, in part, and not given."""

    model: str
    outcome: Outcome


class Begun(msgspec.Struct, frozen=True):
    """An answer whose model is settled."""

    destination: Destination
    reason: str
    pieces: Pieces
    """All of them, those that were held back included."""
    asked_at: float
    """When a model was first asked for it, in monotonic seconds."""
    rejected: asyncio.Task[Rejected | None] | None = None
    """The account of the small model's answer that did not stand; there when `pieces` has ended."""
    makeshift: bool = False
    """Whether it would not stand if somebody better had answered."""


class Attempt:
    """A request at one destination, whose first pieces are held back."""

    def __init__(self, destination: Destination, pieces: Pieces, asked_at: float, *, bare: bool) -> None:
        """A request that is about to be sent.

        Args:
            destination: where it is sent.
            pieces: what comes of it.
            asked_at: monotonic seconds.
            bare: the probabilities of its tokens are there for us only, the client did not ask for them.
        """
        self._bare = bare
        self.destination = destination
        self.asked_at = asked_at
        self.logprobs: list[float] = []
        self.tokens = 0
        self.text = ""
        self.plain = True
        """Whether it is text alone so far, without thoughts and calls of functions."""
        self.finished = False
        self._pieces = pieces
        self._held: list[Chunk | Outcome] = []
        self._coming: asyncio.Task[Chunk | Outcome | None] | None = None

    @property
    def silent(self) -> bool:
        """Whether nothing came of it yet."""
        return not self._held

    async def hear(self, within_s: float) -> bool:
        """Hold back one more piece; False where none comes in time. ApiError where the destination fails."""
        if self._coming is None:
            self._coming = asyncio.create_task(_next(self._pieces))
        await asyncio.wait({self._coming}, timeout=within_s)
        if not self._coming.done():
            return False
        coming, self._coming = self._coming, None
        piece = coming.result()
        if piece is None:
            return False
        self._held.append(piece)
        if isinstance(piece, Chunk):
            self.logprobs.extend(entry.logprob for entry in piece.logprobs)
            self.tokens += len(piece.token_ids or piece.logprobs)
            self.text += piece.text
            self.plain &= not piece.reasoning and not piece.tool_calls
            self.finished = piece.finish_reason is not None
        return True

    async def whole(self) -> Pieces:
        """Every piece, from the first one on."""
        try:
            for piece in self._held:
                yield self._shown(piece)
            if self._coming is not None:
                coming = await self._coming
                self._coming = None
                if coming is not None:
                    yield self._shown(coming)
            async for piece in self._pieces:
                yield self._shown(piece)
        finally:
            await self.close()

    async def end(self) -> Rejected | None:
        """Have it stop, and its account; None where it failed before it could give one."""
        try:
            if self._coming is not None:
                await self._coming
                self._coming = None
            pieces = list(self._held)
            with suppress(StopAsyncIteration):
                pieces.append(await self._pieces.asend(True))
                while True:
                    pieces.append(await anext(self._pieces))
        except ApiError:
            return None
        finally:
            await self.close()
        accounts = [piece for piece in pieces if isinstance(piece, Outcome)]
        return Rejected(self.destination.id, accounts[0]) if accounts else None

    async def close(self) -> None:
        """End the work, if it has not ended."""
        if self._coming is not None:
            self._coming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._coming
            self._coming = None
        await self._pieces.aclose()

    def _shown(self, piece: Chunk | Outcome) -> Chunk | Outcome:
        if self._bare and isinstance(piece, Chunk):
            piece.logprobs = ()
        return piece


class Attempts:
    """Sends a request to destinations, one after the other, until one answers."""

    def __init__(self, routes: Routes, cut: Cut, clock: Callable[[], float] = time.monotonic) -> None:
        """`cut` is told of answers that end before their end; `clock`: monotonic seconds."""
        self._routes = routes
        self._cut = cut
        self._clock = clock

    async def begin(self, job: Job, plan: Plan, claim: Claim) -> Begun:
        """The answer of the first destination that gives one; ApiError, the last one's, where none does.

        `claim`: the request's in budgets of escalations.
        """
        route = plan.route
        rule = plan.decision.cascade if job.request.n == 1 else None
        yields = plan.decision.yields and job.request.n == 1
        reason, failure = route.reason, server_error()
        asked_at = math.inf
        doubtful: Attempt | None = None
        try:
            for name in (route.model, *route.fallbacks):
                if doubtful is not None and self._routes.tier(name) != "large":
                    continue
                checked = rule if self._routes.tier(name) == "small" else None
                began = self._clock()
                try:
                    phrase = self._routes.hand_over(name) if yields else ""
                    attempt, verdict = await self._sent(job, plan, name, checked, phrase)
                except ApiError as error:
                    failure = error
                    asked_at = min(asked_at, began)
                    # Another server's attempts are noted one by one where they fail.
                    unasked = name in plan.refusals or isinstance(error, Refused)
                    found = self._routes.destinations.get(name)
                    if unasked or found is None or not found.facts.remote:
                        self._note(name, cause_of(error), began)
                    if name == route.model:
                        reason = f"fallback:{cause_of(error)}"
                    continue
                asked_at = min(asked_at, attempt.asked_at)
                if verdict in ("escalated", "handed_over"):
                    # It has answered, whatever becomes of that: a trial must not be waited for for ever.
                    self._routes.breakers[name].succeeded()
                    doubtful, reason = attempt, f"cascade:{verdict}"
                    self._note(name, "unsure" if verdict == "escalated" else verdict, began)
                    if not claim.escalates():
                        # Others have spent the budget since this was planned.
                        break
                    continue
                if verdict and reason == route.reason:
                    reason = f"cascade:{verdict}"
                rejected = None if doubtful is None else asyncio.create_task(doubtful.end())
                doubtful = None
                return Begun(attempt.destination, reason, attempt.whole(), asked_at, rejected)
            if doubtful is not None and reason == "cascade:handed_over":
                # Nobody else answers, so it has to, as well as it can.
                attempt, _ = await self._sent(job, plan, doubtful.destination.id, None, "")
                rejected, doubtful = asyncio.create_task(doubtful.end()), None
                return Begun(attempt.destination, "cascade:kept", attempt.whole(), asked_at, rejected, makeshift=True)
            if doubtful is not None:
                # Nobody else answers: an unsure answer is better than none.
                kept, doubtful = doubtful, None
                return Begun(kept.destination, "cascade:kept", kept.whole(), asked_at, makeshift=True)
            raise failure
        finally:
            if doubtful is not None:
                await doubtful.close()

    async def _sent(self, job: Job, plan: Plan, name: str, checked: Cascade | None, phrase: str) -> tuple[Attempt, str]:
        """The request at a destination that has begun to answer it, or takes longer than one can wait to know.

        `phrase`: what the answer begins with where it leaves the request to a large model; empty where none may.
        """
        destination = self._routes.destination(name)
        if name in plan.refusals:
            raise plan.refusals[name]
        prepared = plan.prepared.get(name) or await destination.prepare(job.request)
        bare = checked is not None and job.request.logprobs is None
        sampling = replace(prepared.sampling, logprobs=0) if bare else prepared.sampling
        if plan.decision.keeps and sampling.begin_suppress_tokens:
            # It can be kept from handing over, and what it says then is good enough.
            phrase = ""
        if phrase:
            # Its first token is among those that it may otherwise not begin with.
            sampling = replace(sampling, begin_suppress_tokens=())
        prepared = msgspec.structs.replace(prepared, sampling=sampling)
        pieces = await metered(destination, prepared, job.id, job.principal, job.ticket, self._cut)
        breaker = self._routes.breakers[name]
        breaker.begin()
        attempt = Attempt(destination, pieces, self._clock(), bare=bare)
        try:
            await attempt.hear(max(self._routes.takeover_s, prepared.begins_s))
            if phrase and await self._hands_over(attempt, phrase):
                return attempt, "handed_over"
            return attempt, "" if checked is None else await self._check(attempt, checked)
        except BaseException as error:
            await attempt.close()
            fault = isinstance(error, Exception) and (not isinstance(error, ApiError) or error.fault)
            # What it refuses of one request says nothing of the next.
            breaker.failed() if fault else breaker.left()
            if isinstance(error, ApiError) or not isinstance(error, Exception):
                raise
            logger.exception("request %s failed at '%s'", job.id, name)
            raise server_error() from None

    async def _hands_over(self, attempt: Attempt, phrase: str) -> bool:
        """Whether a small model leaves the request to a large one. Held back is only what may still be the phrase."""
        until = self._clock() + self._routes.takeover_s
        while attempt.plain and not attempt.silent and phrase.startswith(attempt.text[: len(phrase)]):
            if attempt.finished or len(attempt.text) >= len(phrase):
                # One that a limit cut short is no other answer either.
                return bool(attempt.text)
            left = until - self._clock()
            if left <= 0 or not await attempt.hear(left):
                break
        return False

    def _note(self, name: str, end: str, began: float) -> None:
        record = CURRENT.get()
        if record is not None:
            record.failed += (Failed(name, end, began, self._clock()),)

    async def _check(self, attempt: Attempt, rule: Cascade) -> str:
        """Whether a small model's answer stands: `kept`, `escalated`, or `late` where it has not even begun."""
        if attempt.silent:
            return "late"
        until = self._clock() + rule.hold_s
        while not attempt.finished and attempt.tokens < rule.hold_tokens:
            left = until - self._clock()
            if left <= 0 or not await attempt.hear(left):
                break
        return "kept" if rule.stands(attempt.logprobs) else "escalated"


async def _next(pieces: Pieces) -> Chunk | Outcome | None:
    return await anext(pieces, None)
