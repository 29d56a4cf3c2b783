"""Replies that are sent as they are made: each write is a chunk, and only the end is the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.gateway import keys
from headgate.gateway.api.direct import chunked_reply
from headgate.gateway.telemetry.record import RequestRecord

PARTS = ("data: ä\n\n".encode(), b"", b"data: b\n\n")
END = b"data: [DONE]\n\n"


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def handle(http: web.Request) -> web.StreamResponse:
        http[keys.RECORD] = RequestRecord("id", "/v1/chat/completions", config="c", team="red")
        reply = chunked_reply(http, {"Content-Type": "text/event-stream"})
        reply.headers["x-late"] = "known with the first text"
        await reply.prepare(http)
        for part in PARTS:
            await reply.write(part)
        await reply.write_eof(END)
        return reply

    app = web.Application()
    app.router.add_get("/", handle)
    found = TestServer(app)
    await found.start_server(access_log=None)  # as the gateway runs, which has its own
    yield found
    await found.close()


async def said(server: TestServer, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(text)
    async with asyncio.timeout(10):
        found = await reader.read()
    writer.close()
    return found


async def test_each_text_is_a_chunk_and_an_empty_one_ends_nothing(server: TestServer) -> None:
    ask = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*PARTS, END) if part) + b"0\r\n\r\n"
    first, second, rest = (await said(server, ask)).split(body)
    assert rest == b""
    for head in (first, second):
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"x-late: known with the first text\r\n" in head
    assert (b"Connection: close" in first, b"Connection: close" in second) == (False, True)


async def test_older_clients_get_the_texts_until_the_connection_ends(server: TestServer) -> None:
    head, _, body = (await said(server, b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")).partition(b"\r\n\r\n")
    assert body == b"".join(PARTS) + END
    assert b"Transfer-Encoding" not in head
