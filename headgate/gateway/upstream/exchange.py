"""A chat at an upstream: one request and its answer, read as it comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.gateway.road.request import Chunk
from headgate.gateway.upstream.answer import AnswerReader
from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.failures import Failure
from headgate.gateway.upstream.post import Asking, Post, silent

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Attempt

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Longest answer that does not come as a stream."""
_ACCOUNT_S = 2.0
"""How long the account is waited for behind the end of the answer."""


class Exchange(Post):
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
        super().__init__(connections, asking, reader.hide, fresh=fresh, span=span)
        self._over = False
        """Whether the bytes have ended and the reader knows."""
        self.reader = reader
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
        self.sent_at = time.monotonic()
        timeouts = self._asking.timeouts
        limit = min(self.sent_at + min(timeouts.attempt_s, timeouts.first_token_s), self._asking.deadline)
        connection = await self._head(limit)
        kind = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
        if (encoding := connection.headers.get("content-encoding", "identity")) != "identity":
            raise Failure("broken", f"answered in the encoding '{encoding[:80]}', which it was not to use.")
        if kind == "text/event-stream":
            due = min(self.sent_at + timeouts.first_token_s, self._asking.deadline)
            try:
                while not self.first and not self.reader.whole:
                    self.first = await self._pull(due)
            except TimeoutError:
                raise Failure("timeout", "did not begin to answer in time.") from None
        elif kind == "application/json":
            # Some servers do not stream, whatever they are asked.
            self.first = self.reader.body(await self._body(MAX_BODY_BYTES, self._asking.deadline))
        else:
            raise Failure("broken", f"answered with content of the type '{kind[:80]}'.")
        self.first_s = time.monotonic() - self.sent_at

    async def _more(self) -> list[Chunk]:
        reader = self.reader
        while not (reader.whole and (reader.done or reader.usage is not None)):
            stall_s = self._asking.timeouts.stall_s
            if reader.whole:
                stall_s = min(stall_s, _ACCOUNT_S)
            try:
                chunks = await self._pull(min(time.monotonic() + stall_s, self._asking.deadline))
            except (Failure, TimeoutError) as error:
                if reader.whole:
                    break  # only the account is missing
                raise silent() if isinstance(error, TimeoutError) else error from None
            if chunks:
                return chunks
            if self._over:
                break
        await self._drain()
        return []

    def close(self) -> None:
        """Give the connection back where the answer was read to its end; else close it, which ends the work there."""
        self.end(whole=self.reader.whole)

    async def _pull(self, due: float) -> list[Chunk]:
        """The chunks in the bytes that come next, of which there may be none. TimeoutError where no bytes come."""
        if data := await self._read(due):
            return self.reader.feed(data)
        self._over = True
        return self.reader.end()
