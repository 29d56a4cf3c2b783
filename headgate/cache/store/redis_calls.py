"""Calls to a Redis server that may go away at any moment: how long they wait, and when nobody asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError

from headgate.cache.store.base import StoreDownError

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 1.0
"""How long a server that failed is left alone."""
_CONNECTIONS = 16
_BYTES_S = 4 * 1024 * 1024
"""That a connection carries in a second, at least."""
_REPLICA_S = 60.0
"""How long the log hears nothing more of a server that answers reads and refuses writes."""


class RedisCalls:
    """What a server is asked. All calls come from one event loop.

    The server has `timeout_s` to answer a call, and a call waits as long for a free connection. After a failure the
    server is left alone for `PAUSE_S`; then one call tries again while the others still fail at once. The log tells
    when an outage begins and when it ends. A replica has one of each a second, for it answers who reads: of these the
    log hears once a minute.
    """

    def __init__(
        self,
        client: Redis,
        address: str,
        timeout_s: float,
        monotonic: Callable[[], float],
        changed: Callable[[str | None], None] | None,
    ) -> None:
        """Calls by `client`. The others are as `RedisStore` takes them."""
        self._client = client
        self._address = address
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._changed = changed or (lambda _: None)
        self._turns = asyncio.Semaphore(_CONNECTIONS)
        self._down = False
        self._outages = 0
        """Those that are over."""
        self._retry_at = 0.0
        self._told = False
        """The log has heard of the outage."""
        self._replica_until: float | None = None
        """Until when it hears of no other refused write."""

    async def ping(self) -> str | None:
        """None where the server answers, else why not. Neither the log nor `changed` hears of it."""
        try:
            await self._within(self._timeout_s, self._client.ping)
        except Exception as error:
            self._down = True
            self._retry_at = self._monotonic() + PAUSE_S
            return _reason(error)
        self._down = False
        return None

    async def ask(self, command: Callable[[], Awaitable[T]], timeout_s: float | None = None, *, carries: int = 0) -> T:
        """Give the server a command of the client, unless it failed a moment ago; its answer.

        Args:
            command: gives the command.
            timeout_s: seconds it has; None: as every call.
            carries: bytes that go there or back, for which it has longer: megabytes take their time.

        Raises:
            StoreDownError: the server does not answer, or not this.
        """
        self._refuse_in_pause()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            # No fault of the server's: this process asks more than its connections carry.
            raise StoreDownError(f"{self._address}: no connection was free in time") from None
        try:
            self._refuse_in_pause()
            trial, outages = self._down, self._outages
            if trial:
                # This call tries; others that come meanwhile need not wait for it to fail.
                self._retry_at = self._monotonic() + PAUSE_S
            try:
                result = await self._within((timeout_s or self._timeout_s) + carries / _BYTES_S, command)
            except Exception as error:
                # Not where the call began before an outage that is over.
                if outages == self._outages:
                    self._fail(error)
                if isinstance(error, ReadOnlyError):
                    await self._leave_replica()
                raise StoreDownError(f"{self._address}: {_reason(error)}") from error
        finally:
            self._turns.release()
        # Not after a call that began before the failure: it says nothing of the time since.
        if trial and self._down:
            self._down = False
            self._outages += 1
            if self._told:
                logger.warning("%s answers again", self._address)
            self._changed(None)
        return result

    def _refuse_in_pause(self) -> None:
        if self._down and self._monotonic() < self._retry_at:
            raise StoreDownError(f"{self._address} did not answer a moment ago")

    def _fail(self, error: Exception) -> None:
        now = self._monotonic()
        self._retry_at = now + PAUSE_S
        if self._down:
            return
        self._down = self._told = True
        if isinstance(error, ReadOnlyError):
            self._told = self._replica_until is None or now >= self._replica_until
            if self._told:
                self._replica_until = now + _REPLICA_S
        if self._told:
            logger.warning("%s is left alone until it answers: %s", self._address, _reason(error))
        self._changed(_reason(error))

    async def _leave_replica(self) -> None:
        """Connect anew: after a failover the name leads to another server, and what is connected stays connected."""
        with suppress(Exception):
            await self._client.connection_pool.disconnect(inuse_connections=False)

    async def _within(self, timeout_s: float, command: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await command()
        except TimeoutError:
            raise StoreDownError(f"no answer within {timeout_s * 1000:.0f} ms") from None


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
