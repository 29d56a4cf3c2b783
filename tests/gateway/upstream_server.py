"""An OpenAI-compatible server whose answers are scripted, on a port of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Script = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class FakeUpstream:
    """What was asked, and what is answered: by `script` where it is given, else `pieces` as a stream."""

    url: str = ""
    pieces: list[str] = field(default_factory=lambda: ["Hel", "lo", "!"])
    usage: dict[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 3})
    script: Script | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    well: bool = True
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request was cancelled."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        try:
            if self.script is not None:
                return await self.script(request, body)
            return await streamed(request, self.events())
        except asyncio.CancelledError:
            self.left.set()
            raise

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.well else 503)

    def events(self) -> list[bytes]:
        """The answer's events, with its end and its account."""
        found = [text_event("", role="assistant"), *map(text_event, self.pieces), finish_event()]
        if self.usage is not None:
            found.append(event({"choices": [], "usage": self.usage}))
        return [*found, b"data: [DONE]\n\n"]


def event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", **body}).encode() + b"\n\n"


def text_event(text: str, index: int = 0, **delta: Any) -> bytes:
    choice = {"index": index, "delta": {"content": text, **delta}, "finish_reason": None}
    return event({"choices": [choice]})


def finish_event(reason: str = "stop", index: int = 0, **delta: Any) -> bytes:
    return event({"choices": [{"index": index, "delta": delta, "finish_reason": reason}]})


async def streamed(request: web.Request, events: list[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for one in events:
        await response.write(one)
    await response.write_eof()
    return response


@asynccontextmanager
async def upstream_server() -> AsyncIterator[FakeUpstream]:
    """A running server."""
    fake = FakeUpstream()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake.handle)
    app.router.add_post("/v1/completions", fake.handle)
    app.router.add_get("/health", fake.health)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield fake
    finally:
        await runner.cleanup()
