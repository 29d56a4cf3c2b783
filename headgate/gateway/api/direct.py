"""Replies with status 200 that write their own head, together with the body or with the first text of a stream.

aiohttp keeps headers in a dict of lists that does not mind upper and lower case, asks whether the body is to be
compressed, chunked or cut, and only then writes them. That takes longer than making an answer from the cache does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from headgate.gateway.middleware import JSON, fields, settled, took_ms
from headgate.gateway.wire import headers


def whole_reply(http: web.Request, body: bytes, own: Mapping[str, str]) -> web.StreamResponse:
    """A reply of JSON. `own`: its headers beside those of every reply."""
    if http.version == HttpVersion11 and http.keep_alive:
        return _Whole(http, body, own)
    response = web.Response(body=body, content_type=JSON)
    response.headers.update(own)
    return response


def chunked_reply(http: web.Request, own: Mapping[str, str]) -> web.StreamResponse:
    """A reply that is sent as it is made. `own`: its headers beside those of every reply.

    Headers that are set before it is prepared are sent, too.
    """
    return _Chunked(http, own) if http.version == HttpVersion11 else _Stream(headers=own)


class _Stream(web.StreamResponse):
    # The head goes out with the first frame, which is there when it is prepared: one write instead of two.
    _send_headers_immediately = False


class _Direct(web.StreamResponse):
    """On HTTP/1.1. Nothing is written before there is something beside the head."""

    def __init__(self, http: web.Request) -> None:
        super().__init__()
        self._http = http
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

    async def _send(self, data: bytes) -> None:
        """ConnectionResetError where the client has left. Whoever reads nothing of what he gets waits here."""
        transport = self._http.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        transport.write(data)
        await self._http.writer.drain()


class _Whole(_Direct):
    """Goes out when the server asks for its end."""

    def __init__(self, http: web.Request, content: bytes, own: Mapping[str, str]) -> None:
        super().__init__(http)
        self._content = content
        self._own = own

    async def write_eof(self, data: bytes = b"") -> None:
        """Write all of it."""
        assert not data, "all of it is known already"
        if self._ended:
            return
        self._ended = True
        length = {"Content-Type": JSON, "Content-Length": str(len(self._content))}
        await self._send(b"%b\r\n%b" % (_head({**length, **self._own, **fields(self._http)}), self._content))


class _Chunked(_Direct):
    """Each write is a chunk of the body.

    The first text may come long after the request, and its client has waited for it. So the head is made before, while
    nobody waits for it.
    """

    def __init__(self, http: web.Request, own: Mapping[str, str]) -> None:
        super().__init__(http)
        transfer = {"Transfer-Encoding": "chunked", **({} if http.keep_alive else {"Connection": "close"})}
        self._head = _head({**own, **settled(http), **transfer})

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a chunk, if there is something in it."""
        if data:  # an empty chunk is the last
            await self._send(b"".join((b"%x\r\n" % len(data), data, b"\r\n")))

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the last chunk, and that it is the last."""
        if not self._ended:
            await self._send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n")
            self._ended = True

    async def _send(self, data: bytes) -> None:
        if self._head:
            late = [*self.headers.items(), (headers.PROCESSING_MS, took_ms(self._http))]
            lines = "".join([f"{name}: {value}\r\n" for name, value in late])
            data = b"%b%b\r\n%b" % (self._head, lines.encode(), data)
            self._head = b""
        await super()._send(data)


def _head(shown: Mapping[str, str]) -> bytes:
    """The line of the status, the date and these headers; the empty line is left to whoever has more of them.

    ValueError where one would become two.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in shown.items()])
    if lines.count("\n") != len(shown):
        raise ValueError("a header of the reply has a line break in it")
    return f"HTTP/1.1 200 OK\r\nDate: {_date(int(time.time()))}\r\n{lines}".encode()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
