"""The whole application over a real engine with a tiny random model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from prometheus_client.parser import text_string_to_metric_families
from team_files import key, write_team

from headgate.cache.embedder import SentenceEmbedder
from headgate.engine.runner import Runner
from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.parts import StartError
from headgate.gateway.settings import Settings

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts servers, with sections of the settings of the test's own."""
    forget_environment(monkeypatch)
    async with AsyncExitStack() as stack:
        yield lambda **sections: stack.enter_async_context(site(tiny_checkpoint, **sections))


async def events(response: Any) -> list[Any]:
    """The decoded events of a stream; `[DONE]` stays as it is."""
    text = (await response.read()).decode()
    frames = [part for part in text.split("\n\n") if part]
    assert all(f.startswith(("data: ", ":")) for f in frames)
    data = [f.removeprefix("data: ") for f in frames if f.startswith("data: ")]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


async def gauges(client: Client) -> dict[str, float]:
    """Samples by name, summed over labels; and requests by code, as `code 200`."""
    text = await (await client.get("/metrics")).text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for name in (sample.name, f"code {sample.labels.get('code')}"):
                found[name] = found.get(name, 0.0) + sample.value
    return found


async def until(client: Client, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Scrape until the condition holds; each scrape gives the engine a turn. Bounded by time."""
    async with asyncio.timeout(20):
        while True:
            found = await gauges(client)
            if condition(found):
                return found


async def test_a_whole_reply(serve: Serve) -> None:
    client = await serve()
    response = await client.post(CHAT, json=HELLO, headers={"x-request-id": "mine-1"})
    body = await response.json()
    assert response.status == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    assert body["system_fingerprint"].startswith("hg-")
    choice = body["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    headers = response.headers
    assert headers["x-request-id"] == "mine-1"
    assert (headers["x-headgate-cache"], headers["x-headgate-model"]) == ("miss", "tiny")
    assert (headers["x-headgate-route"], headers["x-headgate-cost-usd"]) == ("requested", "0")
    for name in ("x-headgate-queue-ms", "x-headgate-overhead-ms", "openai-processing-ms"):
        assert float(headers[name]) >= 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 5, "n": 3}, {"logprobs": True}])
async def test_the_joined_stream_is_the_whole_reply(serve: Serve, sampling: dict[str, Any]) -> None:
    client = await serve(cache={"exact": {"enabled": False}})
    whole = await (await client.post(CHAT, json={**HELLO, **sampling})).json()
    response = await client.post(
        CHAT, json={**HELLO, **sampling, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert float(response.headers["x-headgate-queue-ms"]) >= 0
    *chunks, end, done = await events(response)
    assert done == "[DONE]"
    assert end["choices"] == []
    assert end["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert {(c["id"], c["created"], c["model"]) for c in (*chunks, end)} == {(end["id"], end["created"], "tiny")}
    for choice in whole["choices"]:
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content") or "" for c in mine) == choice["message"]["content"]
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == [choice["finish_reason"]]
        assert mine[-1]["finish_reason"], "nothing follows the finish"
        if choice["logprobs"]:
            parts = [entry for c in mine if c["logprobs"] for entry in c["logprobs"]["content"]]
            assert [p["token"] for p in parts] == [p["token"] for p in choice["logprobs"]["content"]]


async def test_the_second_asker_hits_streamed_or_not(serve: Serve) -> None:
    client = await serve()
    first = await client.post(CHAT, json=HELLO)
    body = await first.json()
    again = await client.post(CHAT, json=HELLO)
    assert (first.headers["x-headgate-cache"], again.headers["x-headgate-cache"]) == ("miss", "exact")
    assert again.headers["x-headgate-similarity"] == "1.0000"
    repeated = await again.json()
    assert repeated["choices"] == body["choices"]
    assert repeated["usage"] == body["usage"]
    streamed = await client.post(CHAT, json={**HELLO, "stream": True})
    assert streamed.headers["x-headgate-cache"] == "exact"
    *chunks, _ = await events(streamed)
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    assert text == body["choices"][0]["message"]["content"]


async def test_completions_take_several_prompts_and_token_ids(serve: Serve) -> None:
    client = await serve()
    ask = {"model": "tiny", "prompt": ["the fox", "the dog"], "max_tokens": 4, "n": 2, "temperature": 1.0, "seed": 1}
    body = await (await client.post("/v1/completions", json=ask)).json()
    assert [c["index"] for c in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["completion_tokens"] <= 16
    *chunks, done = await events(await client.post("/v1/completions", json={**ask, "stream": True}))
    assert done == "[DONE]"
    for choice in body["choices"]:
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        assert "".join(c["text"] for c in mine) == choice["text"]
        assert sum(c["finish_reason"] is not None for c in mine) == 1
    ids = await client.post(
        "/v1/completions", json={"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 2, "logprobs": 1}
    )
    assert (await ids.json())["usage"]["prompt_tokens"] == 3


async def test_several_prompts_are_a_hit_only_where_all_of_them_are(serve: Serve) -> None:
    client = await serve()
    said = []
    for prompts in (["one"], ["one", "two"], ["one", "two"]):
        response = await client.post("/v1/completions", json={"model": "tiny", "prompt": prompts, "max_tokens": 2})
        said.append(response.headers["x-headgate-cache"])
    assert said == ["miss", "miss", "exact"]


async def test_stop_strings_are_not_shown(serve: Serve) -> None:
    client = await serve()
    whole = (await (await client.post(CHAT, json={**HELLO, "max_tokens": 24})).json())["choices"][0]["message"][
        "content"
    ]
    stop = whole[3:5]
    body = await (await client.post(CHAT, json={**HELLO, "max_tokens": 24, "stop": stop})).json()
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["message"]["content"] == whole[: whole.index(stop)]


async def test_models_are_listed_and_found(serve: Serve) -> None:
    client = await serve()
    body = await (await client.get("/v1/models")).json()
    assert [(m["id"], m["object"], m["tier"]) for m in body["data"]] == [
        ("tiny", "model", "small"), ("tiny-2", "model", "large"),
        ("auto", "model", None), ("small", "model", "small"), ("large", "model", "large")]  # fmt: skip
    assert (await (await client.get("/v1/models/auto")).json())["context_length"] == 512
    assert (await (await client.get("/v1/models/tiny-2")).json())["context_length"] == 512
    assert (await client.get("/v1/models/gpt-9")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code", "param"),
    [
        ("GET", "/nowhere", None, {}, 404, "unknown_url", None),
        ("GET", CHAT, None, {}, 405, "method_not_allowed", None),
        ("POST", "/v1/models", b"{}", {}, 405, "method_not_allowed", None),
        ("POST", CHAT, b"{}", {"Content-Type": "text/html"}, 415, "unsupported_media_type", None),
        ("POST", CHAT, b"x" * 2001, {"Content-Type": "application/json"}, 413, "request_too_large", None),
        ("POST", CHAT, b"{", {"Content-Type": "application/json"}, 400, "invalid_json", None),
        ("POST", CHAT, b"[]", {"Content-Type": "application/json"}, 400, "invalid_json", None),
        (
            "POST",
            CHAT,
            b'{"model": "tiny"}',
            {"Content-Type": "application/json"},
            400,
            "missing_required_parameter",
            "messages",
        ),
        ("POST", CHAT, HELLO | {"model": "gpt-9"}, {}, 404, "model_not_found", "model"),
        ("POST", CHAT, HELLO | {"max_tokens": 512}, {}, 400, "context_length_exceeded", "max_tokens"),
        (
            "POST",
            CHAT,
            HELLO | {"max_tokens": None, "max_completion_tokens": 512},
            {},
            400,
            "context_length_exceeded",
            "max_completion_tokens",
        ),
        ("POST", CHAT, HELLO | {"logit_bias": {"320": 1}}, {}, 400, "invalid_value", "logit_bias"),
        ("POST", CHAT, HELLO | {"stop_token_ids": [400]}, {}, 400, "invalid_value", "stop_token_ids"),
        ("POST", CHAT, HELLO, {"Cache-Control": "max-age=x"}, 400, "invalid_value", "cache-control"),
        ("POST", "/v1/completions", {"model": "tiny", "prompt": [999]}, {}, 400, "invalid_value", "prompt"),
        (
            "POST",
            "/v1/completions",
            {"model": "tiny", "prompt": [5] * 512},
            {},
            400,
            "context_length_exceeded",
            "prompt",
        ),
    ],
)
async def test_failures_have_one_shape(
    serve: Serve,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    status: int,
    code: str,
    param: str | None,
) -> None:
    client = await serve(server={"max_body_bytes": 2000})
    sent = {"json": body} if isinstance(body, dict) else {"data": body}
    response = await client.request(method, path, headers=headers, **sent)
    assert response.status == status
    assert response.content_type == "application/json"
    error = (await response.json())["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
    assert response.headers["x-request-id"]


async def test_a_body_in_chunks_is_bounded_too(serve: Serve) -> None:
    client = await serve(server={"max_body_bytes": 2000})

    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 100

    response = await client.post(CHAT, data=endless(), headers={"Content-Type": "application/json"})
    assert response.status == 413
    assert (await response.json())["error"]["code"] == "request_too_large"


async def test_a_step_that_fails_is_a_500_and_the_engine_goes_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve()
    real = Runner.run
    fail = [True]

    def broken(self: Runner, chunks: Any, *run: Any) -> Any:
        if fail.pop() if fail else False:
            raise RuntimeError("the device is on fire")
        return real(self, chunks, *run)

    monkeypatch.setattr(Runner, "run", broken)
    response = await client.post(CHAT, json=HELLO)
    assert response.status == 500
    error = (await response.json())["error"]
    assert error["type"] == "server_error"
    assert "fire" not in error["message"], "what is inside stays in the log"
    assert (await client.post(CHAT, json=HELLO)).status == 200


async def test_a_stream_that_breaks_says_so_and_does_not_finish(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve()
    real = Runner.run
    loop = asyncio.get_running_loop()
    read = asyncio.Event()
    steps = [0]

    def broken(self: Runner, chunks: Any, *run: Any) -> Any:
        steps[0] += 1
        if steps[0] == 3:
            # Not before the client has seen the beginning: what breaks earlier has a status of its own.
            asyncio.run_coroutine_threadsafe(read.wait(), loop).result(timeout=20)
            raise RuntimeError("the device is on fire")
        return real(self, chunks, *run)

    monkeypatch.setattr(Runner, "run", broken)
    response = await client.post(CHAT, json={**HELLO, "ignore_eos": True, "stream": True})
    assert response.status == 200
    await response.content.readuntil(b"\n\n")
    read.set()
    *chunks, last = await events(response)
    assert last["error"]["type"] == "server_error"
    assert "fire" not in last["error"]["message"]
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks)
    assert (await gauges(client))["code 500"] > 0


async def test_a_client_that_leaves_frees_everything(serve: Serve) -> None:
    client = await serve()
    long = {**HELLO, "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 2}
    response = await client.post(CHAT, json=long)
    await response.content.readuntil(b"\n\n")
    assert (await gauges(client))["headgate_requests_running"] > 0
    response.close()
    done = await until(
        client, lambda g: g["headgate_requests_running"] == 0 and g["headgate_kv_cache_usage_ratio"] == 0
    )
    assert done["headgate_requests_waiting"] == 0
    text = await (await client.get("/metrics")).text()
    assert 'code="499"' in text


async def test_a_client_that_leaves_before_the_first_token_frees_everything(serve: Serve) -> None:
    client = await serve()
    task = asyncio.create_task(client.post(CHAT, json={**HELLO, "max_tokens": 400, "ignore_eos": True}))
    await until(client, lambda g: g["headgate_requests_running"] > 0)
    task.cancel()
    await asyncio.wait([task])
    await until(client, lambda g: g["headgate_requests_running"] == 0 and g["headgate_kv_cache_usage_ratio"] == 0)


async def test_a_silent_stream_gets_comments(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve(server={"keep_alive_s": 0.01})
    real = Runner.run
    loop = asyncio.get_running_loop()
    commented = asyncio.Event()
    held: list[Any] = []

    def slow(self: Runner, chunks: Any, *run: Any) -> Any:
        if not held:
            held.append(True)
            # The step thread waits for the client to have seen a comment.
            asyncio.run_coroutine_threadsafe(commented.wait(), loop).result(timeout=20)
        return real(self, chunks, *run)

    monkeypatch.setattr(Runner, "run", slow)
    response = await client.post(CHAT, json={**HELLO, "stream": True})
    head = await response.content.readuntil(b": keep-alive\n\n")
    assert b"assistant" in head
    commented.set()
    assert (await events(response))[-1] == "[DONE]"


async def test_health_ready_and_openapi(serve: Serve) -> None:
    client = await serve()
    assert (await client.get("/health")).status == 200
    ready = await client.get("/ready")
    body = await ready.json()
    assert (ready.status, body["status"]) == (200, "ready")
    assert body["parts"]["model tiny"]["state"] == "ready"
    assert body["parts"]["semantic cache"]["state"] == "off"
    assert (await (await client.get("/openapi.json")).json())["openapi"].startswith("3.1")


async def test_draining_refuses_with_retry_after(serve: Serve) -> None:
    client = await serve()
    await client.app[keys.LIFECYCLE].drain(0)
    response = await client.post(CHAT, json=HELLO)
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (await client.get("/ready")).status == 503
    assert (await client.get("/health")).status == 200


async def test_the_official_client_retries_a_503_until_the_models_are_there(serve: Serve) -> None:
    client = await serve(server={"startup_wait_s": 0})
    lifecycle = client.app[keys.LIFECYCLE]
    lifecycle.set("model tiny", "loading")
    statuses: list[int] = []

    async def watch(response: Any) -> None:
        statuses.append(response.status_code)
        lifecycle.set("model tiny", "ready")

    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [watch]})
    async with openai.AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="any", http_client=http) as official:
        reply = await official.chat.completions.create(**HELLO)
    assert reply.choices
    assert statuses == [503, 200]


async def test_keys_are_asked_for_where_there_are_team_files(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RED_KEY", "red-secret-key-1")
    monkeypatch.setenv("BLUE_KEY", "blue-secret-key-1")
    write_team(tmp_path / "teams", "red", key("red"))
    write_team(tmp_path / "teams", "blue", key("blue"))
    client = await serve(teams=tmp_path / "teams")
    assert (await client.post(CHAT, json=HELLO)).status == 401
    assert (await client.get("/v1/models")).status == 401
    assert (await client.get("/health")).status == 200
    verdicts = []
    for secret in ("red-secret-key-1", "red-secret-key-1", "blue-secret-key-1"):
        response = await client.post(CHAT, json=HELLO, headers={"Authorization": f"Bearer {secret}"})
        verdicts.append(response.headers["x-headgate-cache"])
    assert verdicts == ["miss", "exact", "miss"], "answers do not cross teams"


async def test_the_access_log_is_json_without_content(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = await serve()
    with caplog.at_level("INFO", logger="headgate.access"):
        await client.post(CHAT, json={**HELLO, "messages": [{"role": "user", "content": "my secret"}]})
    (line,) = [r.message for r in caplog.records if r.name == "headgate.access"]
    fields = json.loads(line)
    assert (fields["status"], fields["team"], fields["model"], fields["verdict"]) == (200, "default", "tiny", "miss")
    assert "secret" not in line


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the embedding package is not installed")
async def test_an_embedder_that_fails_costs_the_semantic_cache_only(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = asyncio.Event()

    async def load(_: SentenceEmbedder) -> None:
        failed.set()
        raise ValueError("the weights are gone")

    monkeypatch.setattr(SentenceEmbedder, "load", load)
    client = await serve(cache={"semantic": {"enabled": True, "embedder": str(tmp_path)}})
    await failed.wait()
    verdicts = [(await client.post(CHAT, json=HELLO | {"model": "auto"})).headers["x-headgate-cache"] for _ in "ab"]
    assert verdicts == ["miss", "exact"]
    part = (await (await client.get("/ready")).json())["parts"]["semantic cache"]
    assert part == {"state": "failed", "detail": "the weights are gone"}


def test_what_cannot_be_served_here_is_said_at_the_start(tmp_path: Path) -> None:
    write_team(tmp_path, "red", {"id": "a", "secret": "env:NO_SUCH_VARIABLE"})
    with pytest.raises(StartError, match="NO_SUCH_VARIABLE"):
        make_app(Settings(teams={"folder": str(tmp_path)}))
    with pytest.raises(StartError, match="NO_SUCH_VARIABLE is not set; at least 16 bytes are needed"):
        make_app(Settings(cache={"secret": "env:NO_SUCH_VARIABLE"}))
    (short := tmp_path / "short").write_text("fifteen letters\n")
    with pytest.raises(StartError, match="short', which holds 15 bytes; at least 16 are needed"):
        make_app(Settings(cache={"secret": f"file:{short}"}))
    with pytest.raises(StartError, match="abacus"):
        make_app(Settings(engine={"device": "abacus"}))
