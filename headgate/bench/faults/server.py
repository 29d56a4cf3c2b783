"""An OpenAI-compatible server that misbehaves byte by byte, as its script says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

CONTENT = ("Hel", "lo", "!")
USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
_APART_S = 0.02


def event(body: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", **body}).encode() + b"\n\n"


def delta(said: Mapping[str, Any], reason: str | None = None) -> bytes:
    """A piece of the only choice."""
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": reason}]})


ROLE = delta({"role": "assistant", "content": ""})
TEXT = tuple(delta({"content": text}) for text in CONTENT)
FINISH = delta({}, "stop")
ACCOUNT = event({"choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"
GOOD = (ROLE, *TEXT, FINISH, ACCOUNT, DONE)
"""A whole answer."""


class Wire:
    """One connection, after a request was read from it."""

    def __init__(self, writer: asyncio.StreamWriter, over: asyncio.Event, elsewhere: str) -> None:
        self._writer = writer
        self._over = over
        self.elsewhere = elsewhere
        """The URL of a server that nothing should ever be sent to."""

    async def raw(self, data: bytes) -> None:
        """These bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: str, headers: Mapping[str, str]) -> None:
        """The head of a reply."""
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def stream(self, *events: bytes, whole: bool = False) -> None:
        """The head of a stream and some of its events; with its end where it is `whole`."""
        await self.head("200 OK", {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        await self.more(*events)
        if whole:
            await self.end()

    async def end(self) -> None:
        """The end of a stream."""
        await self.raw(b"0\r\n\r\n")

    async def more(self, *events: bytes) -> None:
        """Further events, each in a piece of its own."""
        for one in events:
            await self.raw(f"{len(one):x}\r\n".encode() + one + b"\r\n")

    async def reply(self, status: str, body: Mapping[str, Any] | bytes, **headers: str) -> None:
        """A whole reply; underscores in names of headers stand for hyphens."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.head(
            status,
            {"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close", **given},
        )
        await self.raw(data)

    async def silence(self) -> None:
        """Nothing, for longer than anybody waits."""
        await self._over.wait()

    async def apart(self) -> None:
        """What comes next is read by itself."""
        await asyncio.sleep(_APART_S)


Script = Callable[[Wire], Awaitable[None]]


async def good(wire: Wire) -> None:
    """The answer as it should be."""
    await wire.stream(*GOOD, whole=True)


class FaultyServer:
    """Serves scripts by the first part of the path: `/NAME/...` always fails, `/NAME:once/...` only the first time."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.url = ""
        self.elsewhere = ""
        self.asked: Counter[str] = Counter()
        """Requests by the first part of their path."""
        self.strayed = 0
        """Connections to the server that nothing should be sent to."""
        self._scripts = scripts
        self._over = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection with one request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await self._answer(await _path(reader), Wire(writer, self._over, self.elsewhere))
        writer.close()

    async def stray(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection to the other server."""
        self.strayed += 1
        writer.close()

    def end(self) -> None:
        """End every silence."""
        self._over.set()

    async def _answer(self, place: str, wire: Wire) -> None:
        name, _, once = place.partition(":")
        self.asked[place] += 1
        script = good if once.startswith("once") and self.asked[place] > 1 else self._scripts[name]
        await script(wire)


@asynccontextmanager
async def faulty_server(scripts: Mapping[str, Script]) -> AsyncIterator[FaultyServer]:
    """A running server on a port of its own, and the one beside it that must stay alone."""
    server = FaultyServer(scripts)
    other = await asyncio.start_server(server.stray, "127.0.0.1", 0)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    async with other, listening:
        server.elsewhere = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield server
        finally:
            server.end()


async def _path(reader: asyncio.StreamReader) -> str:
    """The first part of the path of the request, which is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.split("\r\n")
    length = next((int(f.partition(":")[2]) for f in fields if f.lower().startswith("content-length:")), 0)
    await reader.readexactly(length)
    return line.split(" ")[1].split("/")[1]
