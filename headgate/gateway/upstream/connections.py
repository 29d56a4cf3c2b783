"""The connections to one server: opened when they are needed, kept for a while when their reply was read."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque

import aiohappyeyeballs
from yarl import URL

from headgate.gateway.upstream.connection import Connection

KEPT_S = 15.0
"""How long one is kept that nobody uses."""
_NEXT_ADDRESS_S = 0.25
"""After which another address of the server is tried beside the first (RFC 8305)."""


class Connections:
    """To one server. How many there are at a time is bounded by who asks."""

    def __init__(self, base: URL, *, kept_s: float = KEPT_S) -> None:
        """None yet. `base` says scheme, host and port."""
        self._host, self._port = base.raw_host or "", base.port or 0
        self._tls = ssl.create_default_context() if base.scheme == "https" else None
        self._kept_s = kept_s
        self._kept: deque[Connection] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Those that wait for a request."""
        return len(self._kept)

    def kept(self) -> Connection | None:
        """One that was used last and is still open, as far as one can know."""
        while self._kept:
            connection = self._kept.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def open(self, timeout_s: float) -> Connection:
        """A new one.

        Raises:
            TimeoutError: there is none after so long, TLS included.
            OSError: the server cannot be reached, or is not who it should be.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            try:
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            except UnicodeError as error:
                raise OSError(f"a host that cannot be looked up: {error}") from None
            opened = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S)
            try:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                name = None if self._tls is None else self._host
                made = await loop.create_connection(Connection, sock=opened, ssl=self._tls, server_hostname=name)
            except BaseException:
                opened.close()
                raise
        return made[1]

    def give_back(self, connection: Connection) -> None:
        """Keep one whose reply was read; close one of which something is still to come."""
        if self._closed or not connection.usable:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._kept.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._kept_s, self._drop_old)

    def close(self) -> None:
        """Close those that wait; those that are used are closed when they are given back."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._kept:
            self._kept.pop().close()

    def _drop_old(self) -> None:
        self._timer, now = None, time.monotonic()
        while self._kept and (self._kept[0].idle_since + self._kept_s <= now or not self._kept[0].usable):
            self._kept.popleft().close()
        if self._kept:
            due = self._kept[0].idle_since + self._kept_s
            self._timer = asyncio.get_running_loop().call_at(due, self._drop_old)
