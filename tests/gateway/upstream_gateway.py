"""A gateway before one scripted upstream, and what a client says to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient
from gateway_site import site
from upstream_server import FakeUpstream, Script

KEY = "sk-of-the-operator-123"


@asynccontextmanager
async def before(fake: FakeUpstream, **section: Any) -> AsyncIterator[TestClient[Any, Any]]:
    """A gateway with nothing but the upstream `up`."""
    upstream = {"id": "up", "base_url": fake.url, "model": "their-model", "api_key": "env:UP_KEY", **section}
    async with site(Path("unused"), models=[], upstreams=[upstream]) as client:
        yield client


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "up", "messages": [{"role": "user", "content": "Hello?"}], **fields}


async def post(client: TestClient[Any, Any], **fields: Any) -> tuple[int, Any, Any]:
    """Status, headers and body; of a stream, the events."""
    async with client.post("/v1/chat/completions", json=ask(**fields)) as reply:
        text = await reply.text()
        if reply.content_type != "text/event-stream":
            return reply.status, reply.headers, json.loads(text)
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        return reply.status, reply.headers, [line if line == "[DONE]" else json.loads(line) for line in lines]


def refusal(status: int, **error: Any) -> Script:
    """Answers with an error."""

    async def script(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": error}, status=status)

    return script
