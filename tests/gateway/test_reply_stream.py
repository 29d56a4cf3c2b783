"""A stream's frames: how they are grouped into writes, and what happens while nothing comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from headgate.gateway import keys
from headgate.gateway.api.reply import streamed
from headgate.gateway.middleware import failed, on_prepare
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.events import Opened
from headgate.gateway.road.request import ChatRequest, Chunk, Usage
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire import sse
from headgate.gateway.wire.completions import CompletionReply
from headgate.gateway.wire.errors import ApiError, overloaded
from headgate.gateway.wire.identity import Identity

COST = sse.comment("x-headgate-cost-usd: 0")
IDENTITY = Identity("cmpl-1", 7, "demo", "hg-abc")
REQUEST = ChatRequest("completions", "demo", prompt="x", stream=True, include_usage=True)
OUTCOME = Outcome(Usage(5, 2, 0), 0.0, 0.0)


class Said:
    """A source that says batches, and waits for `gate` before the last."""

    def __init__(self, batches: Sequence[list[Chunk]], gate: asyncio.Event | None = None) -> None:
        self._batches = list(batches)
        self._gate = gate
        self.opened = Opened("miss", "", "demo", "hg-abc", "id")
        self.opened_at = 0.0
        self.outcome = OUTCOME
        self.waits = 0

    @property
    def ended(self) -> bool:
        return not self._batches

    async def next_batch(self) -> list[Chunk]:
        self.waits += 1
        if self._gate is not None and len(self._batches) == 1:
            await self._gate.wait()
        return self._batches.pop(0) if self._batches else []


Start = Callable[[Said, float], Awaitable[TestClient[web.Request, web.Application]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    clients = []

    async def begin(said: Said, keep_alive_s: float) -> TestClient[web.Request, web.Application]:
        async def handle(http: web.Request) -> web.StreamResponse:
            http[keys.RECORD] = RequestRecord("id", "e")
            reply = CompletionReply(IDENTITY, REQUEST)
            try:
                return await streamed(http, said, reply, range(1), include_usage=True, keep_alive_s=keep_alive_s)
            except ApiError as error:
                return failed(http, error)

        app = web.Application()
        app.on_response_prepare.append(on_prepare)
        app.router.add_get("/", handle)
        clients.append(TestClient(TestServer(app, handler_cancellation=True)))
        await clients[-1].start_server()
        return clients[-1]

    yield begin
    for client in clients:
        await client.close()


SAYS = [[Chunk(0, "a", queue_s=0.0123), Chunk(0, "b")], [Chunk(0, "c", finish_reason="stop")]]


async def raw(client: TestClient[web.Request, web.Application], version: str, *lines: str) -> tuple[list[str], bytes]:
    """The head and the body of a reply, as they come over the wire, on a connection that ends with it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
    writer.write("\r\n".join([f"GET / HTTP/{version}", "Host: a", *lines, "", ""]).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode().split("\r\n"), body


async def test_the_last_text_the_account_and_the_end_are_one_write(start: Start) -> None:
    reply = CompletionReply(IDENTITY, REQUEST)
    first = sse.frames([*reply.chunk(Chunk(0, "a")), *reply.chunk(Chunk(0, "b"))])
    last = sse.frames([*reply.chunk(Chunk(0, "c", finish_reason="stop")), reply.usage(OUTCOME.usage)]) + COST + sse.DONE
    client = await start(Said(SAYS), 10.0)
    head, body = await raw(client, "1.1", "Connection: close")
    assert body == b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(first), first, len(last), last)
    assert head[0] == "HTTP/1.1 200 OK"
    assert {"Transfer-Encoding: chunked", "Connection: close", "x-request-id: id", "x-headgate-queue-ms: 12.3"} < {
        *head
    }
    assert [line for line in head if line.startswith("openai-processing-ms: ")], "known when the head goes out"
    old, plain = await raw(await start(Said(SAYS), 10.0), "1.0")
    assert (old[0], plain) == ("HTTP/1.0 200 OK", first + last)
    hop = ("Date", "Connection", "Transfer-Encoding", "openai-processing-ms")
    shown = [sorted(x for x in lines[1:] if not x.startswith(hop)) for lines in (head, old)]
    assert shown[0] == shown[1]


async def test_a_silent_stream_gets_a_comment_each_time_and_loses_nothing(start: Start) -> None:
    gate = asyncio.Event()
    said = Said([[Chunk(0, "a")], [Chunk(0, "b", finish_reason="stop")]], gate)
    client = await start(said, 0.001)
    response = await client.get("/")
    for _ in range(3):
        await response.content.readuntil(sse.KEEP_ALIVE)
    gate.set()
    rest = (await response.read()).replace(sse.KEEP_ALIVE, b"")
    assert rest.count(b'"text":"b"') == 1
    assert rest.endswith(sse.DONE)


async def test_a_stream_that_is_cancelled_while_it_is_silent_ends(start: Start) -> None:
    cancelled = asyncio.Event()

    class Waiting(Said):
        async def next_batch(self) -> list[Chunk]:
            self.waits += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            raise AssertionError

    said = Waiting([[Chunk(0, "a")]])
    client = await start(said, 0.001)
    response = await client.get("/")
    await response.content.readuntil(sse.KEEP_ALIVE)
    response.close()
    await asyncio.wait_for(cancelled.wait(), 5)
    assert said.waits == 1


class Failing(Said):
    """Fails once `gate` opens."""

    async def next_batch(self) -> list[Chunk]:
        assert self._gate is not None
        await self._gate.wait()
        raise overloaded("The server is shutting down.")


async def test_what_fails_before_anything_was_sent_has_its_own_status(start: Start) -> None:
    gate = asyncio.Event()
    gate.set()
    client = await start(Failing([[Chunk(0, "a")]], gate), 10.0)
    response = await client.get("/")
    assert (response.status, response.content_type) == (503, "application/json")
    assert (await response.json())["error"]["message"] == "The server is shutting down."


async def test_what_fails_after_a_comment_is_said_in_the_stream(start: Start) -> None:
    gate = asyncio.Event()
    client = await start(Failing([[Chunk(0, "a")]], gate), 0.001)
    response = await client.get("/")
    await response.content.readuntil(sse.KEEP_ALIVE)
    gate.set()
    rest = (await response.read()).replace(sse.KEEP_ALIVE, b"")
    assert response.status == 200
    assert json.loads(rest.removeprefix(b"data: "))["error"]["message"] == "The server is shutting down."
