"""An upstream that serves everything beside chats, and a gateway before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import FormData, web
from aiohttp.test_utils import TestClient
from gateway_site import site

Client = TestClient[Any, Any]
Script = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = "sk-of-the-operator-123"
SOUND = bytes(range(256)) * 1024
ALL = ["embeddings", "rerank", "score", "moderations", "speech", "transcriptions", "translations", "images"]


@dataclass
class Asked:
    """A request as the upstream got it."""

    path: str
    headers: dict[str, str]
    body: Any
    """Of JSON what it says; of a form its fields, files as their name, type and bytes."""


@dataclass
class PassingUpstream:
    """What was asked, and what is answered: by `script` where it is given."""

    url: str = ""
    script: Script | None = None
    asked: list[Asked] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request was cancelled."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1")
        body = await (_form(request) if request.content_type.startswith("multipart/") else request.json())
        self.asked.append(Asked(path, {name.lower(): value for name, value in request.headers.items()}, body))
        try:
            return await (self.script(request) if self.script is not None else self._answer(path, request))
        except asyncio.CancelledError:
            self.left.set()
            raise

    async def _answer(self, path: str, request: web.Request) -> web.StreamResponse:
        if path == "/audio/speech":
            return await sound(request)
        usage: dict[str, Any] = {"prompt_tokens": 12, "total_tokens": 12}
        answers: dict[str, Any] = {
            "/embeddings": {
                "object": "list",
                "model": "their-model",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
                "usage": usage,
            },
            "/rerank": {"id": "r", "results": [{"index": 1, "relevance_score": 0.9}], "usage": {"total_tokens": 30}},
            "/score": {"object": "list", "data": [{"index": 0, "object": "score", "score": 0.4}], "usage": usage},
            "/moderations": {
                "id": "modr",
                "model": "their-model",
                "results": [{"flagged": True, "categories": {}, "category_scores": {}}],
            },
            "/audio/transcriptions": {"text": "hello there", "usage": {"type": "duration", "seconds": 90}},
            "/audio/translations": {"text": "hello there"},
            "/images/generations": {"created": 1, "data": [{"b64_json": "aGk="}]},
            "/images/edits": {
                "created": 1,
                "data": [{"b64_json": "aGk="}],
                "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
            },
        }
        return web.json_response(answers[path])


async def sound(request: web.Request, upto: int = len(SOUND)) -> web.StreamResponse:
    """Some of the sound, in pieces."""
    response = web.StreamResponse(headers={"Content-Type": "audio/mpeg"})
    await response.prepare(request)
    for at in range(0, upto, 50_000):
        await response.write(SOUND[at : min(at + 50_000, upto)])
    return response


async def cut(request: web.Request) -> web.StreamResponse:
    """Half of the sound, and the end of the connection."""
    response = await sound(request, 100_000)
    assert request.transport is not None
    request.transport.close()
    return response


def saying(*events: str) -> Script:
    """Events, each one write."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(event.encode())
        return response

    return script


def answering(status: int, body: Any = None, kind: str = "application/json", **headers: str) -> Script:
    """One reply."""

    async def script(_request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, bytes):
            return web.Response(status=status, body=body, headers={"Content-Type": kind, **named})
        return web.json_response(body, status=status, headers=named)

    return script


def then(*scripts: Script | None) -> Callable[[PassingUpstream], Script]:
    """One after the other; None: the usual answer. The last stays."""

    def of(fake: PassingUpstream) -> Script:
        left = list(scripts)

        async def script(request: web.Request) -> web.StreamResponse:
            now = left.pop(0) if len(left) > 1 else left[0]
            return await (now(request) if now is not None else fake._answer(fake.asked[-1].path, request))

        return script

    return of


def upload(data: bytes = b"RIFF-sound", **fields: str) -> FormData:
    """The form of a transcription."""
    form = FormData(quote_fields=False)
    for name, value in {"model": "other", **fields}.items():
        form.add_field(name, value)
    form.add_field("file", data, filename="a b.wav", content_type="audio/wav")
    return form


@asynccontextmanager
async def passing_upstream() -> AsyncIterator[PassingUpstream]:
    """A running server."""
    fake = PassingUpstream()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/{path:.+}", fake.handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield fake
    finally:
        await runner.cleanup()


@asynccontextmanager
async def before(fake: PassingUpstream, section: dict[str, Any] | None = None, **parts: Any) -> AsyncIterator[Client]:
    """A gateway with nothing but the upstream `other`, which takes no chats."""
    upstream = {
        "id": "other",
        "base_url": fake.url,
        "model": "their-model",
        "api_key": "env:UP_KEY",
        "serves": ALL,
        **(section or {}),
    }
    async with site(Path("unused"), models=[], upstreams=[upstream], **parts) as client:
        yield client


async def refused(client: Client, path: str, **asked: Any) -> tuple[int, str | None, str | None, str]:
    """Status, code, parameter and message."""
    async with client.post(path, **asked) as reply:
        error = (await reply.json())["error"]
        return reply.status, error["code"], error["param"], error["message"]


async def _form(request: web.Request) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            fields[name] = (value.filename, value.content_type, value.file.read())
        else:
            fields[name] = value
    return fields
