"""How a request gets on the road and off it again: as its team has it, let in, answered from here or made, and billed.

What is stored in this process is served from here. A generation's task, its flight and its generators are for answers
that have to be made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from functools import partial
from types import TracebackType

import msgspec
from msgspec.structs import replace

from headgate.cache.verdict import Hit
from headgate.gateway.caching.answers import Answers, Stored
from headgate.gateway.caching.question import Bypass, Question
from headgate.gateway.edge.body_cache import SHORT, Asked, Reading
from headgate.gateway.road.events import Answer, Events, Made, Opened
from headgate.gateway.road.request import ChatRequest
from headgate.gateway.routing.routes import Routes, fingerprint
from headgate.gateway.teams.admission import Admission, Ticket, capped
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.overrides import as_team
from headgate.gateway.teams.retries import Key, Retries, Whole, part_of
from headgate.gateway.teams.tabs import Attempt
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord


class Job(msgspec.Struct, frozen=True):
    """A request that was let in, and for which nothing is stored here."""

    id: str
    request: ChatRequest
    principal: Principal
    ticket: Ticket
    question: Question | Bypass
    """What the cache is asked, or why it has no part in it."""


Make = Callable[[Job], Awaitable[tuple[Events, Opened]]]
"""The events of an answer, entered, of which the first has come."""


class Gate:
    """Where requests get on the road."""

    def __init__(
        self,
        routes: Routes,
        answers: Answers,
        metrics: Metrics,
        admission: Admission,
        make: Make,
        clock: Callable[[], float],
    ) -> None:
        """`make` has an answer made, or found elsewhere; `clock`: monotonic seconds."""
        self.answers = answers
        self.metrics = metrics
        self.admission = admission
        self.make = make
        self.clock = clock
        self.retries = Retries(clock=clock)
        self._routes = routes

    @property
    def there(self) -> Container[str]:
        """Ids of the models that there are."""
        return self._routes.destinations

    def question(self, asked: Asked, entered: ChatRequest, principal: Principal) -> Question | Bypass:
        """What to ask the cache for a request as it was let in, which may be another than its team asked."""
        epoch, question = (self.answers.epoch, self._routes.generation), asked.question
        if question is not None and entered is asked.request and asked.epoch == epoch:
            return question
        routes, name = self._routes, entered.model
        candidates, variant = routes.candidates(name, principal), routes.variant(name, principal)
        question = self.answers.question(entered, principal, candidates, variant)
        if entered is asked.request:
            asked.question, asked.epoch = question, epoch
        return question

    def stands(self, whole: Whole) -> bool:
        """Whether an answer of a moment ago is of who still has that model's name."""
        found = self._routes.destinations.get(whole.opened.model)
        return found is not None and fingerprint(found) == whole.opened.fingerprint

    def at_hand(self, asked: Asked, question: Question) -> Stored | None:
        """The answer to the very same request, where it is in this process; what was made of a short one is kept."""
        stored = self.answers.at_hand(question, asked.stored)
        if stored is not None and stored is not asked.stored:
            asked.stored = stored if len(stored.found.packed) <= SHORT else None
        return stored

    def opened(self, hit: Hit, why: str, looked_s: float) -> Opened:
        """What is said of a stored answer before it is served."""
        entry = hit.entry
        return Opened(
            hit.kind,
            why,
            entry.model,
            self._routes.fingerprint(entry.model),
            f"cache-{hit.kind}",
            hit.similarity,
            entry.key,
            self.answers.age_s(entry),
            entry.device_s,
            hit.bound,
            looked_s=looked_s,
        )


