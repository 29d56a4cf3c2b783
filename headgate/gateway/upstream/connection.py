"""One connection to a server: HTTP/1.1, one request after the other.

A client of our own because passing on is the hot path of a gateway: a whole HTTP client takes for one request several
times what reading the reply does. It knows what upstreams need and no more: POST and GET with a body that is there,
replies of any length, nothing decoded, nothing followed. `httptools` reads the replies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import cast

import httptools

MAX_HEAD_BYTES = 64 * 1024
"""Of a reply. Its first piece may be as long as one read of the socket beyond that."""
_AHEAD_BYTES = 128 * 1024
"""What is read before anybody asks for it."""


class NotHttpError(Exception):
    """The server replied with what is no reply."""


class Connection(asyncio.Protocol):
    """To one server. It belongs to one request at a time, whose waits all have a bound."""

    def __init__(self) -> None:
        """Not connected yet: an event loop's `create_connection` does that."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = self._new_parser()
        self._lost: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._fires = 0.0
        self._reset(asked=False)
        self.idle_since = 0.0
        """When it was given back, in monotonic seconds."""

    def _reset(self, *, asked: bool) -> None:
        self._asked = asked
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self._paused = False
        self._begun = False
        self._ends_with_connection = False
        self._keeps = True
        self.status = 0
        self.ended = False
        """Whether all of the reply was received, though maybe not yet read."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Of the reply, by their names in small letters. Of several with one name, the last."""
        return self._headers

    @property
    def heard(self) -> bool:
        """Whether anything of a reply has come."""
        return self._head_bytes > 0

    @property
    def usable(self) -> bool:
        """Whether another request can be sent by it. Not where the last reply is held unread: it would hear nothing.

        Nor where the server replied before it had read the last request: it may never read on.
        """
        free = self._lost is None and self._keeps and not self._paused and (self.ended or not self._asked)
        return free and not self._unsent

    def send(self, request: bytes, rest: Sequence[bytes | memoryview] = ()) -> None:
        """Send a request, head and body, and the `rest` of the body. The reply is read before the next."""
        assert self._transport is not None, "it is connected"
        self._reset(asked=True)
        if self._lost is None:
            self._transport.write(request)
            for part in rest:
                self._transport.write(part)

    async def head(self, due: float) -> None:
        """Until the reply's status and headers are there.

        Raises:
            TimeoutError: they are not by `due`, in monotonic seconds: the loop's time, and asking for it takes less.
            NotHttpError: something else is.
            ConnectionError: the server closed before.
        """
        while not self.status:
            await self._wait(due)

    async def read(self, due: float) -> bytes:
        """The next bytes of the reply's body, all that there are; none at its end. Raises as `head` does."""
        while not self._parts:
            if self.ended:
                return b""
            await self._wait(due)
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._held_bytes = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """End it, and what the server does for the request that it was sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            # A server that reads no more would keep a polite end waiting.
            over = (self.ended or not self._asked) and not self._unsent
            self._transport.close() if over else self._transport.abort()
        if self._lost is None:
            self._lost = ConnectionAbortedError("closed here")

    @property
    def _unsent(self) -> bool:
        """Whether some of the request is still to be sent."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    async def _wait(self, due: float) -> None:
        """Until something was received. One timer looks after all waits, and looks at the clock when it fires."""
        if self._lost is not None:
            raise self._lost
        self._due = due
        if self._timer is None or due < self._fires:
            self._look_at(due)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if time.monotonic() < self._due:
            self._look_at(self._due)
        else:
            self._waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        """Nothing more comes of it; what was received can still be read."""
        if self._lost is None:
            self._lost = error
        self._wake()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        # uvloop's transports are of no common class with asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Some of a reply."""
        if not self.status:
            self._head_bytes += len(data)
        try:
            if not self._asked or self.ended:
                raise NotHttpError("something that was not asked for")
            self._parser.feed_data(data)
            if not self.status and self._head_bytes > MAX_HEAD_BYTES:
                raise NotHttpError("a head without an end")
        except (NotHttpError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(NotHttpError(str(error)))
            if self._transport is not None:
                self._transport.abort()
        else:
            self._wake()

    def eof_received(self) -> None:
        """The server sends nothing more: the end of a body that says no length."""
        self._keeps = False
        if self._begun and self._ends_with_connection:
            self.ended = True

    def connection_lost(self, _error: Exception | None) -> None:
        """It is no more."""
        self._transport = None
        self._fail(ConnectionResetError("the server closed the connection"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What the parser calls.

    def _new_parser(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        # As browsers and other clients do, for servers that are nearly right.
        parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        return parser

    def on_message_begin(self) -> None:
        """A head begins: the reply's, or that of one behind a reply that says it is not the last."""
        if self.ended:
            raise NotHttpError("a second reply")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of it. What comes behind a body is of no use, and has no bound."""
        if not self._begun:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole. What only says that a reply will come is none."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.status = status
        self._keeps = self._parser.should_keep_alive()
        chunked = "chunked" in self._headers.get("transfer-encoding", "").lower()
        self._ends_with_connection = not chunked and "content-length" not in self._headers
        self._begun = True

    def on_body(self, data: bytes) -> None:
        """Some of the body."""
        self._parts.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _AHEAD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The reply is whole."""
        self.ended = self._begun
