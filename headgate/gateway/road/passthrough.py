"""The road of what is passed on to an upstream as it came: let in, asked, billed by what the answer says that it took.

No answer is stored, and no other model is asked instead of the one that is named.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from headgate.gateway.road.request import ChatRequest, Usage
from headgate.gateway.teams.admission import Admission, Charge, Ticket, over_budget
from headgate.gateway.teams.budgets import Over
from headgate.gateway.teams.costs import Cost
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.model_names import check_allowed, model_name
from headgate.gateway.teams.overrides import scheduled
from headgate.gateway.teams.retries import Key, Retry
from headgate.gateway.teams.tabs import Attempt, Tab
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.upstream.endpoints import Endpoint
from headgate.gateway.upstream.passthrough import Passed, Passer
from headgate.gateway.wire.errors import ApiError, invalid, model_not_found, upstream_down
from headgate.gateway.wire.passthrough import Wanted
from headgate.routing.breaker import Breaker


class PassedOn:
    """An answer on its way to its client. What it took is settled before the client has its end."""

    def __init__(
        self, run: Passed, charge: Charge, price: Callable[[float], int], breaker: Breaker, metrics: Metrics
    ) -> None:
        """`price`: billionths of a dollar beside tokens, by how many seconds of sound were heard."""
        self._run = run
        self._charge = charge
        self._price = price
        self._breaker = breaker
        self._metrics = metrics
        self._begun = False
        self._failure: ApiError | None = None
        self.whole: bytes | None = None
        """All of it, where it is passed on in one piece."""
        self.usage = Usage(0, 0, 0)
        """What it took, at its end."""
        self.ended = False
        """Whether it came to its end."""

    @property
    def kind(self) -> str:
        """Its content type."""
        return self._run.reply.kind

    @property
    def length(self) -> int | None:
        """Its bytes, where it comes as it is made and they are known before."""
        return self._run.reply.length

    @property
    def left_s(self) -> float:
        """Seconds until all of it has to be passed on."""
        return self._run.left_s

    @property
    def foreseen(self) -> Cost:
        """What it costs if it says nothing of what it took."""
        return Cost(self._price(0.0))

    async def begin(self) -> None:
        """Have it begun. ApiError where it does not."""
        self._breaker.begin()
        try:
            await self._run.begin()
        except ApiError as error:
            self._failure = error
            raise
        self._begun, self.whole = True, self._run.reply.whole
        if self.whole is not None:
            await self._settle()

    async def more(self) -> bytes:
        """The next bytes of one that is not whole; none at its end. ApiError where it ends before."""
        try:
            data = await self._run.more()
        except ApiError as error:
            self._failure = error
            raise
        if not data:
            await self._settle()
        return data

    def close(self) -> None:
        """End it. Who leaves it pays for what was made by then, as far as that is known; what fails costs nothing."""
        if self._begun and not self.ended and self._failure is None:
            self.usage = self._took()
            if self._charge.settle(self.usage, 0.0, "cancelled"):
                self._count()
        if self.ended:
            self._breaker.succeeded()
        elif self._failure is not None and self._failure.fault:
            self._breaker.failed()
        else:
            self._breaker.left()
        self._run.close()

    async def _settle(self) -> None:
        self.usage = self._took()
        await self._charge.settled(self.usage, 0.0)
        self.ended = True
        self._count()

    def _took(self) -> Usage:
        metered = self._run.reply.metered
        return metered.usage(self._price(metered.seconds))

    def _count(self) -> None:
        if self.usage.prompt_tokens or self.usage.completion_tokens:
            self._metrics.cut(self._run.model, self.usage)


class Passing:
    """Everything that upstreams serve beside chats."""

    def __init__(
        self,
        passers: Mapping[str, Passer],
        breakers: Mapping[str, Breaker],
        admission: Admission,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pass on by `passers` unless their `breakers` say otherwise. `clock`: monotonic seconds."""
        self._passers = passers
        self._breakers = breakers
        self._admission = admission
        self._metrics = metrics
        self._clock = clock

    def serving(self, endpoint: Endpoint, principal: Principal) -> list[str]:
        """The models that serve it and that a principal may ask."""
        allowed = principal.models
        return [p.id for p in self._passers.values() if p.serves(endpoint) and (allowed is None or p.id in allowed)]

    def find(self, endpoint: Endpoint, asked: str, principal: Principal, others: Sequence[str] = ()) -> Passer:
        """Who serves it by this name. ApiError 400 without one, 403 for one that may not be asked, 404 for others.

        Without one it is the team's default, where that serves it. `others` serve it, too, though not by an upstream:
        to be told of.
        """
        known = ", ".join([*self.serving(endpoint, principal), *others])
        if not known:
            message = f"No model that may be asked here serves /v1{endpoint.path}."
            raise ApiError(404, message, param="model", code="model_not_found")
        name = model_name(asked, principal) if asked or principal.policy.models.default is not None else ""
        passer = self._passers.get(name)
        if passer is None or not passer.serves(endpoint):
            if not asked:
                # A team's default, where it has one, is for chats as a rule.
                message = f"Missing required parameter: 'model'. Available: {known}."
                raise invalid(message, "model", "missing_required_parameter")
            raise model_not_found(name, known, f"/v1{endpoint.path}" if name in self._breakers else "")
        check_allowed(name, principal)
        return passer

    @asynccontextmanager
    async def answer(
        self, passer: Passer, endpoint: Endpoint, wanted: Wanted, principal: Principal, record: RequestRecord
    ) -> AsyncIterator[PassedOn]:
        """The answer to a request, begun. Leaving the context ends the work.

        ApiError for everything that is known before: 429 beyond limits and budgets, 503 where the upstream is down,
        408 where it does not come while its client waits, and what of it fails.
        """
        several = max(1, wanted.images)
        passed = ChatRequest("passed", passer.id, n=several, user=wanted.user, stream=wanted.streams)
        asked = scheduled(passed, principal)
        record.model, record.route, record.user = passer.id, "requested", wanted.user or ""
        record.stream = wanted.streams
        record.standing = partial(self._admission.standing, principal, wanted.user)
        try:
            with await self._admission.enter(asked, principal, record) as ticket:
                record.admitted_s = self._clock() - record.arrived
                self._check_budget(ticket, passer, principal)
                tab, had = await self._tab(endpoint, principal, record), False
                again = tab.until is not None
                ticket.attempt = Attempt(tab)
                try:
                    async with self._asked(ticket, passer, endpoint, wanted, record) as answer:
                        yield answer
                        had = answer.ended and not record.status
                finally:
                    if had and again:
                        # Each answer is made anew: who got one by a retry pays for the next, whatever he says of it.
                        tab.close()
                    self._leave(endpoint, principal, record, tab, had=had)
        except ApiError as error:
            self._admission.failed(principal, error)
            raise

    @asynccontextmanager
    async def _asked(
        self, ticket: Ticket, passer: Passer, endpoint: Endpoint, wanted: Wanted, record: RequestRecord
    ) -> AsyncIterator[PassedOn]:
        """The upstream's answer, begun and paid for."""
        breaker = self._breakers[passer.id]
        if not breaker.allows or not passer.standing.well:
            raise upstream_down(passer.id, breaker.pause_s)
        price = partial(passer.section.price.beside_nano_usd, wanted.images, wanted.spoken)
        tokens = passer.pace.tokens(wanted.read) if wanted.read else 0
        # How long its queue is, only the upstream knows.
        place = ticket.queues.enter(passer.id, ticket.request.priority, lambda: None, tokens, None)
        try:
            charge = await ticket.reserve(passer.id, tokens, 0, beside_nano_usd=price(0.0))
            try:
                kind, body = wanted.body(passer.section.model)
                run = passer.ask(endpoint, kind, body, record.request_id, streams=wanted.streams)
                record.opened_s = self._clock() - record.arrived
                answer = PassedOn(run, charge, price, breaker, self._metrics)
                try:
                    await ticket.in_time(answer.begin())
                    place.leave()
                    passer.pace.counted(wanted.read, answer.usage.prompt_tokens)
                    yield answer
                finally:
                    answer.close()
                    record.prompt_tokens = answer.usage.prompt_tokens
                    record.completion_tokens = answer.usage.completion_tokens
            finally:
                charge.drop()
        finally:
            place.leave()

    def _check_budget(self, ticket: Ticket, passer: Passer, principal: Principal) -> None:
        """ApiError 429 where the budget is spent and its team goes on with a smaller model: here there is none."""
        if ticket.request.model == passer.id:
            return
        shares = self._admission.accounts.budgets.shares(principal.team, principal.policy.budgets)
        for share in shares:
            if share.exhausted:
                raise over_budget(principal.team, Over(share, 0.0, for_good=True))

    async def _tab(self, endpoint: Endpoint, principal: Principal, record: RequestRecord) -> Tab:
        """That of the request as it was sent before. Answers are not kept: they are made again, and billed once."""
        retry = record.retry
        return Tab() if retry is None else await self._admission.tabs.take(_key(endpoint, principal, retry), retry)

    def _leave(self, endpoint: Endpoint, principal: Principal, record: RequestRecord, tab: Tab, *, had: bool) -> None:
        if (retry := record.retry) is not None:
            self._admission.tabs.leave(_key(endpoint, principal, retry), retry, tab, had=had)


def _key(endpoint: Endpoint, principal: Principal, retry: Retry) -> Key:
    return (principal.team, principal.key_id, retry.name, f"passed on to {endpoint.path}")
