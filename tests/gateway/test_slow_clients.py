"""Clients that hardly send or hardly read hold nothing for long."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gateway_site import Client, Serve, forget_environment, gauges, until
from passing_upstream import KEY, SOUND, PassingUpstream, before, passing_upstream

from headgate.gateway.edge.slow_bodies import Arriving
from headgate.gateway.edge.stalled_clients import Sending

CHAT = b'{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}'


@asynccontextmanager
async def connected(port: int | None) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that reads nothing by itself: 64 KiB at most."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PassingUpstream]:
    """An upstream whose sound has no end."""
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)

    async def endless(request: Any) -> Any:
        response = web.StreamResponse(headers={"Content-Type": "audio/mpeg"})
        await response.prepare(request)
        while True:
            await response.write(SOUND)

    async with passing_upstream() as running:
        running.script = endless
        yield running


@pytest.mark.parametrize(
    ("total_s", "send_s"),
    [
        pytest.param(1.0, 60, id="longer than the whole answer may take"),
        pytest.param(
            600,
            0.5,
            id="for long",
            marks=pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux ends it"),
        ),
    ],
)
async def test_a_client_that_reads_nothing_is_left(fake: PassingUpstream, total_s: float, send_s: float) -> None:
    async with (
        before(fake, {"timeouts": {"total_s": total_s}}, server={"send_s": send_s}) as client,
        connected(client.server.port) as (_, writer),
    ):
        body = b'{"model": "other", "input": "x"}'
        head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await until(client, lambda g: g.get("code 499", 0) == 1)
        assert (await gauges(client))["headgate_requests_in_flight"] == 0
        await fake.left.wait()


class Reader:
    """A connection that always has more to send, and its socket; its client takes a byte a look until it stops."""

    def __init__(self, looks: int) -> None:
        self._socket = socket.socket()
        self.looks, self.taken = looks, 0
        self.left = asyncio.Event()

    def get_extra_info(self, _name: str) -> Any:
        return self

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockopt(self, *_: int) -> bytes:
        self.taken = min(self.taken + 1, self.looks)
        return bytes(120) + self.taken.to_bytes(8, sys.byteorder)

    def get_write_buffer_size(self) -> int:
        return 1

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self._socket.close()
        self.left.set()


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux tells what was taken")
async def test_a_client_that_reads_little_but_reads_is_waited_for() -> None:
    slow: Any = Reader(looks=40)
    Sending(0.01).watch(slow)
    async with asyncio.timeout(20):
        await slow.left.wait()
    assert slow.taken == 40, "ten times as long as who takes nothing"


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/chat/completions", "application/json"), ("/v1/files", "multipart/form-data; boundary=x")]
)
async def test_a_body_that_hardly_comes_is_not_waited_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, kind: str
) -> None:
    for place in ("middleware", "api.files"):
        monkeypatch.setattr(f"headgate.gateway.{place}.Arriving", partial(Arriving, 0.05, 1e6))
    client = await serve(storage={"folder": str(tmp_path)})
    status, told = await sent(client, path, kind, b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nabc')
    assert status == 408
    assert told["error"]["code"] == "body_too_slow"
    assert "Expected at least 1e+06 bytes a second after 0.05 s" in told["error"]["message"]


async def sent(client: Client, path: str, kind: str, beginning: bytes) -> tuple[int, Any]:
    """The reply to a request whose body does not go on. The connection is closed behind it."""
    async with connected(client.server.port) as (reader, writer), asyncio.timeout(20):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
        writer.write(head.encode() + beginning)
        said = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(said.partition("content-length: ")[2].partition("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        with suppress(ConnectionResetError):
            assert "connection: close" in said
        return int(said.split()[1]), body


async def test_a_body_that_comes_slowly_but_comes_is_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.gateway.middleware.Arriving", partial(Arriving, 5.0, 1e3))
    client = await serve()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(CHAT), 7):
            yield CHAT[at : at + 7]
            await asyncio.sleep(0)

    reply = await client.post("/v1/chat/completions", data=pieces(), headers={"Content-Type": "application/json"})
    assert reply.status == 200
