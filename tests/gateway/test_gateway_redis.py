"""The gateway with Redis: found, named, absent, and killed under it."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from redis import Redis
from redis_process import RedisProcess, running_redis

from headgate.gateway.app import make_app
from headgate.gateway.features import Feature, features
from headgate.gateway.parts import StartError
from headgate.gateway.settings import Settings

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with running_redis(tmp_path) as running:
        yield running


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a port where connections are refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts servers with keys of the section `cache`. They wait long for Redis, for the machine may be busy."""
    forget_environment(monkeypatch)
    monkeypatch.setenv("CACHE_SECRET", "one secret for all")
    async with AsyncExitStack() as stack:

        async def start(**cache: Any) -> Client:
            section = {"secret": "env:CACHE_SECRET", "semantic": {"enabled": False}, "redis_timeout_s": 10, **cache}
            return await stack.enter_async_context(site(tiny_checkpoint, cache=section))

        yield start


async def ask(client: Client) -> tuple[str, Any]:
    """What the cache said, and the choices: but for the log-probabilities, which may round otherwise where a prompt's
    first blocks are still there."""
    response = await client.post(CHAT, json={**HELLO, "logprobs": True, "top_logprobs": 2})
    assert response.status == 200
    choices = (await response.json())["choices"]
    told = [[(token["token"], token["bytes"]) for token in choice.pop("logprobs")["content"]] for choice in choices]
    return response.headers["x-headgate-cache"], (choices, told)


async def part(client: Client) -> tuple[str, str]:
    body = await (await client.get("/ready")).json()
    assert body["status"] == "ready"
    return body["parts"]["redis"]["state"], body["parts"]["redis"]["detail"]


def banner(client: Client, name: str) -> Feature:
    (found,) = [f for f in features(client.app) if f.name == name]
    return found


async def test_an_answer_of_one_server_is_an_exact_hit_of_another(
    serve: Serve, redis: RedisProcess, tmp_path: Path
) -> None:
    (secret := tmp_path / "secret").write_text("one secret for all\n")
    one, two = await serve(redis=redis.url), await serve(redis=redis.url, secret=f"file:{secret}")
    assert await part(one) == ("ready", redis.url)
    assert banner(one, "Redis") == Feature("Redis", True, redis.url)
    assert banner(one, "answer cache").why == "in Redis"
    first, choices = await ask(one)
    again, repeated = await ask(two)
    assert (first, again) == ("miss", "exact")
    assert repeated == choices
    with Redis(port=redis.port) as server:
        server.flushall()
    assert (await ask(two))[0] == "miss", "Redis has the only copy"


async def test_what_cannot_be_made_in_the_background_is_refused_as_ever_while_redis_is_away(
    serve: Serve, redis: RedisProcess
) -> None:
    client = await serve(redis=redis.url)
    redis.kill()
    body = {"model": "tiny", "input": "hello " * 10_000, "background": True}
    async with client.post("/v1/responses", json=body) as reply:
        assert (reply.status, (await reply.json())["error"]["code"]) == (400, "context_length_exceeded")


async def test_redis_killed_under_the_server_costs_hits_and_nothing_else(serve: Serve, redis: RedisProcess) -> None:
    client = await serve(redis=redis.url)
    _, choices = await ask(client)
    assert (await ask(client))[0] == "exact"
    redis.kill()
    for _ in range(2):
        assert await ask(client) == ("miss", choices)
    state, detail = await part(client)
    assert state == "failed"
    assert redis.url in detail
    redis.start()
    async with asyncio.timeout(20):
        while (await ask(client))[0] != "exact":
            pass
    assert await part(client) == ("ready", redis.url)


async def test_a_named_redis_that_is_not_there_is_waited_for(
    serve: Serve, redis: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    redis.kill()
    client = await serve(redis=redis.url.replace("//", "//someone:hunter2@"))
    state, detail = await part(client)
    assert (state, banner(client, "Redis").on) == ("failed", False)
    assert [(await ask(client))[0] for _ in "ab"] == ["miss", "miss"], "and nothing is kept elsewhere meanwhile"
    (line,) = [r.message for r in caplog.records if r.levelname == "WARNING"]
    for told in (line, detail):
        assert redis.url in told
        assert "hunter2" not in told


async def test_auto_takes_the_server_of_the_variable(
    serve: Serve, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis.url)
    client = await serve(redis="auto", secret=None)
    state, detail = await part(client)
    assert (state, banner(client, "Redis").on) == ("ready", True)
    assert "cache.secret" in detail, "without it nobody else finds these answers"
    assert [(await ask(client))[0] for _ in "ab"] == ["miss", "exact"]
    with Redis(port=redis.port) as server:
        assert server.dbsize() == 3, "an answer, the tag of its team and that of all answers"


async def test_auto_keeps_answers_in_memory_where_no_redis_answers(
    serve: Serve, nobody: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDIS_URL", nobody)
    client = await serve(redis="auto")
    state, detail = await part(client)
    assert state == "off"
    assert f"{nobody} does not answer" in detail
    assert banner(client, "Redis") == Feature("Redis", False, detail)
    assert banner(client, "answer cache").why == "in memory"
    assert [(await ask(client))[0] for _ in "ab"] == ["miss", "exact"]
    assert [r for r in caplog.records if r.levelname == "WARNING"] == []


async def test_auto_refuses_a_variable_that_is_no_url_without_telling_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis//:hunter2@somewhere")
    state, detail = await part(await serve(redis="auto"))
    assert state == "off"
    assert "REDIS_URL" in detail
    assert "hunter2" not in detail


@pytest.mark.parametrize(
    ("cache", "why"), [({"redis": None}, "cache.redis"), ({"exact": {"enabled": False}, "redis": "auto"}, "exact")]
)
async def test_off_says_why(serve: Serve, cache: dict[str, Any], why: str) -> None:
    state, detail = await part(await serve(**cache))
    assert state == "off"
    assert why in detail


async def test_without_the_package_auto_is_off_and_a_url_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "redis" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    state, detail = await part(await serve(redis="auto"))
    assert state == "off"
    assert "headgate[redis]" in detail
    with pytest.raises(StartError, match=r"cache.redis .*headgate\[redis\]"):
        make_app(Settings(cache={"redis": "redis://localhost"}))
