"""Letting a request in: caps, limits, and what is set aside for each generation it causes.

A request enters once, holds its place until it leaves, and reserves before each model that is asked for it. What a
generation used is settled when it has ended, however it ended: `metering` sees to that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from headgate.gateway.road.request import ChatRequest, Usage
from headgate.gateway.teams.accounts import Accounts, Bill, Payer, payer
from headgate.gateway.teams.budgets import Over
from headgate.gateway.teams.costs import Cost
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger_file import Cause
from headgate.gateway.teams.limits import LimitBook, MemoryLimits, Rates, Refusal, Scope, Standing
from headgate.gateway.teams.open_tabs import OpenTabs
from headgate.gateway.teams.queues import Queues
from headgate.gateway.teams.sections import LimitsSection
from headgate.gateway.teams.tabs import Attempt
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import Refused, context_exceeded, invalid, quota_spent, rate_limited, too_late

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore
    from headgate.gateway.teams.redis_budgets import RedisBudgets
    from headgate.gateway.teams.redis_limits import RedisLimits

logger = logging.getLogger("headgate.gateway")

T = TypeVar("T")

_AWAY_S = 5.0
_LEAST_S = 0.1
_UNIT = {"requests": "requests per minute", "tokens": "tokens per minute", "concurrency": "requests at the same time"}


class Charge:
    """What is set aside for one generation, until it is settled. Settling again does nothing."""

    def __init__(self, ticket: Ticket, bill: Bill, prompt_tokens: int, reserved: int) -> None:
        self.prompt_tokens = prompt_tokens
        self._ticket = ticket
        self._bill = bill
        self._reserved = reserved
        self._open = True

    async def settled(self, usage: Usage, device_s: float, cause: Cause = "generated") -> None:
        """The generation has ended with this account; it is in the ledger when this returns."""
        if self._close(usage):
            await self._bill.settled(usage, device_s, cause)
            self._ticket.paid(self._bill.cost)

    def settle(self, usage: Usage, device_s: float, cause: Cause) -> bool:
        """The same, in the ledger soon. False where it was settled before."""
        was_open = self._close(usage)
        if was_open:
            self._bill.settle(usage, device_s, cause)
            self._ticket.paid(self._bill.cost)
        return was_open

    def drop(self) -> None:
        """Nothing was computed, or nothing that anybody has to pay for."""
        if self._close(Usage(0, 0, 0)):
            self._bill.drop()

    def _close(self, usage: Usage) -> bool:
        was_open, self._open = self._open, False
        if was_open and self._ticket.scopes:
            used = usage.prompt_tokens + usage.completion_tokens
            self._ticket.book.settle(self._ticket.scopes, self._reserved, used)
        return was_open


class Ticket:
    """A request that was let in, until it leaves. Leaving its context is that, too."""

    def __init__(
        self, admission: Admission, scopes: Sequence[Scope], request: ChatRequest, payer: Payer, record: RequestRecord
    ) -> None:
        self.request = request
        """As it is to be answered: what the client left open is within the caps."""
        self.scopes = scopes
        self.book = admission.book
        self.queues = admission.queues
        self.attempt: Attempt | None = None
        """At which of several this is one, if it may be."""
        self._admission = admission
        self._payer = payer
        self._record = record
        self._entered = admission.clock()
        deadline = record.deadline
        self.due: float | None = None
        """When its client gives up, unless its answer has begun by then; None: nobody knows."""
        if deadline is not None and (deadline.streams or not request.stream):
            self.due = record.arrived + deadline.seconds

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place back."""
        if self.scopes:
            self.book.leave(self.scopes, self._admission.clock() - self._entered)

    def left_s(self) -> float | None:
        """Seconds until its client gives up; None: nobody knows."""
        return None if self.due is None else self.due - self._admission.clock()

    async def in_time(self, coming: Awaitable[T]) -> T:
        """What is waited for, if it comes before the client gives up; ApiError 408 otherwise."""
        left_s = self.left_s()
        if left_s is None:
            return await coming
        limit = asyncio.timeout(left_s)
        try:
            async with limit:
                return await coming
        except TimeoutError:
            if not limit.expired():
                raise
            waited_s = self._admission.clock() - self._record.arrived
            message = f"The answer did not begin within the {waited_s:.1f} s that this request's client waits."
            expected_s = self.queues.expected_s(self.request.priority)
            raise too_late(message, max(_LEAST_S, expected_s)) from None

    def room(self, context_length: int, prompt_tokens: int) -> int:
        """Most tokens that one choice may have; ApiError 400 where prompt and answer would be longer than allowed."""
        most, asked = self._payer.principal.policy.limits.max_context_tokens, self.request.max_tokens
        # Whether it fits the model is the destination's to say, and it has.
        if most is not None and (prompt_tokens >= most or (asked is not None and prompt_tokens + asked > most)):
            raise context_exceeded(
                most, prompt_tokens, asked if prompt_tokens < most else None, self.request.prompt_field
            )
        if asked is not None:
            return asked
        return max(0, (context_length if most is None else min(context_length, most)) - prompt_tokens)

    async def reserve(
        self, model: str, prompt_tokens: int, most_tokens: int, device_s: float = 0.0, beside_nano_usd: int = 0
    ) -> Charge:
        """Set aside what a generation may use: its prompt, so many tokens of all its choices, the device's time, and
        what is paid beside tokens.

        ApiError 429 where that is more than is left.
        """
        tokens = prompt_tokens + most_tokens
        if self.scopes and (refusal := await self.book.reserve(self.scopes, tokens)) is not None:
            raise refused(refusal)
        try:
            accounts, attempt = self._admission.accounts, self.attempt
            bill = await accounts.open(
                self._payer, model, prompt_tokens, most_tokens, device_s, attempt, beside_nano_usd
            )
            if isinstance(bill, Over):
                raise over_budget(self._payer.principal.team, bill)
        except BaseException:
            if self.scopes:
                self.book.settle(self.scopes, tokens, 0)
            raise
        return Charge(self, bill, prompt_tokens, tokens)

    def hit(self, model: str, cause: Cause, usage: Usage) -> None:
        """It was answered by what somebody had computed before: that costs nothing."""
        self._admission.accounts.hit(self._payer, model, cause, usage)

    def paid(self, cost: Cost) -> None:
        """Something was computed for it."""
        self._record.cost += cost
        self._record.budget = self._admission.accounts.standing(self._payer.principal).warning


