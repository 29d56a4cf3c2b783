"""One attempt at a request that is passed on, and its answer: in one piece, or as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headgate.gateway.upstream.connections import Connections
from headgate.gateway.upstream.endpoints import EVENTS, JSON, Endpoint
from headgate.gateway.upstream.events import EventTooLong
from headgate.gateway.upstream.failures import Failure, of_event
from headgate.gateway.upstream.passthrough_answer import Events, Metered
from headgate.gateway.upstream.post import Asking, Post, silent

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Attempt

MAX_WHOLE_BYTES = 128 * 1024 * 1024
"""Longest answer that is passed on when it is whole: thousands of vectors, or some pictures."""


class Reply(Post):
    """An attempt: begun once, then read to its end or closed."""

    def __init__(
        self,
        connections: Connections,
        asking: Asking,
        hide: Callable[[str], str],
        *,
        fresh: bool,
        span: Attempt | None = None,
    ) -> None:
        """As of `Post`."""
        super().__init__(connections, asking, hide, fresh=fresh, span=span)
        self.kind = ""
        """The content type, as it was sent."""
        self.length: int | None = None
        """Bytes of an answer that comes as it is made, where it says how many."""
        self.whole: bytes | None = None
        """All of an answer that is passed on in one piece."""
        self.metered = Metered()
        """What the answer says that it took, as far as it has come."""
        self._events: Events | None = None
        self._first = b""
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether all of it has come."""
        return self._over

    async def begin(self, endpoint: Endpoint, *, streams: bool) -> None:
        """Send the request and wait for the first of the answer, or all of it. Failure where there is none."""
        try:
            await self._begin(endpoint, streams=streams)
        except Failure as failure:
            self._failure = failure.kind
            raise
        if self._span is not None:
            self._span.heard()

    async def more(self) -> bytes:
        """The next bytes of an answer that is not `whole`; none at its end. Failure where it ends before."""
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            data = await self._next(time.monotonic() + self._asking.timeouts.stall_s)
        except Failure as failure:
            self._failure = failure.kind
            raise
        except TimeoutError:
            self._failure = "stalled"
            raise silent() from None
        if self._span is not None and data:
            self._span.heard()
        return data

    async def _begin(self, endpoint: Endpoint, *, streams: bool) -> None:
        self.sent_at = time.monotonic()
        timeouts, deadline = self._asking.timeouts, self._asking.deadline
        head_s = timeouts.total_s if endpoint.late and not streams else min(timeouts.attempt_s, timeouts.first_token_s)
        connection = await self._head(min(self.sent_at + head_s, deadline))
        self.kind = connection.headers.get("content-type", "")
        kind = self.kind.partition(";")[0].strip().lower()
        if (encoding := connection.headers.get("content-encoding", "identity")) != "identity":
            raise Failure("broken", f"answered in the encoding '{encoding[:80]}', which it was not to use.")
        if not endpoint.takes(kind):
            raise Failure("broken", f"answered with content of the type '{kind[:80]}'.")
        if kind == EVENTS:
            self._events = Events(self.metered)
        elif kind == JSON or kind.startswith("text/"):
            self.whole = await self._all(kind)
            self._over = True
            return
        elif length := connection.headers.get("content-length"):
            self.length = int(length)
        try:
            self._first = await self._next(deadline if endpoint.late else self.sent_at + timeouts.first_token_s)
        except TimeoutError:
            raise Failure("timeout", "did not begin to answer in time.") from None

    async def _all(self, kind: str) -> bytes:
        """An answer that comes in one piece. Failure where it is too long, cut, late or tells an error."""
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self._read(self._due(time.monotonic() + self._asking.timeouts.stall_s)):
                parts.append(data)
                size += len(data)
                if size > MAX_WHOLE_BYTES:
                    raise Failure("broken", f"sent more than {MAX_WHOLE_BYTES} bytes.")
        except TimeoutError:
            raise silent() from None
        body = b"".join(parts)
        if kind == JSON:
            try:
                error = self.metered.read(body)
            except msgspec.ValidationError:
                error = None  # a text, as some transcribers answer with
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as found:
                raise Failure("broken", f"sent what cannot be read: {self._hide(str(found))}.") from None
            if error is not None:
                raise of_event(error, self._hide)
        return body

    async def _next(self, due: float) -> bytes:
        """Bytes that can be passed on; none at the end. TimeoutError where none come."""
        due = self._due(due)
        while data := await self._read(due):
            try:
                data = data if self._events is None else self._events.feed(data)
            except EventTooLong as error:
                raise Failure("broken", f"sent what cannot be read: {error}.") from None
            self._check()
            if data:
                return data
        left = b"" if self._events is None or self._over else self._events.end()
        self._check()
        self._over = True
        return left

    def _check(self) -> None:
        """Failure where an event tells an error, which may name secrets, too."""
        if self._events is not None and self._events.error is not None:
            raise of_event(self._events.error, self._hide)

    def _due(self, due: float) -> float:
        return min(due, self._asking.deadline)
