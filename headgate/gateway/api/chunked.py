"""A reply that is sent as it is made, on HTTP/1.1: each write is a chunk of its body.

The first text may come long after the request, and its client has waited for it. So the head is made before, while
nobody waits for it, and goes out with the first text.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from headgate.gateway.api.head import head_of
from headgate.gateway.middleware import settled, took_ms
from headgate.gateway.wire import headers


def chunked_reply(http: web.Request, own: Mapping[str, str]) -> web.StreamResponse:
    """A reply with status 200. `own`: its headers beside those of every reply.

    Headers that are set before it is prepared are sent, too.
    """
    return _Chunked(http, own) if http.version == HttpVersion11 else _Stream(headers=own)


class _Stream(web.StreamResponse):
    # The head goes out with the first frame, which is there when it is prepared: one write instead of two.
    _send_headers_immediately = False


class _Chunked(web.StreamResponse):
    def __init__(self, http: web.Request, own: Mapping[str, str]) -> None:
        super().__init__()
        self._http = http
        transfer = {"Transfer-Encoding": "chunked", **({} if http.keep_alive else {"Connection": "close"})}
        self._head = head_of({**own, **settled(http), **transfer})
        self._prepared = self._ended = False

    @property
    def prepared(self) -> bool:
        """Whether it is being sent."""
        return self._prepared

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._http.keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """The head is settled: it goes out with what is written first."""
        self._prepared = True
        return request.writer

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a chunk, if there is something in it. ConnectionResetError where the client has left."""
        if data:  # an empty chunk is the last
            await self._send(b"".join((b"%x\r\n" % len(data), data, b"\r\n")))

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the last chunk, and that it is the last."""
        if not self._ended:
            await self._send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n")
            self._ended = True

    async def _send(self, chunk: bytes) -> None:
        transport = self._http.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        if self._head:
            late = [*self.headers.items(), (headers.PROCESSING_MS, took_ms(self._http))]
            lines = "".join([f"{name}: {value}\r\n" for name, value in late])
            chunk = b"%b%b\r\n%b" % (self._head, lines.encode(), chunk)
            self._head = b""
        transport.write(chunk)
        await self._http.writer.drain()
