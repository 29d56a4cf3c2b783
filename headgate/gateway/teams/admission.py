"""Letting a request in: caps, limits, and what is set aside for each generation it causes.

A request enters once, holds its place until it leaves, and reserves before each model that is asked for it. What a
generation used is settled when it has ended, however it ended: `metering` sees to that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

from headgate.gateway.request import ChatRequest, Usage
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.limits import LimitBook, MemoryLimits, Rates, Refusal, Scope, Standing
from headgate.gateway.teams.sections import LimitsSection
from headgate.gateway.wire.errors import ApiError, context_exceeded, invalid, rate_limited

_UNIT = {"requests": "requests per minute", "tokens": "tokens per minute", "concurrency": "requests at the same time"}


class Charge:
    """What is set aside for one generation, until it is settled. Settling again does nothing."""

    def __init__(self, book: LimitBook, scopes: Sequence[Scope], model: str, prompt_tokens: int, reserved: int) -> None:
        self.model = model
        self.prompt_tokens = prompt_tokens
        self._book = book
        self._scopes = scopes
        self._reserved = reserved
        self._open = True

    def settle(self, usage: Usage) -> None:
        """The generation has ended and used this."""
        if not self._open:
            return
        self._open = False
        self._book.settle(self._scopes, self._reserved, usage.prompt_tokens + usage.completion_tokens)


class Ticket:
    """A request that was let in. Leaving its context gives its place back."""

    def __init__(
        self, book: LimitBook, scopes: Sequence[Scope], request: ChatRequest, caps: LimitsSection, entered: float
    ) -> None:
        self.request = request
        """As it is to be answered: what the client left open is within the caps."""
        self._book = book
        self._scopes = scopes
        self._caps = caps
        self._entered = entered
        self._clock: Callable[[], float] = time.monotonic

    def __enter__(self) -> Ticket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scopes:
            self._book.leave(self._scopes, self._clock() - self._entered)

    def room(self, context_length: int, prompt_tokens: int) -> int:
        """Most tokens that one choice may have; ApiError 400 where prompt and answer would be longer than allowed."""
        most, asked = self._caps.max_context_tokens, self.request.max_tokens
        allowed = context_length if most is None else min(context_length, most)
        if prompt_tokens >= allowed or (asked is not None and prompt_tokens + asked > allowed):
            raise context_exceeded(allowed, prompt_tokens, asked if prompt_tokens < allowed else None)
        return allowed - prompt_tokens if asked is None else asked

    async def reserve(self, model: str, prompt_tokens: int, most_tokens: int) -> Charge:
        """Set aside what a generation may use: its prompt, and so many tokens of all its choices.

        ApiError 429 where that is more than is left.
        """
        tokens = prompt_tokens + most_tokens
        if self._scopes and (refusal := await self._book.reserve(self._scopes, tokens)) is not None:
            raise refused(refusal)
        return Charge(self._book, self._scopes, model, prompt_tokens, tokens)


class Admission:
    """Lets requests in, or says why not."""

    def __init__(self, book: LimitBook | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`book` keeps the counts; None: in this process. `clock`: seconds on a scale that never goes back."""
        self._book = MemoryLimits(clock) if book is None else book
        self._clock = clock

    async def enter(self, request: ChatRequest, principal: Principal) -> Ticket:
        """Let a request in; ApiError 400 for what is beyond a cap, 429 for what is beyond a limit."""
        caps = principal.policy.limits
        request = capped(request, caps)
        scopes = scopes_of(principal, request.user)
        if scopes and (refusal := await self._book.enter(scopes)) is not None:
            raise refused(refusal)
        return Ticket(self._book, scopes, request, caps, self._clock())

    def standing(self, principal: Principal, user: str | None = None) -> Standing:
        """How the limits of a team and its end user stand."""
        return self._book.standing(scopes_of(principal, user))


def capped(request: ChatRequest, caps: LimitsSection) -> ChatRequest:
    """The request, its answer no longer than the cap; ApiError 400 where it asks for more than a cap."""
    if caps.max_n is not None and request.n > caps.max_n:
        raise invalid(f"Invalid 'n': {request.n}. This team may ask for at most {caps.max_n}.", "n", "above_limit")
    if caps.max_tokens is None:
        return request
    if request.max_tokens is None:
        return replace(request, max_tokens=caps.max_tokens)
    if request.max_tokens > caps.max_tokens:
        message = f"Invalid 'max_tokens': {request.max_tokens}. This team may ask for at most {caps.max_tokens}."
        raise invalid(message, "max_tokens", "above_limit")
    return request


def scopes_of(principal: Principal, user: str | None) -> tuple[Scope, ...]:
    """Whose limits a request counts against; those without any are left out."""
    limits = principal.policy.limits
    scopes = []
    team = Rates(limits.requests_per_minute, limits.tokens_per_minute, limits.concurrency)
    if not team.free:
        scopes.append(Scope(f"team {principal.team}", team))
    if user is not None:
        each = limits.per_user
        rates = Rates(each.requests_per_minute, each.tokens_per_minute, each.concurrency)
        if not rates.free:
            scopes.append(Scope(f"user {principal.team}/{user}", rates))
    return tuple(scopes)


def refused(refusal: Refusal) -> ApiError:
    """429, with when to come again."""
    whose, _, name = refusal.scope.name.partition(" ")
    if whose == "user":
        name = name.partition("/")[2]
    where = f"{whose} '{name}' on {_UNIT[refusal.what]}: limit {refusal.limit}, used {refusal.used}"
    if refusal.what != "tokens":
        message = f"Rate limit reached for {where}."
    elif refusal.after_s is None:
        message = (
            f"Request too large for {where}, and this request may take {refusal.asked}, prompt and answer. "
            "Shorten the prompt or set a lower 'max_tokens'."
        )
        return rate_limited(message, None, "max_tokens")
    else:
        message = f"Rate limit reached for {where}, and this request may take {refusal.asked}, prompt and answer."
    after_s = refusal.after_s if refusal.after_s is not None else 1.0
    return rate_limited(f"{message} Try again in {math.ceil(after_s * 1e3) / 1e3:g} s.", after_s)
