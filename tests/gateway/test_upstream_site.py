"""Upstreams seen by a client: a whole gateway before a scripted server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from upstream_server import FakeUpstream, upstream_server

KEY = "sk-of-the-operator-123"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)


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


async def test_an_upstream_answers_by_its_name_streamed_and_not() -> None:
    async with upstream_server() as fake, before(fake) as client:
        status, headers, body = await post(client, max_tokens=20, temperature=0.5, seed=7)
        assert (status, headers["x-headgate-model"], headers["x-headgate-route"]) == (200, "up", "requested")
        assert body["choices"][0]["message"]["content"] == "Hello!"
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"] == (11, 3)
        sent = fake.asked[0]
        assert sent["model"] == "their-model"
        assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})
        assert (sent["max_tokens"], sent["temperature"], sent["seed"]) == (20, 0.5, 7)
        assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"
        status, _, events = await post(client, stream=True, stream_options={"include_usage": True})
        assert events[-1] == "[DONE]"
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-2]) == "Hello!"
        assert events[-3]["choices"][0]["finish_reason"] == "stop"
        assert events[-2]["usage"]["total_tokens"] == 14
