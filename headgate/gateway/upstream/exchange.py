"""One HTTP request to an upstream and its answer, with a bound on every wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from headgate.gateway.request import Chunk
from headgate.gateway.upstream.answer import AnswerReader
from headgate.gateway.upstream.failures import Failure, of_reply
from headgate.gateway.upstream.sections import UpstreamTimeoutsSection

if TYPE_CHECKING:
    from headgate.gateway.telemetry.otel import Attempt

logger = logging.getLogger("headgate.gateway")

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Longest answer that does not come as a stream."""
_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError)
_ERROR_BYTES = 64 * 1024
_ERROR_S = 2.0
_ACCOUNT_S = 2.0
"""How long the account is waited for behind the end of the answer."""
_DRAIN_S = 0.05
"""How long the end of the body is waited for behind the end of the answer: without it the connection is closed."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What is sent, and how long may be waited."""

    url: URL
    headers: Mapping[str, str]
    body: bytes
    timeouts: UpstreamTimeoutsSection
    connect: aiohttp.ClientTimeout
    deadline: float
    """When the whole answer must be there, in the loop's time."""


@dataclass(frozen=True, slots=True)
class Connections:
    """To upstreams."""

    kept: aiohttp.ClientSession
    """Used again and again."""
    fresh: aiohttp.ClientSession
    """One for each request, closed behind it."""


