"""Limits that several gateways count together in one Redis: each step is one script there, which takes all or nothing.

While Redis does not answer, every gateway lets its share of each limit pass, the limit over the number of replicas,
by what it has let pass itself. So an outage refuses nobody who is within that share, and all together stay within the
limit. What ends meanwhile Redis is told of when it answers again. What a gateway that was killed had set aside is free
after `LEASE_S`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.cache.store.base import StoreDownError
from headgate.gateway.teams.limits import Counters, Level, Rates, Refusal, Scope, Standing, What
from headgate.gateway.teams.redis_limit_scripts import END, ENTER, RESERVE
from headgate.gateway.teams.sliding_window import GRAIN_S, SPAN_S

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore

LEASE_S = 600.0
AGAIN_S = 1.0
"""After which Redis is told again of what it did not answer to."""
_KNOWN = 4096

_WHAT: tuple[What, ...] = ("requests", "concurrency", "tokens")


class _UnheardError(StoreDownError):
    """Redis was asked, and may have done it."""


@dataclass(frozen=True, slots=True)
class _End:
    """Of a place, or of what was set aside. Redis may be told of it several times."""

    scopes: Sequence[Scope]
    at: float
    """When it was, in seconds of the book's clock."""
    place: str = ""
    reservation: str = ""
    reserved: int = 0
    used: int = 0
    mark: str = ""
    """By what its use is known again where Redis has no reservation."""

    def left(self, now: float) -> _End | None:
        """What of it Redis has to know at that time; None: nothing."""
        end = replace(self, used=0, mark="") if now - self.at >= SPAN_S else self
        held = (end.place or end.reservation) and now - end.at < LEASE_S
        return end if held or end.used else None