class Passage:
    """One request's stay on the road. Leaving it ends the work, unless others listen to the same generation."""

    def __init__(
        self,
        gate: Gate,
        request: ChatRequest,
        principal: Principal,
        record: RequestRecord,
        reading: Reading | None = None,
        place: int = 0,
    ) -> None:
        """`reading` is what is kept of the body that `request` is from, if that is; `place` its prompt's in there."""
        self._gate = gate
        self._request = request
        self._principal = principal
        self._record = record
        self._reading = reading
        self._place = place
        self._key: Key | None = None
        self._making = False
        self._ticket: Ticket | None = None
        self._events: Events | None = None
        self._answer: Answer | None = None

    async def __aenter__(self) -> Answer:
        """Its answer; ApiError for everything that can be refused before the first token."""
        gate, principal, record = self._gate, self._principal, self._record
        asked = self._asked()
        record.experiment = asked.experiment
        record.user = asked.request.user or ""
        if record.standing is None or asked.request.user is not None:
            record.standing = partial(gate.admission.standing, principal, asked.request.user)
        retry = record.retry
        if retry is not None:
            # A body may hold several prompts, equal ones too, each of them a request here.
            part = part_of(asked.request.prompt, self._place)
            key = self._key = (principal.team, principal.key_id, retry.name, part)
            if retry.again and (whole := await gate.retries.find(key, retry)) is not None and gate.stands(whole):
                await gate.admission.tabs.close(key, retry)
                return self._repeated(whole)
            self._making = gate.retries.begin(key, retry)
        try:
            self._ticket = ticket = await gate.admission.enter(asked.request, principal, record)
            record.admitted_s = gate.clock() - record.arrived
            if not ticket.request.arm:
                record.experiment = ""  # a spent budget has it answered by the small model
            self._answer = await self._answered(asked, ticket)
            return self._answer
        except BaseException as error:
            gate.admission.failed(principal, error)
            self._leave(had=False)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Bill what was served from the cache; end what was made for this request alone; give its place back."""
        try:
            if kind is None:
                self._bill()
        finally:
            try:
                if self._events is not None:
                    await self._events.__aexit__(kind, error, trace)
            finally:
                # A stream that broke off has set a status.
                answer = self._answer
                self._leave(had=kind is None and not self._record.status and answer is not None and answer.ended)

    def _asked(self) -> Asked:
        reading = self._reading
        if reading is not None and reading.asked is not None:
            return reading.asked
        request, experiment = as_team(self._request, self._principal, self._gate.there)
        asked = Asked(capped(request, self._principal.policy.limits), experiment)
        if reading is not None:
            reading.asked = asked
        return asked

    async def _answered(self, asked: Asked, ticket: Ticket) -> Answer:
        gate, record = self._gate, self._record
        question, began = gate.question(asked, ticket.request, self._principal), gate.clock()
        if isinstance(question, Question) and (stored := gate.at_hand(asked, question)) is not None:
            opened, restored = gate.opened(stored.found.hit, "stored", gate.clock() - began), stored.restored
            answer: Answer = Made(opened, restored.chunks, restored.outcome, gate.clock, stored.choices)
        else:
            if self._key is not None and record.retry is not None:
                ticket.attempt = Attempt(await gate.admission.tabs.take(self._key, record.retry))
            making = gate.make(Job(record.request_id, ticket.request, self._principal, ticket, question))
            events, opened = await ticket.in_time(making)
            self._events = events
            if not events.leads and opened.verdict in ("miss", "near"):
                # Who joins another's generation computes nothing: to him it is a hit on the very same request.
                opened = replace(opened, verdict="exact", why="joined", similarity=1.0, age_s=0.0, looked_s=None)
                if opened.asked_at is not None:
                    # He may have come after the model was asked.
                    opened = replace(opened, asked_at=max(began, opened.asked_at))
            answer = Answer(opened, events, gate.clock, None if ticket.due is None else ticket.in_time)
        self._note(answer)
        if opened.age_s is not None:
            gate.metrics.cache.hit(opened.verdict, opened.age_s)
        return answer

    def _repeated(self, whole: Whole) -> Answer:
        """An answer that was made to its end, for whom its reply did not reach."""
        age_s = self._gate.clock() - whole.at
        opened = replace(
            whole.opened, verdict="exact", why="retry", similarity=1.0, age_s=age_s, chosen=None, asked_at=None
        )
        answer = Made(opened, whole.chunks, whole.outcome, self._gate.clock)
        self._note(answer)
        return answer

    def _note(self, answer: Answer) -> None:
        record, opened = self._record, answer.opened
        record.verdict, record.model, record.route = opened.verdict, opened.model, opened.reason
        record.chosen, record.opened, record.opened_s = opened.chosen, opened, answer.opened_at - record.arrived
        self._gate.metrics.cache.lookup(opened.verdict, opened.why)

    def _bill(self) -> None:
        answer = self._answer
        if answer is None or self._ticket is None or answer.opened.age_s is None or not answer.ended:
            return
        opened, usage = answer.opened, answer.outcome.usage
        # Of these one is 0: a stored answer took nothing now, a joined one was not stored before.
        device_s = opened.device_s + answer.outcome.device_s
        self._ticket.hit(opened.model, "semantic" if opened.verdict == "semantic" else "exact", usage)
        self._gate.metrics.cache.saved(usage.prompt_tokens, usage.completion_tokens, device_s)

    def _leave(self, *, had: bool) -> None:
        """`had`: whether the client got the answer, as far as can be known."""
        ticket, retries, key, retry = self._ticket, self._gate.retries, self._key, self._record.retry
        try:
            if ticket is not None:
                ticket.leave()
                if ticket.attempt is not None and key is not None and retry is not None:
                    tabs = self._gate.admission.tabs
                    # An answer that was had is given again from here; another gateway would have to make it anew.
                    if not had or tabs.shared:
                        tabs.leave(key, retry, ticket.attempt.tab, had=had)
        finally:
            # Whatever comes of that: who waits for the answer goes on.
            if self._making and key is not None:
                answer = self._answer
                retries.end(key, None if answer is None else answer.whole(self._gate.clock()))
