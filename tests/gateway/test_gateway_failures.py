"""What goes wrong with a request, its client or its server: one shape of error, nothing held, the server lives on."""

from __future__ import annotations

import asyncio
import json
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from aiohttp import ClientConnectionResetError, web
from gateway_site import Serve, break_third_step, events, gauges, until
from team_files import key, write_team

from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.engine.runner import Runner
from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.parts import StartError
from headgate.gateway.settings import Settings

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


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


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
@pytest.mark.parametrize(
    ("header", "status", "said"),
    [
        (b"Authorization: Bearer \xe9\xe9\xe9\xe9-is-no-key", 401, b"Incorrect API key provided: "),
        (b"Authorization: Bearer secret-of-red\r\nCache-Control: max-age=\xe9", 400, b"max-age is '?'"),
    ],
)
async def test_bytes_that_are_no_text_in_a_header_are_refused_as_all_else(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, header: bytes, status: int, said: bytes
) -> None:
    monkeypatch.setenv("RED_KEY", "secret-of-red")
    write_team(tmp_path / "teams", "red", key("red"))
    server = (await serve(teams=tmp_path / "teams")).server
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = b'{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}'
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%b\r\nContent-Type: application/json\r\n"
    writer.write(head % (path.encode(), header) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    reply, _, told = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert b"application/json" in reply
    assert said in told


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/chat/completions", "Did you mean '/v1/chat/completions'?"),
        ("/v1/v1/chat/completions", "Did you mean '/v1/chat/completions'?"),
        ("/v1/chat/completions/", "Did you mean '/v1/chat/completions'?"),
        ("/v1/realtime/sessions", "/openapi.json describes all of them."),
        ("/", "/openapi.json describes all of them."),
    ],
)
async def test_an_unknown_path_comes_with_the_nearest_known_one(serve: Serve, path: str, said: str) -> None:
    response = await (await serve()).post(path, json={})
    assert response.status == 404
    assert (await response.json())["error"]["message"] == f"Unknown request URL: POST {path}. {said}"


@pytest.mark.parametrize(("text", "said"), [("x" * 600, "your prompt has 6"), ("x" * 20_000, "at least 1")])
async def test_what_is_far_too_long_is_not_read_to_its_end(serve: Serve, text: str, said: str) -> None:
    client = await serve()
    chat = [{"role": "user", "content": text}]
    for path, param, asked in ((CHAT, "messages", chat), ("/v1/completions", "prompt", text)):
        response = await client.post(path, json={"model": "tiny", param: asked})
        error = (await response.json())["error"]
        assert (response.status, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert said in error["message"]
    counted = await client.post("/tokenize", json={"model": "tiny", "prompt": text})
    assert (await counted.json())["count"] == len(text)


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

    def broken(self: Runner, chunks: Any, *run: Any, **named: Any) -> Any:
        if fail.pop() if fail else False:
            raise RuntimeError("the device is on fire")
        return real(self, chunks, *run, **named)

    monkeypatch.setattr(Runner, "run", broken)
    response = await client.post(CHAT, json=HELLO)
    assert response.status == 500
    error = (await response.json())["error"]
    assert error["type"] == "server_error"
    assert "fire" not in error["message"], "what is inside stays in the log"
    assert (await client.post(CHAT, json=HELLO)).status == 200


SPRAWLING = {"type": "object", "properties": {f"k{at}": {"type": "integer"} for at in range(700)}}
"""A form that can be begun, but of which nobody can say what may come after the first brace."""


@pytest.mark.parametrize(
    ("path", "form", "param"),
    [
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SPRAWLING}}},
            "response_format.json_schema.schema",
        ),
        (
            "/v1/responses",
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": SPRAWLING}}},
            "text.format.schema",
        ),
    ],
)
@pytest.mark.parametrize("model", ["tiny", "small"])
async def test_a_form_that_cannot_be_followed_to_its_end_is_the_clients_fault(
    serve: Serve, path: str, form: dict[str, Any], param: str, model: str
) -> None:
    client = await serve(routing={"breaker": {"failures": 1}})
    ask = {"input": "hello"} if path != CHAT else {"messages": HELLO["messages"]}
    for _ in range(2):
        response = await client.post(path, json={"model": model, **ask, **form})
        error = (await response.json())["error"]
        assert (response.status, error["code"], error["param"]) == (400, "invalid_json_schema", param)
        assert "max is 2000" in error["message"]
    assert (await gauges(client))["headgate_route_breaker_state"] == 0, "no model is worse for it"
    response = await client.post(CHAT, json=HELLO)
    assert response.status == 200