class Admission:
    """Lets requests in, or says why not."""

    def __init__(
        self,
        book: LimitBook | None = None,
        accounts: Accounts | None = None,
        queues: Queues | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without limits that are set everybody is let in.

        Args:
            book: keeps the counts; None: in this process.
            accounts: what is billed; None: nothing is kept of it.
            queues: who may wait for a model; None: as many as by default.
            clock: seconds on a scale that never goes back.
        """
        self.book = MemoryLimits(clock) if book is None else book
        self.accounts = Accounts() if accounts is None else accounts
        self.queues = Queues() if queues is None else queues
        self.tabs = OpenTabs(clock=clock)
        self._kept: dict[tuple[str, str | None], tuple[Principal, tuple[Scope, ...]]] = {}
        self.clock = clock
        self._pool: RedisBudgets | None = None
        self._limits: RedisLimits | None = None

    def share(self, redis: RedisStore | None, replicas: int) -> None:
        """Count together with other gateways, where there are some and a Redis that all of them use.

        Call it when the ledger is there, if one will be.
        """
        if replicas == 1:
            return
        if redis is None:
            logger.warning(
                "server.replicas is %d, but there is no Redis: each counts limits, budgets and retries by itself",
                replicas,
            )
            return
        from headgate.gateway.teams.redis_budgets import RedisBudgets
        from headgate.gateway.teams.redis_limits import RedisLimits
        from headgate.gateway.teams.redis_tabs import RedisTabs

        self.tabs.share(RedisTabs(redis))
        self.book = self._limits = RedisLimits(redis, replicas, self.clock)
        ledger, budgets = self.accounts.ledger, self.accounts.budgets
        self._pool = RedisBudgets(redis, budgets, secrets.token_hex(8) if ledger is None else ledger.gateway, replicas)
        budgets.share(self._pool)

    async def follow(self) -> None:
        """Keep up with what other gateways spend, and have them know what ended here, until cancelled."""
        if self._pool is not None and self._limits is not None:
            await asyncio.gather(self._pool.follow(), self._limits.follow())

    async def settled(self) -> None:
        """Wait until other gateways can know what was spent here and for which requests, and that these have ended."""
        await self.tabs.settled()
        if self._pool is not None:
            await self._pool.settled()
        if self._limits is not None:
            await self._limits.settled()

    async def enter(self, request: ChatRequest, principal: Principal, record: RequestRecord) -> Ticket:
        """Let a request in; ApiError 400 for what is beyond a cap, 429 for what is beyond a limit."""
        request = capped(request, principal.policy.limits)
        scopes = self._scopes(principal, request.user)
        if scopes and (refusal := await self.book.enter(scopes)) is not None:
            raise refused(refusal)
        exhausted, record.budget = self.accounts.standing(principal)
        if exhausted:
            request = exceeding(request, principal)
        return Ticket(self, scopes, request, payer(principal, record.request_id, request), record)

    def foreseen(self, request: ChatRequest, principal: Principal) -> ChatRequest:
        """A request as it would be let in now, whatever it costs; ApiError 400 for what is beyond a cap, 429 where
        nothing is left of a budget that blocks. Nothing is counted."""
        request, accounts = capped(request, principal.policy.limits), self.accounts
        if not accounts.standing(principal).exhausted:
            return request
        over = accounts.budgets.over(principal.team, principal.policy.budgets)
        if over is not None:
            raise over_budget(principal.team, over)
        return exceeding(request, principal)

    def standing(self, principal: Principal, user: str | None = None) -> Standing:
        """How the limits of a team, its key and its end user stand."""
        return self.book.standing(self._scopes(principal, user))

    def _scopes(self, principal: Principal, user: str | None) -> tuple[Scope, ...]:
        """Those of a principal without its end users are made once: a reload makes another principal."""
        if user is not None:
            return scopes_of(principal, user)
        who = principal.team, principal.key_id
        made_for, scopes = self._kept.get(who, (None, ()))
        if made_for is not principal:
            scopes = scopes_of(principal, None)
            self._kept[who] = principal, scopes
        return scopes

    def failed(self, principal: Principal, error: BaseException) -> None:
        """A request ended with this. Where it is a refusal that is counted, once, however many models were sought."""
        if isinstance(error, Refused):
            self.accounts.metrics.refused(principal.team, error.reason)


def exceeding(request: ChatRequest, principal: Principal) -> ChatRequest:
    """The request of a team whose budget is spent, as it turns then; one that blocks is refused where it is charged."""
    turns = principal.policy.budgets.on_exceed
    if turns == "downgrade":
        return replace(request, model="small", arm=False)
    return replace(request, priority="background") if turns == "queue" else request


def capped(request: ChatRequest, caps: LimitsSection) -> ChatRequest:
    """The request, its answer no longer than the cap; ApiError 400 where it asks for more than a cap."""
    if caps.max_n is not None and request.n > caps.max_n:
        raise invalid(
            f"Invalid 'n': {request.n}. At most {caps.max_n} may be asked for with this key.", "n", "above_limit"
        )
    if caps.max_tokens is None:
        return request
    if request.max_tokens is None:
        return replace(request, max_tokens=caps.max_tokens)
    if request.max_tokens > caps.max_tokens:
        message = (
            f"Invalid 'max_tokens': {request.max_tokens}. At most {caps.max_tokens} may be asked for with this key."
        )
        raise invalid(message, "max_tokens", "above_limit")
    return request


def scopes_of(principal: Principal, user: str | None) -> tuple[Scope, ...]:
    """Whose limits a request counts against; those without any are left out."""
    limits, scopes = principal.policy.limits, list[Scope]()
    for name, section in (
        (f"team {principal.team}", limits),
        (f"key {principal.key_id}", principal.limits),
        (f"user {principal.team}/{user}", None if user is None else limits.per_user),
    ):
        if section is not None:
            rates = Rates(section.requests_per_minute, section.tokens_per_minute, section.concurrency)
            if not rates.free:
                scopes.append(Scope(name, rates))
    return tuple(scopes)


def refused(refusal: Refusal) -> Refused:
    """429, with when to come again."""
    whose, _, name = refusal.scope.name.partition(" ")
    if whose == "user":
        name = name.partition("/")[2]
    share = "" if refusal.share is None else f" ({refusal.share} of it here, while gateways cannot count together)"
    where = f"{whose} '{name}' on {_UNIT[refusal.what]}: limit {refusal.limit}{share}, used {refusal.used}"
    if refusal.what != "tokens":
        message = f"Rate limit reached for {where}."
    elif refusal.after_s is None:
        message = (
            f"Request too large for {where}, and this request may take {refusal.asked}, prompt and answer. "
            "Shorten the prompt or set a lower 'max_tokens'."
        )
        return rate_limited(message, None, "max_tokens", reason=refusal.what)
    else:
        message = f"Rate limit reached for {where}, and this request may take {refusal.asked}, prompt and answer."
    after_s = refusal.after_s if refusal.after_s is not None else 1.0
    return rate_limited(f"{message} Try again in {math.ceil(after_s * 1e3) / 1e3:g} s.", after_s, reason=refusal.what)


def over_budget(team: str, over: Over) -> Refused:
    """429: the budget is spent, or what is set aside for others may be all that is left of it."""
    share = over.share
    text = f"{share.bound} of team '{team}' is {share.limit:g}, of which {share.spent:g} are spent"
    if over.away:
        message = (
            f"The budget {share.bound} of team '{team}' is {share.limit:g}, and this gateway's part of it is taken: "
            "what others have spent cannot be known at the moment. Try again later."
        )
        return rate_limited(message, _AWAY_S, reason=share.bound, budget=True)
    if over.for_good:
        message = (
            f"The budget {text}, and this request may take {over.asked:g}. It is renewed on {share.renewed}, or an "
            "operator raises it."
        )
        return quota_spent(message, share.bound)
    message = (
        f"The budget {text} and {share.reserved:g} are set aside for requests that are being answered; this one may "
        f"take {over.asked:g}. Try again when they have ended."
    )
    return rate_limited(message, 1.0, reason=share.bound, budget=True)
