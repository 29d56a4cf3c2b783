"""The road: admit → cache → route → generate → record. Streaming and plain replies are this one path."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial

from msgspec.structs import replace

from headgate.cache.answers import Lookup
from headgate.cache.embedding.sentence_model import Vector
from headgate.cache.single_flight import FlightLostError, SingleFlight, Subscription
from headgate.cache.verdict import Hit, Miss, Near
from headgate.gateway.caching.answers import Answers, restore
from headgate.gateway.caching.audits import Audits
from headgate.gateway.caching.question import Bypass, Question
from headgate.gateway.edge.body_cache import Reading
from headgate.gateway.road.attempts import Attempts, Begun, Rejected
from headgate.gateway.road.destinations import Destination, Outcome
from headgate.gateway.road.events import CacheVerdict, Event, Events, Opened, Solo
from headgate.gateway.road.passage import Gate, Job, Passage
from headgate.gateway.road.plan import Plan
from headgate.gateway.road.request import ChatRequest, Chunk, Draft, Joiner
from headgate.gateway.routing.comparisons import Comparisons
from headgate.gateway.routing.routes import Routes, fingerprint
from headgate.gateway.routing.shadows import Answered, Shadows
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.metering import metered
from headgate.gateway.teams.retries import Retries
from headgate.gateway.telemetry.metrics.cache import Kept
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import Chosen, RequestRecord
from headgate.gateway.upstream.failures import cause_of
from headgate.gateway.wire.errors import OVERLOADED, ApiError, not_cached, overloaded
from headgate.routing.budget import Claim
from headgate.routing.savings import saving, spent

_OF_THE_MOMENT = frozenset({"failed", "down", "asleep", "memory", "overloaded", "not_ready", "limit", "budget"})
"""Causes of fallbacks that may be gone when the same is asked again."""


class Road:
    """Takes requests from admission to their record."""

    def __init__(
        self,
        *,
        routes: Routes,
        answers: Answers,
        metrics: Metrics,
        audits: Audits | None = None,
        admission: Admission | None = None,
        comparisons: Comparisons | None = None,
        shadows: Shadows | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = routes
        self._answers = answers
        self._metrics = metrics
        self._audits = audits
        self._comparisons = comparisons
        self._shadows = shadows
        self._clock = clock
        self._attempts = Attempts(routes, metrics.cut, clock)
        self._flights: SingleFlight[Event] = SingleFlight()
        admission = Admission() if admission is None else admission
        self._gate = Gate(routes, answers, metrics, admission, self._shared, clock)

    @property
    def retries(self) -> Retries:
        """Answers for those to whom they may not have come."""
        return self._gate.retries

    def answer(
        self,
        request: ChatRequest,
        principal: Principal,
        record: RequestRecord,
        reading: Reading | None = None,
        place: int = 0,
    ) -> Passage:
        """Answer a request: a context that gives its answer. Leaving it ends the work, unless others listen, too.

        `reading` is what is kept of the body that it was read from, if that is; `place` is that of its prompt among
        the body's, from 0. ApiError for everything that can be refused before the first token.
        """
        return Passage(self._gate, request, principal, record, reading, place)

    def _events(self, job: Job) -> Subscription[Event] | Solo:
        question = job.question
        if isinstance(question, Question) and question.may_read and not job.request.cache.only_if_cached:
            # Nobody joins what is further behind than he is.
            priority = job.request.priority
            key = question.flight_key if priority == "foreground" else f"{question.flight_key}:{priority}"
            if job.request.arm:
                key += ":arm"  # another model may answer, which who names this one is not to have
            return self._flights.subscribe(key, partial(self._produce, job))
        if job.request.n == 1:
            asks = isinstance(question, Question) or job.request.cache.only_if_cached
            return Solo(self._produce(job) if asks else self._generate(job, None))
        # A flight of its own, which gathers what comes for its choices at the same time: `#` is in no fingerprint.
        return self._flights.subscribe(f"#{id(job)}", partial(self._produce, job))

    async def _shared(self, job: Job) -> tuple[Events, Opened]:
        """The events, entered, and the first of them. What is beyond another's limit, or takes longer than his client
        waits, may be within those of who joined him.
        """
        while True:
            events = await self._events(job).__aenter__()
            try:
                return events, await self._opening(events)
            except BaseException as error:
                await events.__aexit__(type(error), error, error.__traceback__)
                anothers = isinstance(error, ApiError) and (error.status == 429 or error.code == OVERLOADED)
                if events.leads or not anothers:
                    raise

    async def _opening(self, events: Events) -> Opened:
        try:
            first = await events.__anext__()
        except FlightLostError:
            raise overloaded("The request was cancelled because the server is shutting down.") from None
        assert isinstance(first, Opened), "a generation begins with its opening"
        return first

    async def _produce(self, job: Job) -> AsyncGenerator[Event]:
        """Everything after admission, for all who asked the same at the same time."""
        found, why, began = None, "stored", self._clock()
        if isinstance(job.question, Question):
            found = await self._answers.look_up(job.question)
            if not isinstance(found.verdict, Hit) and not job.request.cache.only_if_cached:
                found, waited = await self._answers.await_neighbour(job.question, found)
                if waited is not None:
                    self._metrics.cache.waited(waited)
                    why = "awaited"
        if found is not None and isinstance(found.verdict, Hit):
            if found.verdict.kind == "semantic" and self._audits is not None:
                self._audits.served(found.verdict, job.request, job.principal, found.vector)
            yield self._gate.opened(found.verdict, why, self._clock() - began)
            stored = restore(found.verdict.entry)
            for chunk in stored.chunks:
                yield chunk
            yield stored.outcome
            return
        if job.request.cache.only_if_cached:
            verdict, why, _ = _told(job, found)
            self._metrics.cache.lookup(verdict, why)
            raise not_cached(verdict, why)
        # From here on, with nothing awaited since the look-up, whoever asks much the same finds this one on its way.
        with self._answers.answering(job.question, found if job.request.priority != "background" else None):
            events = self._generate(job, found, self._clock() - began)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()

    async def _generate(self, job: Job, found: Lookup | None, looked_s: float | None = None) -> AsyncGenerator[Event]:
        asked = self._clock()
        job = _drafted(job, found)
        vector = found.vector if found is not None else None
        plan = await self._routes.plan(job.request, vector, job.principal)
        claim = self._routes.claim(plan)
        began = self._clock()
        try:
            begun = await (
                self._begin_arm(job, plan, claim, vector) if job.request.arm else self._begin(job, plan, claim)
            )
        except BaseException:
            claim.drop()
            raise
        if begun.rejected is not None:
            # Counted when it ends, for whoever asked may leave before the other answer does.
            begun.rejected.add_done_callback(self._count_rejected)
        # What others would have read, pictures above all, is not held for as long as the answer takes.
        plan = dataclasses.replace(plan, prepared={})
        destination, breaker = begun.destination, self._routes.breakers[begun.destination.id]
        self._routes.begun(plan, claim, destination.id)
        self._metrics.routing.decided(plan, destination.id, begun.reason)
        verdict, why, similarity = _told(job, found)
        stopgap = _stopgap(plan, begun) or (job.request.arm and destination.id != job.request.model)
        # The question was put of the adapter that had the name then, and its answer would be another's.
        stopgap = stopgap or (isinstance(job.question, Question) and not job.question.of(destination))
        key = found.fingerprint.exact_key if found is not None and not stopgap else None
        told = fingerprint(destination)
        joiner = Joiner()
        observe = self._metrics.inter_token(destination.id)
        last: dict[int, float] = {}
        pieces, said = begun.pieces, False
        try:
            yield Opened(
                verdict,
                why,
                destination.id,
                told,
                begun.reason,
                similarity,
                key,
                chosen=self._chosen(plan),
                looked_s=looked_s,
                planned_s=began - asked,
                asked_at=begun.asked_at,
            )
            async for piece in pieces:
                if isinstance(piece, Outcome):
                    breaker.succeeded()
                    said = True
                    if self._audits is not None and found is not None and isinstance(found.verdict, Near):
                        question = job.request.last_user_text or ""
                        self._audits.answered(found.verdict, question, destination.id, joiner.choices())
                    if self._comparisons is not None:
                        choices = joiner.choices()
                        self._comparisons.answered(job.request, job.principal, plan, destination.id, choices, piece)
                    seconds = self._clock() - began
                    if self._shadows is not None and job.principal.policy.experiments.shadow:
                        choices = joiner.choices()
                        self._shadows.answered(
                            Answered(job.id, job.request, job.principal, destination.id, choices, piece, seconds)
                        )
                    self._learn(job, plan, begun, piece, seconds)
                    if begun.rejected is not None:
                        piece = self._with_rejected(plan, await begun.rejected, begun.reason, piece)
                    await self._settle(job, found, destination, joiner, piece, stopgap=stopgap)
                else:
                    joiner.add(piece)
                    self._observe_gap(observe, piece, last)
                yield piece
        except ApiError as error:
            if error.fault:
                said = True
                breaker.failed()
            raise
        finally:
            if not said:
                breaker.left()
            await pieces.aclose()

    async def _begin(self, job: Job, plan: Plan, claim: Claim) -> Begun:
        """The answer of the plan's model, or of another where that fails and the request leaves a choice."""
        route = plan.route
        if route.fallbacks:
            return await self._attempts.begin(job, plan, claim)
        if route.model in plan.refusals:
            raise plan.refusals[route.model]
        destination = self._routes.reachable(route.model)
        prepared = plan.prepared.get(route.model) or await destination.prepare(job.request)
        pieces = await metered(destination, prepared, job.id, job.principal, job.ticket, self._metrics.cut)
        self._routes.breakers[route.model].begin()
        return Begun(destination, route.reason, pieces, self._clock())

    async def _begin_arm(self, job: Job, plan: Plan, claim: Claim, vector: Vector | None) -> Begun:
        """The answer of an experiment's model or, where that cannot give one, of whom the router chooses then."""
        name, failure = plan.route.model, None
        if self._routes.up(name):
            try:
                return await self._attempts.begin(job, plan, claim)
            except ApiError as error:
                failure = error
        try:
            left, other = await self._routes.instead(job.request, vector, job.principal)
        except ApiError:  # there is nobody else
            if failure is not None:
                raise failure from None
            return await self._begin(job, plan, claim)
        begun = await self._begin(replace(job, request=left), other, claim)
        cause = "down" if failure is None else cause_of(failure)
        return replace(begun, reason=f"fallback:{cause}")

    def _chosen(self, plan: Plan) -> Chosen | None:
        """What the log is told of a decision; nothing where the request named its model."""
        if not plan.features:
            return None
        route = plan.route
        return Chosen(route.task, route.confidence, plan.features, plan.predicted_s, plan.decision, plan.choose_s)

    def _learn(self, job: Job, plan: Plan, begun: Begun, outcome: Outcome, seconds: float) -> None:
        """How long such answers are, and how far off the price was, where there was a choice by it."""
        if not plan.features:
            return
        self._routes.answered(plan, outcome.usage.completion_tokens // job.request.n)
        self._metrics.routing.saved(saving(plan.decision, begun.destination.id, outcome.device_s), begun.reason)
        if job.request.priority == "background":
            return  # prices say how long those take whom somebody waits for
        if begun.destination.id == plan.route.model and begun.rejected is None and plan.predicted_s is not None:
            self._metrics.routing.priced(begun.destination.id, plan.predicted_s, seconds)

    def _with_rejected(self, plan: Plan, rejected: Rejected | None, reason: str, outcome: Outcome) -> Outcome:
        """The account with that of an answer which did not stand: who asked caused both."""
        if rejected is None:
            return outcome
        theirs = rejected.outcome
        self._metrics.routing.saved(spent(plan.decision, rejected.model, theirs.device_s), reason)
        tokens = theirs.usage.completion_tokens
        usage = replace(
            outcome.usage, completion_tokens=outcome.usage.completion_tokens + tokens, rejected_tokens=tokens
        )
        return replace(outcome, usage=usage, device_s=outcome.device_s + theirs.device_s)

    def _count_rejected(self, ended: asyncio.Task[Rejected | None]) -> None:
        rejected = None if ended.cancelled() or ended.exception() is not None else ended.result()
        if rejected is not None:
            usage, queue_s = rejected.outcome.usage, rejected.outcome.queue_s
            self._metrics.generated(
                rejected.model, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, queue_s
            )

    async def _settle(
        self,
        job: Job,
        found: Lookup | None,
        destination: Destination,
        joiner: Joiner,
        outcome: Outcome,
        *,
        stopgap: bool,
    ) -> None:
        """The generation is whole: count it, and store it before the flight lands, so that none falls between."""
        usage = outcome.usage
        own_tokens = usage.completion_tokens - usage.rejected_tokens
        self._metrics.generated(destination.id, usage.prompt_tokens, own_tokens, usage.cached_tokens, outcome.queue_s)
        draft = job.request.draft
        if draft is not None:
            self._metrics.drafted(destination.id, draft.source, usage.drafted_tokens, usage.misdrafted_tokens)
        if isinstance(job.question, Question) and found is not None:
            kept: Kept = "fallback"
            if not stopgap:
                kept = await self._answers.store(job.question, found, destination.id, joiner.choices(), outcome)
            self._metrics.cache.stored(kept)

    def _observe_gap(self, observe: Callable[[float], None], chunk: Chunk, last: dict[int, float]) -> None:
        if not chunk.token_ids:
            return
        now = self._clock()
        before = last.get(chunk.index)
        last[chunk.index] = now
        if before is not None:
            observe((now - before) / len(chunk.token_ids))


def _drafted(job: Job, found: Lookup | None) -> Job:
    """With the answer to a similar question, which may not be served, as a draft: it may yet be much the same."""
    if found is None or not isinstance(found.verdict, Near) or job.request.draft is not None:
        return job
    entry = found.verdict.entry
    near = entry.choices[0]
    draft = Draft("near", near.text, entry.model, near.token_ids)
    return replace(job, request=dataclasses.replace(job.request, draft=draft))


def _stopgap(plan: Plan, begun: Begun) -> bool:
    """Whether it is answered by who is not good enough for it, because who is could not at this moment.

    The next such request is to have a better answer, so this one is not kept. One that only a lesser model can answer,
    such as a prompt too long for the other, is answered so every time.
    """
    cause = begun.reason.removeprefix("fallback:")
    if cause == begun.reason or cause not in _OF_THE_MOMENT:
        return begun.makeshift
    return not any(w.at_floor for w in plan.decision.weighed if w.destination.name == begun.destination.id)


def _told(job: Job, found: Lookup | None) -> tuple[CacheVerdict, str, float | None]:
    """What is said of a look-up that was no hit: verdict, reason, and the similarity where there was a neighbour."""
    if isinstance(job.question, Bypass):
        return "bypass", job.question.reason, None
    verdict = found.verdict if found is not None else Miss()
    if isinstance(verdict, Near):
        return "near", verdict.reason, verdict.similarity
    why = verdict.reason if isinstance(verdict, Miss) else ""
    return ("miss" if job.question.may_read else "bypass"), why, None
