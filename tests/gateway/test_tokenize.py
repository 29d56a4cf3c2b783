"""`/tokenize` and `/detokenize` over a real tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site, until
from team_files import key, write_team
from tiny_models import write_tokenizer

from headgate.engine.front.local import LocalModel
from headgate.gateway.edge.long_bodies import LONG, in_turn

Client = TestClient[Any, Any]
TEXT = "the fox, ümlaut <|im_end|>"


@pytest.fixture
async def client(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint) as running:
        yield running


async def post(client: Client, path: str, **body: Any) -> tuple[int, Any]:
    response = await client.post(path, json=body)
    return response.status, await response.json()


@pytest.mark.parametrize("model", ["tiny", "small", "auto"])
async def test_a_text_comes_back_from_its_tokens(client: Client, model: str) -> None:
    status, made = await post(client, "/tokenize", model=model, prompt=TEXT, return_token_strs=True)
    assert (status, made["count"], made["max_model_len"]) == (200, len(made["tokens"]), 512)
    assert len(made["token_strs"]) == made["count"]
    assert made["token_strs"][0] == "the"
    assert await post(client, "/detokenize", model=model, tokens=made["tokens"]) == (200, {"prompt": TEXT})


async def test_a_conversation_has_the_tokens_that_an_answer_is_billed_for(client: Client) -> None:
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
    _, made = await post(client, "/tokenize", **ask)
    reply = await (await client.post("/v1/chat/completions", json={**ask, "max_tokens": 1})).json()
    assert made["count"] == reply["usage"]["prompt_tokens"]
    assert made["token_strs"] is None
    _, read = await post(client, "/detokenize", model="tiny", tokens=made["tokens"])
    assert read["prompt"].endswith("hello<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("/tokenize", {"model": "tiny"}, 400, "invalid_value", "prompt"),
        ("/tokenize", {"model": "tiny", "prompt": "a", "messages": []}, 400, "empty_array", "messages"),
        ("/tokenize", {"model": "gpt-9", "prompt": "a"}, 404, "model_not_found", "model"),
        (
            "/tokenize",
            {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "add_special_tokens": True},
            400,
            "unsupported_parameter",
            "add_special_tokens",
        ),
        (
            "/tokenize",
            {"model": "tiny", "prompt": "a", "chat_template": "x"},
            400,
            "unsupported_parameter",
            "chat_template",
        ),
        ("/detokenize", {"model": "tiny", "tokens": [320]}, 400, "invalid_value", "tokens"),
        ("/detokenize", {"model": "tiny", "tokens": [-1]}, 400, "integer_below_min_value", "tokens[0]"),
    ],
)
async def test_what_cannot_be_read_is_refused(
    client: Client, path: str, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    got, reply = await post(client, path, **body)
    assert (got, reply["error"]["code"], reply["error"]["param"]) == (status, code, param)


async def test_a_name_that_leads_to_several_tokenizers_is_refused(
    tiny_checkpoint: Path, make_checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    other = make_checkpoint("qwen2", seed=7)
    write_tokenizer(other)
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text().replace("<|im_end|>", "<|finish|>"))
    settings = (other / "tokenizer_config.json").read_text().replace("<|im_end|>", "<|finish|>")
    (other / "tokenizer_config.json").write_text(settings)
    models = [{"id": "a", "path": str(tiny_checkpoint)}, {"id": "b", "path": str(other)}]
    async with site(tiny_checkpoint, models=models) as client:
        status, reply = await post(client, "/tokenize", model="auto", prompt="x")
        assert (status, reply["error"]["code"]) == (400, "ambiguous_tokenizer")
        assert (await post(client, "/tokenize", model="b", prompt="x"))[0] == 200


async def test_keys_are_asked_for(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "red-secret-key-1")
    write_team(tmp_path, "red", key("red"))
    async with site(tiny_checkpoint, teams=tmp_path) as client:
        for path in ("/tokenize", "/detokenize"):
            assert (await post(client, path, model="tiny"))[0] == 401


async def test_of_long_texts_two_are_counted_at_a_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, go = 0, 0, asyncio.Event()

    async def encode(_: LocalModel, text: str, **_special: bool) -> tuple[int, ...]:
        nonlocal running, most
        if len(text) > 10:
            running += 1
            most = max(most, running)
            await go.wait()
            running -= 1
        return (len(text),)

    monkeypatch.setattr(LocalModel, "encode", encode)

    async def count(text: str) -> int:
        return (await client.post("/tokenize", json={"model": "tiny", "prompt": text})).status

    long = [asyncio.create_task(count("x" * 200_000)) for _ in range(4)]
    await until(client, lambda _: running == 2)
    assert await count("short") == 200, "others are not behind them"
    go.set()
    assert await asyncio.gather(*long) == [200] * 4
    assert most == 2


async def test_a_client_that_leaves_has_its_turn_until_its_text_is_counted() -> None:
    """Its thread goes on: a few that come and leave would have all of them."""
    turns, begun, go = asyncio.Semaphore(1), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go.wait()

    leaving = asyncio.create_task(in_turn(turns, bytes(LONG + 1), work))
    await begun.wait()
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    assert turns.locked()
    go.set()
    await in_turn(turns, bytes(LONG + 1), work)
