"""Requests, tokens and concurrency of teams, keys and end users: taken before, settled after, never beyond a limit.

What is promised: in any 60 seconds at most `rpm` requests of a scope are let through, and all the requests that compute
at any moment of them have at most `tpm` tokens together, prompts and answers. So the tokens that a request may need are
reserved before it computes, what it did need counts until it is a minute old, and the rest is free at once.

Nothing here waits or knows what time it is: one event loop calls, and brings the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from headgate.gateway.teams.sliding_window import SPAN_S, Window

What = Literal["requests", "tokens", "concurrency"]

_SWEEP = 4096
"""Scopes from which on idle ones are looked for and forgotten."""
_FIRST_HOLD_S = 1.0
_NEW_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Rates:
    """What a scope may use; None is no limit."""

    rpm: int | None = None
    """Requests in any 60 s."""
    tpm: int | None = None
    """Tokens in any 60 s."""
    concurrency: int | None = None
    """Requests at the same time."""

    @property
    def free(self) -> bool:
        """Whether nothing is limited."""
        return self.rpm is None and self.tpm is None and self.concurrency is None


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose limits these are: a team's, a key's, an end user's."""

    name: str
    """Unique; shown to clients."""
    rates: Rates


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was taken."""

    scope: Scope
    what: What
    limit: int
    used: int
    asked: int
    after_s: float | None
    """When to try again, as far as can be known; None: never, it is more than the limit."""
    share: int | None = None
    """What of the limit may be used here, while gateways that count together cannot; None: all of it."""


class Level(msgspec.Struct, frozen=True):
    """How a limit stands."""

    limit: int
    remaining: int
    reset_s: float
    """Until nothing counts any more, if nothing comes."""


class Standing(msgspec.Struct, frozen=True):
    """The tightest limits of a request's scopes; None where there is none."""

    requests: Level | None
    tokens: Level | None


class LimitBook(Protocol):
    """Keeps count. A request `enter`s once, `reserve`s for each generation, `settle`s each, and `leave`s once."""

    async def enter(self, scopes: Sequence[Scope]) -> Refusal | None:
        """Take a request and a place in every scope, or nothing."""
        ...

    def leave(self, scopes: Sequence[Scope], seconds: float) -> None:
        """Give the place back after so long."""
        ...

    async def reserve(self, scopes: Sequence[Scope], tokens: int) -> Refusal | None:
        """Set tokens aside in every scope, or nothing."""
        ...

    def settle(self, scopes: Sequence[Scope], reserved: int, used: int) -> None:
        """Tokens that were set aside were used, or some of them."""
        ...

    def standing(self, scopes: Sequence[Scope]) -> Standing:
        """How the limits stand."""
        ...


class MemoryLimits:
    """The counts of this process, which are all there are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds on a scale that never goes back."""
        self._counters = Counters()
        self._clock = clock

    async def enter(self, scopes: Sequence[Scope]) -> Refusal | None:
        """See `LimitBook`."""
        return self._counters.enter(scopes, self._clock())

    def leave(self, scopes: Sequence[Scope], seconds: float) -> None:
        """See `LimitBook`."""
        self._counters.leave(scopes, seconds, self._clock())

    async def reserve(self, scopes: Sequence[Scope], tokens: int) -> Refusal | None:
        """See `LimitBook`."""
        return self._counters.reserve(scopes, tokens, self._clock())

    def settle(self, scopes: Sequence[Scope], reserved: int, used: int) -> None:
        """See `LimitBook`."""
        self._counters.settle(scopes, reserved, used, self._clock())

    def standing(self, scopes: Sequence[Scope]) -> Standing:
        """See `LimitBook`."""
        return self._counters.standing(scopes, self._clock())


class _Account:
    """What one scope uses."""

    __slots__ = ("hold_s", "requests", "reserved", "running", "tokens")

    def __init__(self) -> None:
        self.requests = Window()
        self.tokens = Window()
        self.reserved = 0
        self.running = 0
        self.hold_s = _FIRST_HOLD_S

    def idle(self, now: float) -> bool:
        return not (self.running or self.reserved or self.requests.used(now) or self.tokens.used(now))


