"""`/v1/messages` on a real application: failures in Anthropic's shape, also in the middle of a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from gateway_site import break_third_step, forget_environment, site

from headgate.gateway import keys

Client = TestClient[Any, Any]
HELLO: dict[str, Any] = {"model": "tiny", "max_tokens": 40, "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def client(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, server={"max_body_bytes": 2000}) as running:
        yield running


async def test_failures_have_anthropics_shape(client: Client) -> None:
    json_type = {"Content-Type": "application/json"}
    for path, sent, status, family in (
        ("/v1/messages", {"data": b"{", "headers": json_type}, 400, "invalid_request_error"),
        ("/v1/messages", {"data": b"x" * 2001, "headers": json_type}, 413, "request_too_large"),
        ("/v1/messages", {"data": b"{}", "headers": {"Content-Type": "text/html"}}, 415, "invalid_request_error"),
        ("/v1/messages", {"json": {**HELLO, "model": "gpt-9"}}, 404, "not_found_error"),
        ("/v1/messages/count_tokens", {"json": {"model": "tiny"}}, 400, "invalid_request_error"),
        ("/v1/messages/nothing", {"json": {}}, 404, "not_found_error"),
    ):
        response = await client.post(path, **sent)
        body = await response.json()
        assert (response.status, body["type"], body["error"]["type"]) == (status, "error", family), path
        assert body["request_id"] == response.headers["request-id"]
    await client.app[keys.LIFECYCLE].drain(0)
    response = await client.post("/v1/messages", json=HELLO)
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (await response.json())["error"]["type"] == "overloaded_error"


async def test_a_stream_that_breaks_ends_in_an_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    read = break_third_step(monkeypatch)
    response = await client.post("/v1/messages", json={**HELLO, "stream": True})
    assert response.status == 200
    await response.content.readuntil(b"\n\n")
    read.set()
    last = (await response.read()).decode().split("\n\n")[-2]
    name, data = last.split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["type"] == "api_error"
    assert "fire" not in data
