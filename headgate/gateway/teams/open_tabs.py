"""Tabs of requests that may be sent again, until somebody goes on with them or their time is over.

A tab is in one place: in this process, or, where gateways count together, in the Redis of all, so that a retry goes on
with it wherever it lands. While Redis does not answer, each gateway keeps its own and finds no others'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from headgate.cache.store.base import StoreDownError
from headgate.gateway.teams.retries import WINDOW_S, Key, Retry, check_body, reused
from headgate.gateway.teams.tabs import Tab

MOST_TABS = 4096
"""Tabs that are kept here."""


class TabPool(Protocol):
    """Where gateways keep their tabs together. Each call raises `StoreDownError` where it does not answer."""

    async def take(self, key: Key, body: bytes) -> tuple[Tab, float] | bool:
        """The latest tab of a request and for how many seconds it is open; nobody else gets it.

        Otherwise whether there is one, of another body.
        """
        ...

    async def put(self, key: Key, body: bytes, tab: Tab, seconds: float) -> None:
        """Keep a tab that is open for so long."""
        ...


class OpenTabs:
    """Of requests that were left, and of those whose answers may have been lost. Calls come from one event loop."""

    def __init__(self, window_s: float = WINDOW_S, clock: Callable[[], float] = time.monotonic) -> None:
        """A tab is open for `window_s` seconds of `clock`, a monotonic one, from when its request was left first."""
        self._window_s = window_s
        self._clock = clock
        self._pool: TabPool | None = None
        self._own: dict[Key, tuple[bytes, list[Tab]]] = {}
        self._count = 0
        self._puts: dict[Key, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        """Tabs that are kept here."""
        return self._count

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`."""
        return self._count, self._count / MOST_TABS

    @property
    def shared(self) -> bool:
        """Whether other gateways find them."""
        return self._pool is not None

    def share(self, pool: TabPool) -> None:
        """From now on keep tabs there."""
        self._pool = pool

    async def take(self, key: Key, retry: Retry) -> Tab:
        """Whose tab a request goes on: that of one like it that was left, or its own.

        A request that says that it is sent again goes on with that of one that was answered, too.
        ApiError 422 where the idempotency key was given with another body.
        """
        tab = await self._taken(key, retry)
        if tab is None and retry.again:
            tab = await self._taken(_answered(key), retry)
        return Tab() if tab is None else tab

    async def close(self, key: Key, retry: Retry) -> None:
        """The request was answered at last without anything made anew: nobody goes on with what was left of it."""
        await self._taken(key, retry)

    def leave(self, key: Key, retry: Retry, tab: Tab, *, had: bool) -> None:
        """An attempt has ended: who sends the request again in time goes on with its tab.

        `had`: its client got the answer, as far as is known; then nobody goes on with it who does not say that he tries
        again.
        """
        if not tab.used:
            return
        if tab.until is None:
            tab.until = self._clock() + self._window_s
        if had:
            key = _answered(key)
        self._keep(key, retry.body, tab)
        if self._pool is not None:
            # While something is still to be billed on it, others cannot know how much.
            tab.when_settled(partial(self._hand_over, key, retry.body, tab))

    async def settled(self) -> None:
        """Wait until other gateways can find what was left here."""
        while self._puts:
            await asyncio.wait(self._puts.values())

    async def _taken(self, key: Key, retry: Retry) -> Tab | None:
        if (put := self._puts.get(key)) is not None:
            await asyncio.wait([put])
        own = self._taken_here(key, retry)
        if own is not None or self._pool is None:
            return own
        taking = asyncio.create_task(self._taken_there(self._pool, key, retry), name="take tab")
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # It is on its way to nobody: the next attempt finds it here.
            taking.add_done_callback(partial(self._took_for_nobody, key, retry.body))
            raise

    def _taken_here(self, key: Key, retry: Retry) -> Tab | None:
        if key not in self._own:
            return None
        now, (body, tabs) = self._clock(), self._own[key]
        if not _open(tabs[-1], now):
            self._close(key)
            return None
        check_body(retry, body)
        self._count -= 1
        tab = tabs.pop()
        if not tabs:
            del self._own[key]
        return tab

    async def _taken_there(self, pool: TabPool, key: Key, retry: Retry) -> Tab | None:
        try:
            found = await pool.take(key, retry.body)
        except StoreDownError:
            return None
        if isinstance(found, bool):
            if found:
                raise reused()
            return None
        tab, seconds = found
        tab.until = self._clock() + seconds
        return tab

    def _took_for_nobody(self, key: Key, body: bytes, taking: asyncio.Task[Tab | None]) -> None:
        if not taking.cancelled() and taking.exception() is None and (tab := taking.result()) is not None:
            self._keep(key, body, tab)

    def _keep(self, key: Key, body: bytes, tab: Tab) -> None:
        now = self._clock()
        self._own.setdefault(key, (body, []))[1].append(tab)
        self._count += 1
        # The one that is kept now may be over already, and the only one.
        while self._own and (self._count > MOST_TABS or not _open(next(iter(self._own.values()))[1][-1], now)):
            self._close(next(iter(self._own)))

    def _close(self, key: Key) -> None:
        self._count -= len(self._own.pop(key)[1])

    def _hand_over(self, key: Key, body: bytes, tab: Tab) -> None:
        """Have the pool keep a tab instead, if nobody has gone on with it yet."""
        _, tabs = self._own.get(key, (b"", []))
        if self._pool is None or tab.until is None or tab not in tabs:
            return
        tabs.remove(tab)
        self._count -= 1
        if not tabs:
            del self._own[key]
        before = self._puts.get(key)
        task = asyncio.create_task(self._put(self._pool, key, body, tab, before), name="share tab")
        self._puts[key] = task
        task.add_done_callback(partial(self._put_ended, key))

    async def _put(self, pool: TabPool, key: Key, body: bytes, tab: Tab, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        assert tab.until is not None, "it was left"
        try:
            await pool.put(key, body, tab, tab.until - self._clock())
        except StoreDownError:
            self._keep(key, body, tab)

    def _put_ended(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._puts.get(key) is task:
            del self._puts[key]


def _answered(key: Key) -> Key:
    return (*key[:3], f"{key[3]} answered")


def _open(tab: Tab, now: float) -> bool:
    return tab.until is not None and tab.until > now
