"""Whole replies: what is written at once is what aiohttp would write, and connections that end get theirs too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.gateway import keys
from headgate.gateway.api.direct import whole_reply
from headgate.gateway.middleware import on_prepare
from headgate.gateway.telemetry.record import RequestRecord

BODY = '{"text": "ä"}'.encode()
Ask = Callable[..., Awaitable[bytes]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Sends a text to a server that answers each POST with the same, and gives all that it writes until it closes."""
    own: dict[str, str] = {}

    async def handle(http: web.Request) -> web.StreamResponse:
        await http.read()
        http[keys.RECORD] = RequestRecord("id", "/v1/chat/completions", config="c", team="red")
        return whole_reply(http, BODY, own)

    app = web.Application()
    app.on_response_prepare.append(on_prepare)
    app.router.add_post("/", handle)
    async with TestServer(app) as server:

        async def send(text: str, headers: Mapping[str, str]) -> bytes:
            own.clear()
            own.update(headers)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(text.replace("\n", "\r\n").encode())
            said = await reader.read()
            writer.close()
            return said

        yield send


def parsed(reply: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = reply.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    named = dict(line.split(": ", 1) for line in lines)
    # How long it took is another each time, and only one of the two says that it closes.
    return status, {n: v for n, v in named.items() if n not in ("Date", "openai-processing-ms", "Connection")}, body


async def test_a_reply_is_the_same_whether_its_connection_stays_open_or_not(ask: Ask) -> None:
    own = {"x-headgate-cache": "exact", "age": "1"}
    stays, closes = "POST / HTTP/1.1\nHost: a\n\n", "POST / HTTP/1.1\nHost: a\nConnection: close\n\n"
    said = await ask(stays + closes, own)
    first, last = said[: said.index(BODY) + len(BODY)], said[said.index(BODY) + len(BODY) :]
    assert parsed(first) == parsed(last)
    assert b"Date: " in first
    status, headers, body = parsed(first)
    assert (status, body) == ("HTTP/1.1 200 OK", BODY)
    assert headers.items() >= {**own, "Content-Length": str(len(BODY)), "x-request-id": "id"}.items()
    old = await ask("POST / HTTP/1.0\nHost: a\n\n", own)
    assert parsed(old) == ("HTTP/1.0 200 OK", headers, BODY)


async def test_a_line_break_makes_no_second_header(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    said = await ask("POST / HTTP/1.1\nHost: a\n\n", {"x-headgate-model": "m\r\nset-cookie: a=b"})
    assert said == b""
    assert "line break" in caplog.text
