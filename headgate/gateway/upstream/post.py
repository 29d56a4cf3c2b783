"""One HTTP request to an upstream and the bytes of its reply, with a bound on every wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from yarl import URL

from headgate import __version__
from headgate.gateway.upstream.connection import Connection, NotHttpError
from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.failures import Failure, of_reply
from headgate.gateway.upstream.sections import UpstreamTimeoutsSection

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Attempt

_ERROR_BYTES = 64 * 1024
_ERROR_S = 2.0
_DRAIN_S = 0.05
"""How long the end of the body is waited for behind the end of the answer: without it the connection is closed."""


class Asking(msgspec.Struct, frozen=True):
    """What is sent, and how long may be waited."""

    head: bytes
    """The request's line and headers, but for its length and the empty line."""
    body: bytes
    timeouts: UpstreamTimeoutsSection
    deadline: float
    """When the whole answer must be there, in monotonic seconds."""
    rest: tuple[bytes | memoryview, ...] = ()
    """What is sent behind the body: what is long is not copied to be sent."""


def head_of(method: str, url: URL, headers: Mapping[str, str]) -> bytes:
    """The line of a request, and its headers: these, and where they do not name it, who asks."""
    line = f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
    asker = {} if "user-agent" in map(str.lower, headers) else {"User-Agent": f"headgate/{__version__}"}
    return line.encode() + lines_of({**headers, "Accept": "*/*", **asker})


def lines_of(headers: Mapping[str, str]) -> bytes:
    """Headers on the wire. Their values hold no line breaks."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()


class Post:
    """A request that is sent once, and whose reply is read to its end or closed."""

    def __init__(
        self,
        connections: Connections,
        asking: Asking,
        hide: Callable[[str], str],
        *,
        fresh: bool,
        span: Attempt | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            connections: to send it by.
            asking: the request.
            hide: takes the secrets out of what the upstream says of an error.
            fresh: whether a kept connection is not good enough.
            span: told of its pieces and its end; None where no spans are made.
        """
        self._connections = connections
        self._hide = hide
        self._fresh = fresh
        self._span = span
        self._failure = "cancelled"
        self._asking = asking
        self._connection: Connection | None = None
        self.sent_at = 0.0

    def stop(self) -> None:
        """Close the connection: what has not come by now is cut off for who reads it."""
        if self._connection is not None:
            self._connection.close()

    def end(self, *, whole: bool) -> None:
        """Give the connection back where the reply was read to its end; else close it, which ends the work there."""
        if self._span is not None:
            self._span.end(None if whole else self._failure)
            self._span = None
        if self._connection is not None:
            self._connections.give_back(self._connection)
            self._connection = None

    async def _head(self, limit: float) -> Connection:
        """The connection that a reply with status 200 comes by, by `limit` in monotonic seconds."""
        try:
            connection = await self._sent(limit)
        except TimeoutError:
            raise Failure("timeout", "did not reply in time.") from None
        except NotHttpError as error:
            raise Failure("broken", f"replied with what is not HTTP: {error}.") from None
        except ConnectionError:
            raise Failure("unreachable", "closed the connection without a reply.") from None
        if connection.status != 200:
            raise await self._refusal(connection)
        return connection

    async def _sent(self, limit: float) -> Connection:
        asking = self._asking
        length = len(asking.body) + sum(map(len, asking.rest)) if asking.rest else len(asking.body)
        request = b"%bContent-Length: %d\r\n\r\n%b" % (asking.head, length, asking.body)
        kept = None if self._fresh else self._connections.kept()
        if kept is not None:
            self._connection = kept
            kept.send(request, asking.rest)
            try:
                await kept.head(limit)
                return kept
            except ConnectionError:
                if kept.heard:
                    raise
                # Nobody says that a kept connection is closed at the other end until something is sent.
                kept.close()
        connection = self._connection = await self._opened(limit)
        connection.send(request, asking.rest)
        await connection.head(limit)
        return connection

    async def _opened(self, limit: float) -> Connection:
        left_s, connect_s = limit - time.monotonic(), self._asking.timeouts.connect_s
        try:
            return await self._connections.open(min(left_s, connect_s))
        except TimeoutError:
            if left_s < connect_s:
                raise
            raise Failure("unreachable", "could not be reached in time.") from None
        except OSError as error:
            raise Failure("unreachable", "could not be reached.", cause=str(error) or type(error).__name__) from None

    async def _refusal(self, connection: Connection) -> Failure:
        try:
            body = await self._body(_ERROR_BYTES, min(time.monotonic() + _ERROR_S, self._asking.deadline))
        except Failure:
            body = b""
        return of_reply(connection.status, connection.headers, body, self._hide, time.time())

    async def _body(self, most: int, due: float) -> bytes:
        """The whole body. Failure where it is longer, late or cut."""
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self._read(due):
                parts.append(data)
                size += len(data)
                if size > most:
                    raise Failure("broken", f"sent more than {most} bytes.")
        except TimeoutError:
            raise silent() from None
        return b"".join(parts)

    async def _read(self, due: float) -> bytes:
        """The next bytes; none at the end."""
        assert self._connection is not None, "it has begun"
        try:
            return await self._connection.read(due)
        except NotHttpError as error:
            raise Failure("broken", f"went on with what is not HTTP: {error}.") from None
        except ConnectionError:
            raise Failure("cut", "closed the connection before its answer was whole.") from None

    async def _drain(self) -> None:
        """Read the end of the body, so that the connection can be used again."""
        connection = self._connection
        if connection is None or connection.ended:
            return
        due = time.monotonic() + _DRAIN_S
        # What goes wrong now harms nobody: the connection is closed.
        with suppress(TimeoutError, NotHttpError, ConnectionError):
            while await connection.read(due):
                pass


def silent() -> Failure:
    """Between two pieces nothing came for too long."""
    return Failure("stalled", "fell silent before its answer was whole.")