class RedisLimits:
    """Implements `LimitBook`. Calls come from one event loop."""

    def __init__(self, store: RedisStore, replicas: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Count in the Redis of a store.

        Args:
            store: its connection, its deadline for answers and its prefix are used.
            replicas: gateways that count there.
            clock: monotonic seconds, of what is counted here.
        """
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._local = Counters()
        self._ids = itertools.count()
        self._instance = secrets.token_hex(8)
        self._open: dict[tuple[tuple[str, ...], int], list[str]] = {}
        """Ids of what is set aside, by scopes and tokens; of places the tokens are -1."""
        self._known: dict[str, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._untold: deque[_End] = deque()
        """What Redis does not know, or may not."""
        self._telling = asyncio.Lock()
        self._scripts = {text: store.client.register_script(text) for text in (ENTER, RESERVE, END)}

    async def enter(self, scopes: Sequence[Scope]) -> Refusal | None:
        """See `LimitBook`."""
        bounds = [_bound(b) for s in scopes for b in (s.rates.rpm, s.rates.concurrency)]
        return await self._take(ENTER, scopes, -1, bounds, 1)

    def leave(self, scopes: Sequence[Scope], seconds: float) -> None:
        """See `LimitBook`."""
        self._local.leave(scopes, seconds, self._clock())
        self._later(_End(scopes, self._clock(), place=self._pop(scopes, -1)))

    async def reserve(self, scopes: Sequence[Scope], tokens: int) -> Refusal | None:
        """See `LimitBook`."""
        return await self._take(RESERVE, scopes, tokens, [tokens, *(_bound(s.rates.tpm) for s in scopes)], tokens)

    def settle(self, scopes: Sequence[Scope], reserved: int, used: int) -> None:
        """See `LimitBook`."""
        self._local.settle(scopes, reserved, used, self._clock())
        reservation = self._pop(scopes, reserved)
        mark = "" if reservation else self._number()
        self._later(_End(scopes, self._clock(), "", reservation, reserved, used, mark))

    def standing(self, scopes: Sequence[Scope]) -> Standing:
        """How the limits stood when Redis was asked last, or here where it was not."""
        requests: Level | None = None
        tokens: Level | None = None
        for scope in scopes:
            known = self._known.get(scope.name)
            if known is None:
                return self._local.standing(scopes, self._clock())
            for what, limit, used in (("r", scope.rates.rpm, known[0]), ("t", scope.rates.tpm, known[1])):
                if limit is None:
                    continue
                level = Level(limit, max(0, limit - used), SPAN_S if used else 0.0)
                if what == "r" and (requests is None or level.remaining < requests.remaining):
                    requests = level
                elif what == "t" and (tokens is None or level.remaining < tokens.remaining):
                    tokens = level
        return Standing(requests, tokens)

    async def settled(self) -> None:
        """Wait until Redis was told of everything, or has not answered twice."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        if self._untold:
            await asyncio.sleep(AGAIN_S)
            await self.tell()

    async def follow(self) -> None:
        """Tell Redis what it could not be told, each second, until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_S)
            await self.tell()

    async def tell(self) -> None:
        """Do so once, while it answers."""
        async with self._telling:
            now = self._clock()
            self._untold = deque(left for end in self._untold if (left := end.left(now)) is not None)
            while self._untold:
                try:
                    await self._tell(self._untold[0], again=True)
                except StoreDownError:
                    return
                self._untold.popleft()

    async def _take(
        self, script: str, scopes: Sequence[Scope], tokens: int, bounds: list[int], asked: int
    ) -> Refusal | None:
        number = self._number()
        taking = asyncio.get_running_loop().create_task(
            self._run(script, scopes, [number, *bounds]), name="take limits"
        )
        try:
            answer = await asyncio.shield(taking)
        except asyncio.CancelledError:
            # Whatever Redis gives now is for nobody.
            self._tasks.add(taking)
            taking.add_done_callback(partial(self._took_for_nobody, scopes, tokens, number))
            raise
        except StoreDownError as error:
            if isinstance(error, _UnheardError):
                self._untold.append(self._undone(scopes, tokens, number))
            return self._within_share(scopes, tokens, asked)
        if answer[0] == 0:
            self._note(scopes, answer[1])
            self._open.setdefault((_names(scopes), tokens), []).append(number)
            return self._count([Scope(s.name, Rates()) for s in scopes], tokens)
        index, what, used, after_ms = (int(value) for value in answer)
        scope = scopes[index - 1]
        requests, counted = self._known.get(scope.name, (0, 0))
        self._known[scope.name] = (used if what == 1 else requests, used if what == 3 else counted)
        limit = _limit(scope, _WHAT[what - 1])
        after_s = None if asked > limit else 1.0 if after_ms < 0 else after_ms / 1e3
        return Refusal(scope, _WHAT[what - 1], limit, used, asked, after_s)

    def _count(self, scopes: Sequence[Scope], tokens: int) -> Refusal | None:
        now = self._clock()
        return self._local.enter(scopes, now) if tokens < 0 else self._local.reserve(scopes, tokens, now)

    def _within_share(self, scopes: Sequence[Scope], tokens: int, asked: int) -> Refusal | None:
        """Take what is within this gateway's share of the limits. What is beyond it is not beyond the limits."""
        refusal = self._count([Scope(s.name, _share(s.rates, self._replicas)) for s in scopes], tokens)
        if refusal is None:
            return None
        scope = next(scope for scope in scopes if scope.name == refusal.scope.name)
        limit = _limit(scope, refusal.what)
        after_s = refusal.after_s
        if after_s is None and asked <= limit:
            after_s = AGAIN_S
        return replace(refusal, scope=scope, limit=limit, share=refusal.limit, after_s=after_s)

    def _took_for_nobody(
        self, scopes: Sequence[Scope], tokens: int, number: str, taking: asyncio.Task[list[Any]]
    ) -> None:
        self._tasks.discard(taking)
        if taking.cancelled():
            return
        error = taking.exception()
        if error is None and taking.result()[0] == 0:
            self._later(self._undone(scopes, tokens, number))
        elif isinstance(error, _UnheardError):
            self._untold.append(self._undone(scopes, tokens, number))

    def _undone(self, scopes: Sequence[Scope], tokens: int, number: str) -> _End:
        """The end of what Redis may have taken, and nobody has."""
        if tokens < 0:
            return _End(scopes, self._clock(), place=number)
        return _End(scopes, self._clock(), reservation=number, reserved=tokens)

    def _later(self, end: _End) -> None:
        if end.left(end.at) is None:
            return
        task = asyncio.get_running_loop().create_task(self._end(end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, end: _End) -> None:
        try:
            await self._tell(end, again=False)
        except StoreDownError:
            self._untold.append(end)

    async def _tell(self, end: _End, *, again: bool) -> None:
        arguments = [end.place, end.reservation, end.reserved, end.used, end.mark, int(again)]
        answer = await self._run(END, end.scopes, arguments)
        self._note(end.scopes, answer[1])

    async def _run(self, script: str, scopes: Sequence[Scope], arguments: list[Any]) -> list[Any]:
        """What Redis gives; `_UnheardError` where it gives nothing and may have done it all the same."""
        names = [f"{self._store.prefix}limit:{scope.name}" for scope in scopes]
        times = [round(SPAN_S * 1000), round(GRAIN_S * 1000), round(LEASE_S * 1000)]
        asked = False

        async def ask() -> Any:
            nonlocal asked
            asked = True
            return await self._scripts[script](keys=names, args=[*times, *arguments])

        try:
            return await self._store.ask(ask)
        except StoreDownError as error:
            if asked:
                raise _UnheardError(str(error)) from error
            raise

    def _number(self) -> str:
        return f"{self._instance}-{next(self._ids)}"

    def _note(self, scopes: Sequence[Scope], used: Sequence[int]) -> None:
        if len(self._known) >= _KNOWN:
            self._known.clear()
        for index, scope in enumerate(scopes):
            self._known[scope.name] = (int(used[2 * index]), int(used[2 * index + 1]))

    def _pop(self, scopes: Sequence[Scope], tokens: int) -> str:
        ids = self._open.get((_names(scopes), tokens))
        if not ids:
            return ""
        number = ids.pop()
        if not ids:
            del self._open[(_names(scopes), tokens)]
        return number


def _names(scopes: Sequence[Scope]) -> tuple[str, ...]:
    return tuple(scope.name for scope in scopes)


def _limit(scope: Scope, what: What) -> int:
    rates = scope.rates
    return {"requests": rates.rpm, "tokens": rates.tpm, "concurrency": rates.concurrency}[what] or 0


def _bound(limit: int | None) -> int:
    return -1 if limit is None else limit


def _share(rates: Rates, replicas: int) -> Rates:
    shares = (None if limit is None else limit // replicas for limit in (rates.rpm, rates.tpm, rates.concurrency))
    return Rates(*shares)