async def test_memory_for_nothing_is_a_503_and_memory_for_little_is_enough(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve()
    plain = await (await client.post(CHAT, json=HELLO)).json()
    real, fits = Runner.run, 0

    def short(self: Runner, chunks: Any, *run: Any, **named: Any) -> Any:
        if sum(chunk.count for chunk in chunks) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, chunks, *run, **named)

    monkeypatch.setattr(Runner, "run", short)
    other = {**HELLO, "messages": [{"role": "user", "content": "What else is there to say?"}]}
    response = await client.post(CHAT, json=other)
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (await response.json())["error"]["code"] == "out_of_memory"
    fits = 3
    assert (await client.post(CHAT, json=other)).status == 200
    again = await (await client.post(CHAT, json=HELLO, headers={"Cache-Control": "no-cache"})).json()
    assert again["choices"] == plain["choices"]
    assert (await gauges(client))["headgate_short_steps_total"] > 0


async def test_a_stream_that_breaks_says_so_and_does_not_finish(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve()
    read = break_third_step(monkeypatch)
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


async def test_a_client_that_has_left_before_the_head_of_a_reply_is_no_fault(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve()
    prepare = web.StreamResponse.prepare

    async def left(response: web.StreamResponse, http: web.BaseRequest) -> Any:
        if type(response) is web.StreamResponse:
            raise ClientConnectionResetError("Cannot write to closing transport")
        return await prepare(response, http)

    monkeypatch.setattr(web.StreamResponse, "prepare", left)
    body = {"model": "tiny", "input": "hello", "max_output_tokens": 4, "background": True, "stream": True}
    await client.post("/v1/responses", json=body)
    assert [record.levelname for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert 'code="499"' in await (await client.get("/metrics")).text()


@pytest.mark.parametrize("more", [{"stream": True}, {"stream": True, "background": True}])
async def test_older_clients_that_keep_connections_see_where_a_stream_ends(serve: Serve, more: dict[str, Any]) -> None:
    server = (await serve()).server
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps({"model": "tiny", "input": "hello", "max_output_tokens": 4, **more}).encode()
    head = b"POST /v1/responses HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
    writer.write(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    async with asyncio.timeout(10):
        reply = await reader.read()
    writer.close()
    assert b"keep-alive" not in reply.partition(b"\r\n\r\n")[0]
    assert b"response.completed" in reply or b"response.incomplete" in reply


async def test_a_client_that_leaves_before_the_first_token_frees_everything(serve: Serve) -> None:
    client = await serve()
    task = asyncio.create_task(client.post(CHAT, json={**HELLO, "max_tokens": 400, "ignore_eos": True}))
    await until(client, lambda g: g["headgate_requests_running"] > 0)
    task.cancel()
    await asyncio.wait([task])
    await until(client, lambda g: g["headgate_requests_running"] == 0 and g["headgate_kv_cache_usage_ratio"] == 0)


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


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the embedding package is not installed")
async def test_an_embedder_that_finds_too_many_files_open_is_loaded_later(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, said = SentenceEmbedder.load, ["Too many open files (os error 24)", ""]

    async def load(self: SentenceEmbedder) -> None:
        if error := said.pop(0):
            raise ValueError(f"the embedding model could not be loaded: {error}")
        await real(self)

    monkeypatch.setattr(SentenceEmbedder, "load", load)
    monkeypatch.setattr("headgate.gateway.embedding.embedding_model.AGAIN_S", 0.05)
    client = await serve(cache={"semantic": {"enabled": True}})
    states: dict[str, str] = {}
    async with asyncio.timeout(30):
        while "ready" not in states:
            part = (await (await client.get("/ready")).json())["parts"]["semantic cache"]
            states[part["state"]] = part["detail"]
            assert part["state"] != "failed"
    assert states["loading"] == "too many files are open; tried again every 0.05 s"
    assert not said


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
