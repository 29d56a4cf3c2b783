"""Upstreams that fail: what is told of it, who answers instead, and when they are asked again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from upstream_gateway import KEY, before, post, refusal
from upstream_server import FakeUpstream, Script, streamed, text_event, upstream_server

Pair = tuple[TestClient[Any, Any], FakeUpstream, FakeUpstream]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)


async def stalling(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(text_event("", role="assistant"))
    await asyncio.Event().wait()
    return response


def commenting(*begun: bytes) -> Script:
    """Nothing but comments behind these events."""

    async def script(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for one in begun:
            await response.write(one)
        while True:
            await response.write(b": keep-alive\n\n")
            await asyncio.sleep(0.02)

    return script


@pytest.mark.parametrize(
    ("begun", "code", "longest_s"), [((), "upstream_timeout", 0.3), ((text_event("Hel"),), "upstream_stalled", 0.6)]
)
async def test_comments_alone_have_a_bound(begun: tuple[bytes, ...], code: str, longest_s: float) -> None:
    timeouts = {"first_token_s": 0.3, "stall_s": 0.1, "total_s": 0.6}
    async with upstream_server() as fake, before(fake, timeouts=timeouts, retries={"most": 0}) as client:
        fake.script = commenting(*begun)
        began = time.monotonic()
        _, _, told = await post(client)
        assert told["error"]["code"] == code
        assert time.monotonic() - began >= longest_s, "they are signs of life until then"


async def cut(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    return await streamed(request, [text_event("Hel")])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[Pair]:
    """A gateway before a small and a large upstream."""
    async with upstream_server() as small, upstream_server() as large:
        quick = {
            "retries": {"most": 0},
            "timeouts": {"first_token_s": 0.5},
            "breaker": {"failures": 1000},
        }
        upstreams = [
            {"id": "little", "base_url": small.url, "model": "l", "tier": "small", **quick},
            {"id": "big", "base_url": large.url, "model": "b", "tier": "large"},
        ]
        with pytest.MonkeyPatch.context() as patch:
            forget_environment(patch)
            async with site(Path("unused"), models=[], upstreams=upstreams) as client:
                yield client, small, large


@pytest.mark.asyncio(loop_scope="module")
async def test_auto_chooses_between_upstreams_by_tier(pair: Pair) -> None:
    # The first of those that share the pair: later on the prices say which of the two is faster.
    client, _, _ = pair
    _, easy, _ = await post(client, model="auto", messages=[{"role": "user", "content": "Hello!"}])
    _, hard, _ = await post(client, model="auto", messages=[{"role": "user", "content": "What is 12 * 7?"}])
    assert (easy["x-headgate-model"], hard["x-headgate-model"]) == ("little", "big")
    listed = await (await client.get("/v1/models")).json()
    assert [(m["id"], m["tier"], m["context_length"]) for m in listed["data"]] == [
        ("little", "small", 32768),
        ("big", "large", 32768),
        ("auto", None, 32768),
        ("small", "small", 32768),
        ("large", "large", 32768),
    ]
    refused = await client.post("/tokenize", json={"model": "little", "prompt": "x"})
    assert (refused.status, (await refused.json())["error"]["code"]) == (400, "no_tokenizer")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (refusal(400, message="x", code="context_length_exceeded"), "context"),
        (refusal(400, message="x", code="content_filter"), "policy"),
        (refusal(429, message="x"), "overloaded"),
        (refusal(500, message="x"), "down"),
        (refusal(400, message="x"), "refused"),
        (stalling, "down"),
    ],
)
async def test_another_answers_and_the_route_says_why(pair: Pair, script: Script, cause: str) -> None:
    client, small, large = pair
    small.script = script
    asked = len(small.asked), len(large.asked)
    for stream in (False, True):
        status, headers, _ = await post(client, model="small", stream=stream)
        assert (status, headers["x-headgate-model"]) == (200, "big")
        assert headers["x-headgate-route"] == f"fallback:{cause}"
    assert (len(small.asked), len(large.asked)) == (asked[0] + 2, asked[1] + 2)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_broke_off_unseen_is_answered_by_another(pair: Pair) -> None:
    client, small, _ = pair
    small.script = cut
    _, headers, body = await post(client, model="small")
    assert (headers["x-headgate-route"], body["choices"][0]["message"]["content"]) == ("fallback:down", "Hello!")
    # A client that streams has seen the beginning: it is told, and nothing else is put behind it.
    _, headers, events = await post(client, model="small", stream=True)
    assert headers["x-headgate-model"] == "little"
    assert events[-1]["error"]["code"] == "upstream_cut"


async def test_an_upstream_that_is_down_is_left_alone_and_tried_again() -> None:
    breaker = {"failures": 2, "open_s": 0.05, "longest_s": 0.05}
    async with upstream_server() as fake, before(fake, breaker=breaker, retries={"most": 0}) as client:
        fake.script = refusal(500)
        codes = [(await post(client))[2]["error"]["code"] for _ in range(3)]
        assert codes == ["upstream_failed", "upstream_failed", "upstream_down"]
        assert len(fake.asked) == 2
        fake.script = None
        await asyncio.sleep(0.06)
        assert (await post(client))[0] == 200


async def test_health_checks_take_an_upstream_out_and_back(caplog: pytest.LogCaptureFixture) -> None:
    health = {"path": "/health", "interval_s": 0.01, "failures": 2}
    async with upstream_server() as fake, before(fake, health=health) as client:
        fake.well = False
        async with asyncio.timeout(10):
            while (await post(client))[0] == 200:
                pass
        status, headers, body = await post(client)
        assert (status, body["error"]["code"]) == (503, "upstream_down")
        assert "Retry-After" in headers
        assert "the upstream 'up' is not well: /health answers with 503" in caplog.messages
        fake.well = True
        async with asyncio.timeout(10):
            while (await post(client))[0] != 200:
                pass


async def test_the_log_alone_says_why_an_upstream_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    def upstream(name: str, url: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "base_url": url, "model": "m", "retries": {"most": 0}, **more}

    async with upstream_server() as fake:
        nobody = "http://127.0.0.1:9/v1"
        upstreams = [
            upstream("closed", nobody),
            upstream("ill", nobody, health={"path": "/health", "interval_s": 0.01}, breaker={"failures": 10**6}),
            # As with a certificate that ran out: there is a server, and TLS with it fails.
            upstream("plain", fake.url.replace("http", "https", 1)),
        ]
        async with site(Path("unused"), models=[], upstreams=upstreams) as client:
            for name in ("closed", "plain"):
                status, _, body = await post(client, model=name)
                assert (status, body["error"]["message"]) == (502, f"The upstream '{name}' could not be reached.")
            async with asyncio.timeout(10):
                while (await post(client, model="ill"))[2]["error"]["code"] != "upstream_down":
                    pass
    assert "the upstream 'closed' could not be reached: [Errno 111]" in caplog.text
    assert "the upstream 'plain' could not be reached: [SSL" in caplog.text
    assert "the upstream 'ill' is not well: /health cannot be asked: [Errno 111]" in caplog.text