class Counters:
    """The counts of one process. `now` is seconds on a scale that never goes back."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._sweep_at = _SWEEP

    def __len__(self) -> int:
        """Scopes that are remembered."""
        return len(self._accounts)

    def enter(self, scopes: Sequence[Scope], now: float) -> Refusal | None:
        """See `LimitBook`."""
        accounts = []
        for scope in scopes:
            rates, account = scope.rates, self._account(scope.name, now)
            accounts.append(account)
            if rates.rpm is not None and (used := account.requests.used(now)) >= rates.rpm:
                after_s = account.requests.frees(now, used + 1 - rates.rpm) if rates.rpm else None
                return Refusal(scope, "requests", rates.rpm, used, 1, after_s)
            if rates.concurrency is not None and account.running >= rates.concurrency:
                # One of those that run leaves after about so long, if they take as long as those before.
                after_s = account.hold_s / max(1, account.running) if rates.concurrency else None
                return Refusal(scope, "concurrency", rates.concurrency, account.running, 1, after_s)
        for account in accounts:
            account.requests.add(now, 1)
            account.running += 1
        return None

    def leave(self, scopes: Sequence[Scope], seconds: float, now: float) -> None:
        """See `LimitBook`."""
        for scope in scopes:
            account = self._account(scope.name, now)
            account.running = max(0, account.running - 1)
            account.hold_s += _NEW_WEIGHT * (seconds - account.hold_s)

    def reserve(self, scopes: Sequence[Scope], tokens: int, now: float) -> Refusal | None:
        """See `LimitBook`."""
        accounts = [self._account(scope.name, now) for scope in scopes]
        for scope, account in zip(scopes, accounts, strict=True):
            limit = scope.rates.tpm
            if limit is None:
                continue
            used = account.tokens.used(now) + account.reserved
            if used + tokens > limit:
                return Refusal(scope, "tokens", limit, used, tokens, self._tokens_after(account, tokens, limit, now))
        for account in accounts:
            account.reserved += tokens
        return None

    def settle(self, scopes: Sequence[Scope], reserved: int, used: int, now: float) -> None:
        """See `LimitBook`."""
        for scope in scopes:
            account = self._account(scope.name, now)
            account.reserved = max(0, account.reserved - reserved)
            account.tokens.add(now, used)

    def standing(self, scopes: Sequence[Scope], now: float) -> Standing:
        """See `LimitBook`."""
        requests: Level | None = None
        tokens: Level | None = None
        for scope in scopes:
            rates = scope.rates
            if rates.free:
                continue
            account = self._account(scope.name, now)
            if rates.rpm is not None:
                left = max(0, rates.rpm - account.requests.used(now))
                if requests is None or left < requests.remaining:
                    requests = Level(rates.rpm, left, account.requests.clears(now))
            if rates.tpm is not None:
                left = max(0, rates.tpm - account.tokens.used(now) - account.reserved)
                if tokens is None or left < tokens.remaining:
                    clears = SPAN_S if account.reserved else account.tokens.clears(now)
                    tokens = Level(rates.tpm, left, clears)
        return Standing(requests, tokens)

    def _tokens_after(self, account: _Account, tokens: int, limit: int, now: float) -> float | None:
        if tokens > limit:
            return None
        after_s = account.tokens.frees(now, account.tokens.used(now) + account.reserved + tokens - limit)
        # Else it waits for one that runs to end, which gives back what it did not need.
        return account.hold_s if after_s is None else after_s

    def _account(self, name: str, now: float) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            if len(self._accounts) >= self._sweep_at:
                self._accounts = {n: a for n, a in self._accounts.items() if not a.idle(now)}
                # Whatever is left is in use: looking again at once would be work for nothing.
                self._sweep_at = max(_SWEEP, 2 * len(self._accounts))
            account = self._accounts[name] = _Account()
        return account