class Exchange:
    """An attempt: begun once, then read to its end or closed."""

    def __init__(
        self,
        connections: Connections,
        asking: Asking,
        reader: AnswerReader,
        *,
        fresh: bool,
        span: Attempt | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            connections: to send it by.
            asking: the request.
            reader: of its answer.
            fresh: whether a kept connection is not good enough.
            span: told of its pieces and its end; None where no spans are made.
        """
        self._connections = connections
        self._fresh = fresh
        self._span = span
        self._failure = "cancelled"
        self._asking = asking
        self._loop = asyncio.get_running_loop()
        self._response: aiohttp.ClientResponse | None = None
        self._over = False
        """Whether the bytes have ended and the reader knows."""
        self.reader = reader
        self.sent_at = 0.0
        self.first: list[Chunk] = []
        """The first chunks, once it has begun."""
        self.first_s = 0.0
        """Seconds until they came."""

    async def begin(self) -> None:
        """Send the request and wait for the first of the answer. Failure where there is none."""
        try:
            await self._begin()
        except Failure as failure:
            self._failure = failure.kind
            raise
        if self._span is not None:
            self._span.heard()

    async def more(self) -> list[Chunk]:
        """The next chunks; none at the end of a whole answer. Failure where it ends before."""
        try:
            chunks = await self._more()
        except Failure as failure:
            self._failure = failure.kind
            raise
        if self._span is not None and chunks:
            self._span.heard()
        return chunks

    async def _begin(self) -> None:
        self.sent_at = self._loop.time()
        timeouts = self._asking.timeouts
        response = await self._head()
        if response.content_type == "text/event-stream":
            due = min(self.sent_at + timeouts.first_token_s, self._asking.deadline)
            while not self.first and not self.reader.whole:
                self.first = await self._pull(due, Failure("timeout", "did not begin to answer in time."))
        elif response.content_type == "application/json":
            # Some servers do not stream, whatever they are asked.
            self.first = self.reader.body(await self._body(response, MAX_BODY_BYTES, self._asking.deadline))
        else:
            raise Failure("broken", f"answered with content of the type '{response.content_type[:80]}'.")
        self.first_s = self._loop.time() - self.sent_at

    async def _more(self) -> list[Chunk]:
        reader = self.reader
        while not (reader.whole and (reader.done or reader.usage is not None)):
            stall_s = self._asking.timeouts.stall_s
            if reader.whole:
                stall_s = min(stall_s, _ACCOUNT_S)
            due = min(self._loop.time() + stall_s, self._asking.deadline)
            try:
                chunks = await self._pull(due, Failure("stalled", "fell silent before its answer was whole."))
            except Failure:
                if reader.whole:
                    break  # only the account is missing
                raise
            if chunks:
                return chunks
            if self._over:
                break
        await self._drain()
        return []

    def close(self) -> None:
        """Give the connection back where the answer was read to its end; else close it, which ends the work there."""
        if self._span is not None:
            self._span.end(None if self.reader.whole else self._failure)
            self._span = None
        if self._response is not None:
            if self._ended:
                self._response.release()
            else:
                self._response.close()

    @property
    def _ended(self) -> bool:
        return self._response is None or self._response.content.is_eof()

    async def _head(self) -> aiohttp.ClientResponse:
        asking = self._asking
        limit = min(self.sent_at + min(asking.timeouts.attempt_s, asking.timeouts.first_token_s), asking.deadline)
        try:
            async with asyncio.timeout_at(limit):
                self._response = response = await self._sent()
        except aiohttp.ConnectionTimeoutError:
            raise Failure("unreachable", "could not be reached in time.") from None
        except TimeoutError:
            raise Failure("timeout", "did not reply in time.") from None
        except aiohttp.ClientConnectorError:
            raise Failure("unreachable", "could not be reached.") from None
        except _LOST:
            raise Failure("unreachable", "closed the connection without a reply.") from None
        except aiohttp.ClientError as error:
            raise Failure("broken", f"replied with what is not HTTP: {type(error).__name__}.") from None
        if response.status != 200:
            raise await self._refusal(response)
        return response

    async def _sent(self) -> aiohttp.ClientResponse:
        if not self._fresh:
            try:
                return await self._post(self._connections.kept)
            except aiohttp.ClientConnectorError:
                raise
            except _LOST:
                # Nobody says that a kept connection is closed at the other end until something is sent.
                pass
        return await self._post(self._connections.fresh)

    async def _post(self, session: aiohttp.ClientSession) -> aiohttp.ClientResponse:
        asking = self._asking
        return await session.post(
            asking.url, data=asking.body, headers=asking.headers, allow_redirects=False, timeout=asking.connect
        )

    async def _refusal(self, response: aiohttp.ClientResponse) -> Failure:
        try:
            body = await self._body(response, _ERROR_BYTES, min(self._loop.time() + _ERROR_S, self._asking.deadline))
        except Failure:
            body = b""
        return of_reply(response.status, response.headers, body, self.reader.hide, time.time())

    async def _body(self, response: aiohttp.ClientResponse, most: int, due: float) -> bytes:
        """The whole body. Failure where it is longer, late or cut."""
        parts: list[bytes] = []
        size = 0
        while data := await self._read(response, due, Failure("stalled", "fell silent before its answer was whole.")):
            parts.append(data)
            size += len(data)
            if size > most:
                raise Failure("broken", f"sent more than {most} bytes.")
        return b"".join(parts)

    async def _pull(self, due: float, late: Failure) -> list[Chunk]:
        """The chunks in the bytes that come next, of which there may be none."""
        assert self._response is not None, "it has begun"
        data = await self._read(self._response, due, late)
        if data:
            return self.reader.feed(data)
        self._over = True
        return self.reader.end()

    async def _read(self, response: aiohttp.ClientResponse, due: float, late: Failure) -> bytes:
        """The next bytes; none at the end."""
        content = response.content
        try:
            if data := content.read_nowait():
                return data
            async with asyncio.timeout_at(due):
                return await content.readany()
        except TimeoutError:
            raise late from None
        except (aiohttp.ClientError, ConnectionError):
            raise Failure("cut", "closed the connection before its answer was whole.") from None

    async def _drain(self) -> None:
        """Read the end of the body, so that the connection can be used again."""
        if self._ended or self._response is None:
            return
        try:
            async with asyncio.timeout(_DRAIN_S):
                while await self._response.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, ConnectionError):
            return
