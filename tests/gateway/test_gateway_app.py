"""The whole application over a real engine with a tiny random model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gateway_site import Serve, events
from team_files import key, write_team

from headgate.engine.kernels.choice import KernelChoice
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.runner import Runner
from headgate.gateway.features import features

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


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


async def test_a_top_k_beyond_all_numbers_keeps_all_tokens(serve: Serve) -> None:
    client = await serve(cache={"exact": {"enabled": False}})
    drawn = {**HELLO, "temperature": 1.0, "seed": 5}
    bodies = (drawn, {**drawn, "top_k": 2**63 - 1}, {**drawn, "top_k": 10**30})
    replies = await asyncio.gather(*(client.post(CHAT, json=body) for body in bodies))
    assert [reply.status for reply in replies] == [200] * 3
    texts = {(await reply.json())["choices"][0]["message"]["content"] for reply in replies}
    assert len(texts) == 1, "nor does it end the answers of those in the same steps"


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


async def test_equal_prompts_of_a_body_that_is_sent_again_wait_for_each_other_no_longer(serve: Serve) -> None:
    client = await serve()
    ask = {"model": "tiny", "prompt": ["the fox", "the fox"], "max_tokens": 4}
    replies = []
    async with asyncio.timeout(60):
        for headers in ({"idempotency-key": "a"}, {"idempotency-key": "a"}, {"x-stainless-retry-count": "1"}):
            response = await client.post("/v1/completions", json=ask, headers=headers)
            replies.append([choice["text"] for choice in (await response.json())["choices"]])
    assert [len(texts) for texts in replies] == [2, 2, 2]
    assert replies[0] == replies[1]


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


async def test_a_silent_stream_gets_comments(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve(server={"keep_alive_s": 0.01})
    real = Runner.run
    loop = asyncio.get_running_loop()
    commented = asyncio.Event()
    held: list[Any] = []

    def slow(self: Runner, chunks: Any, *run: Any, **named: Any) -> Any:
        if not held:
            held.append(True)
            # The step thread waits for the client to have seen a comment.
            asyncio.run_coroutine_threadsafe(commented.wait(), loop).result(timeout=20)
        return real(self, chunks, *run, **named)

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


async def test_kernels_that_are_yet_to_be_tried_are_not_called_in_use(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve()
    found = KernelChoice(ReferenceKernels(), True, "Triton", "an L4, of compute capability 8.9")
    monkeypatch.setattr("headgate.gateway.features.choose_kernels", lambda *_: found)
    (told,) = [feature for feature in features(client.app) if feature.name == "native kernels"]
    assert told.why == "Triton, if they are right when tried on an L4, of compute capability 8.9"


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
