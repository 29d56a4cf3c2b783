"""A whole reply on a connection that stays open, head and body in one write."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from headgate.gateway.api.head import head_of
from headgate.gateway.middleware import JSON, fields


def whole_reply(http: web.Request, body: bytes, own: Mapping[str, str]) -> web.StreamResponse:
    """A reply of JSON with status 200. `own`: its headers beside those of every reply."""
    if http.version == HttpVersion11 and http.keep_alive:
        return _AtOnce(body, own)
    response = web.Response(body=body, content_type=JSON)
    response.headers.update(own)
    return response


class _AtOnce(web.StreamResponse):
    """Goes out when the server asks for its end."""

    def __init__(self, content: bytes, own: Mapping[str, str]) -> None:
        super().__init__()
        self._content = content
        self._own = own
        self._http: web.BaseRequest | None = None

    @property
    def prepared(self) -> bool:
        """Whether it is being sent."""
        return self._http is not None

    @property
    def keep_alive(self) -> bool:
        """The connection stays open."""
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Nothing is written before the end."""
        self._http = request
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Write all of it. ConnectionResetError where the client has left."""
        assert not data, "all of it is known already"
        http, self._http = self._http, None
        if http is None:
            return
        transport = http.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        assert isinstance(http, web.Request), "it is of a handler of the application"
        length = {"Content-Type": JSON, "Content-Length": str(len(self._content))}
        transport.write(b"%b\r\n%b" % (head_of({**length, **self._own, **fields(http)}), self._content))
        # Whoever asks again and again without reading what he gets waits here.
        await http.writer.drain()
