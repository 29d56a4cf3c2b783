"""Keys, limits, budgets and logs of teams for what upstreams serve beside chats."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from gateway_site import forget_environment, site
from passing_upstream import KEY, PassingUpstream, answering, before, passing_upstream, refused, saying, upload
from team_files import key, write_team

from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("UP_KEY", KEY)
    monkeypatch.setenv("RED_KEY", "secret-of-red")


@pytest.fixture
async def fake() -> AsyncIterator[PassingUpstream]:
    async with passing_upstream() as running:
        yield running


async def test_teams_have_their_models_limits_and_budgets_here_too(fake: PassingUpstream, tmp_path: Path) -> None:
    price = {
        "usd_per_million_prompt_tokens": 1000,
        "usd_per_request": 0.001,
        "usd_per_image": 0.02,
        "usd_per_million_characters": 15,
        "usd_per_audio_minute": 0.006,
    }
    write_team(
        tmp_path / "teams", "red", key("red"), budgets={"daily_usd": 0.2}, models={"aliases": {"whisper-1": "other"}},
        limits={"per_user": {"requests_per_minute": 1}},
    )  # fmt: skip
    data = tmp_path / "data"
    parts: dict[str, Any] = {"teams": tmp_path / "teams", "storage": {"folder": str(data)}}
    async with before(fake, {"price": price, "retries": {"most": 0}}, **parts) as client:
        assert (await client.post("/v1/rerank", json={"model": "other"})).status == 401
        client.session.headers["Authorization"] = "Bearer secret-of-red"

        async def cost(path: str, **asked: Any) -> str | None:
            async with client.post(path, **asked) as reply:
                await reply.read()
                return reply.headers.get("x-headgate-cost-usd")

        vectors = {"model": "other", "input": "x", "user": "ann"}
        assert await cost("/v1/embeddings", json=vectors) == "0.013", "12 tokens and a request"
        found = await refused(client, "/v1/embeddings", json={**vectors, "input": "y"})
        assert found[:2] == (429, "rate_limit_exceeded")
        assert await cost("/v1/audio/transcriptions", data=upload(model="whisper-1")) == "0.01", "a minute and a half"
        spoken = {"model": "other", "input": "1234567890" * 10}
        assert await cost("/v1/audio/speech", json=spoken) == "0.0025"
        assert await cost("/v1/images/generations", json={"model": "other", "prompt": "x", "n": 3}) == "0.061"
        # A retry of what its client did not get is not billed again.
        fake.script = answering(500)
        assert await cost("/v1/images/generations", json={"model": "other", "prompt": "y"}) is None
        fake.script = None
        found = await refused(client, "/v1/images/generations", json={"model": "other", "prompt": "x", "n": 7})
        assert found[1] == "insufficient_quota"
        assert "this request may take 0.141" in found[3]
    (row,) = read_usage(data / FILE, ("model",), None, None)
    assert (row[0], row[1], row[2], row[6]) == ("other", 4, 12, 13_000_000 + 10_000_000 + 2_500_000 + 61_000_000)


async def test_as_many_pictures_as_choices_may_be_asked_for(fake: PassingUpstream) -> None:
    async with before(fake, {}, defaults={"limits": {"max_n": 2}}) as client:
        for path, form in (("/v1/images/generations", False), ("/v1/images/edits", True)):
            for count, status in ((2, 200), (3, 400)):
                asked = {"model": "other", "prompt": "x", "n": count}
                sent: dict[str, Any] = (
                    {"data": upload(**{k: str(v) for k, v in asked.items()})} if form else {"json": asked}
                )
                reply = await client.post(path, **sent)
                assert reply.status == status
                if status == 400:
                    error = (await reply.json())["error"]
                    assert (error["param"], error["code"]) == ("n", "above_limit")
                    assert "Invalid 'n': 3. At most 2" in error["message"]


async def test_a_client_that_leaves_pays_for_what_was_begun_and_once(fake: PassingUpstream, tmp_path: Path) -> None:
    async def endless(request: Any) -> Any:
        response = await saying("data: {}\n\n")(request)
        await fake.left.wait()
        return response

    parts: dict[str, Any] = {"storage": {"folder": str(tmp_path)}}
    asked = {"model": "other", "input": "x"}
    async with before(fake, {"price": {"usd_per_request": 0.001}}, **parts) as client:
        # Each form has a boundary of its own.
        for path, again in (
            ("/v1/audio/speech", lambda: {"json": asked}),
            ("/v1/audio/transcriptions", lambda: {"data": upload(), "headers": {"idempotency-key": "one"}}),
        ):
            fake.script = endless
            fake.left.clear()
            reply = await client.post(path, **again())
            await reply.content.readany()
            reply.close()
            await fake.left.wait()
            fake.script = None
            assert (await client.post(path, **again())).status == 200
        other = {"data": upload(language="en"), "headers": {"idempotency-key": "one"}}
        assert (await refused(client, "/v1/audio/transcriptions", **other))[:2] == (422, "idempotency_key_reused")
    causes = {row[0]: (row[1], row[6]) for row in read_usage(tmp_path / FILE, ("cause",), None, None)}
    assert causes == {"cancelled": (2, 2_000_000), "generated": (2, 0)}


async def test_an_answer_that_was_had_is_made_again_for_nothing_once(fake: PassingUpstream) -> None:
    async with before(fake, {"price": {"usd_per_image": 0.5}}) as client:
        asked = {"json": {"model": "other", "prompt": "x"}, "headers": {"idempotency-key": "one"}}
        replies = [await client.post("/v1/images/generations", **asked) for _ in range(4)]
        assert [reply.headers["x-headgate-cost-usd"] for reply in replies] == ["0.5", "0", "0.5", "0.5"]


async def test_a_key_without_the_model_may_not_ask_it(fake: PassingUpstream, tmp_path: Path) -> None:
    served = {"base_url": fake.url, "model": "theirs", "serves": ["rerank"]}
    upstreams = [{"id": name, **served} for name in ("one", "two")]
    write_team(tmp_path, "red", key("red"), models={"allow": ["one"]})
    async with site(Path("unused"), models=[], upstreams=upstreams, teams=tmp_path) as client:
        client.session.headers["Authorization"] = "Bearer secret-of-red"
        assert (await client.post("/v1/rerank", json={"model": "one"})).status == 200
        status, code, _, message = await refused(client, "/v1/rerank", json={"model": "two"})
        assert (status, code) == (403, "not_permitted")
        assert "Available: one." in message
        assert [m["id"] for m in (await (await client.get("/v1/models")).json())["data"]] == ["one"]


async def test_a_teams_default_is_asked_where_it_serves_what_is_asked_for(fake: PassingUpstream) -> None:
    section = {"serves": ["moderations", "embeddings"]}
    async with before(
        fake, section, defaults={"models": {"aliases": {"usual": "other"}, "default": "usual"}}
    ) as client:
        for path in ("/v1/moderations", "/v1/embeddings"):
            reply = await client.post(path, json={"input": "x"})
            assert (reply.status, reply.headers["x-headgate-model"]) == (200, "other")
    async with before(fake, section, defaults={"models": {"default": "auto"}}) as client:
        found = await refused(client, "/v1/moderations", json={"input": "x"})
        assert found[:3] == (400, "missing_required_parameter", "model")
        assert found[3].endswith("Available: other.")


async def test_who_waits_holds_his_place(fake: PassingUpstream) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(_request: Any) -> Any:
        asked.set()
        await answer.wait()
        return web.json_response({"results": []})

    fake.script = slow
    ask: dict[str, Any] = {"json": {"model": "other"}}
    async with before(fake, defaults={"limits": {"concurrency": 1}}) as client:
        first = asyncio.create_task(client.post("/v1/rerank", **ask))
        await asked.wait()
        status, code, _, message = await refused(client, "/v1/rerank", **ask)
        assert (status, code) == (429, "rate_limit_exceeded")
        assert "requests at the same time" in message
        answer.set()
        assert (await first).status == 200
        assert (await client.post("/v1/rerank", **ask)).status == 200


async def test_tokens_are_set_aside_by_the_length_of_texts(fake: PassingUpstream) -> None:
    async with before(fake, defaults={"limits": {"tokens_per_minute": 40}}) as client:
        long = {"model": "other", "query": "x" * 400, "documents": []}
        status, code, _, message = await refused(client, "/v1/rerank", json=long)
        assert (status, code) == (429, "rate_limit_exceeded")
        assert "may take 120, prompt and answer" in message
        ids = {"model": "other", "input": [[1, 2, True, "x" * 30], ["x" * 358, 3]]}
        _, _, _, message = await refused(client, "/v1/embeddings", json=ids)
        assert "may take 120, prompt and answer" in message, "three ids are twelve letters"
        picture = {"model": "other", "input": [{"image_url": {"url": f"data:image/png;base64,{'A' * 4000}"}}]}
        assert (await client.post("/v1/moderations", json=picture)).status == 200, "a picture is no text"
        assert (await client.post("/v1/rerank", json={"model": "other"})).status == 200
        assert (await client.post("/v1/embeddings", json={"model": "other", "input": "x" * 60})).status == 429


async def test_a_spent_budget_has_no_smaller_model_here(
    fake: PassingUpstream, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    write_team(tmp_path, "red", key("red"), budgets={"daily_usd": 0.01, "on_exceed": "downgrade"})
    served = {"base_url": fake.url, "model": "theirs", "serves": ["rerank"], "price": {"usd_per_request": 0.01}}
    async with site(tiny_checkpoint, upstreams=[{"id": "one", **served}], teams=tmp_path) as client:
        client.session.headers["Authorization"] = "Bearer secret-of-red"
        assert (await client.post("/v1/rerank", json={"model": "one"})).status == 200
        assert (await refused(client, "/v1/rerank", json={"model": "one"}))[:2] == (429, "insufficient_quota")


async def test_what_was_asked_is_logged_for_teams_that_want_it(
    fake: PassingUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with before(fake, logging={"content": "redacted"}) as client:
        with caplog.at_level("INFO", logger="headgate.content"):
            picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
            await client.post("/v1/moderations", json={"model": "other", "input": ["call 555 1234567", picture]})
            await client.post("/v1/audio/transcriptions", data=upload())
            deep = b'{"model": "other", "input": ' + b"[" * 900 + b"]" * 900 + b"}"
            asked = {"data": deep, "headers": {"Content-Type": "application/json"}}
            assert (await client.post("/v1/moderations", **asked)).status < 500
    said, *_ = [json.loads(r.message) for r in caplog.records if r.name == "headgate.content"]
    shown = {"type": "image_url", "image_url": {"url": "[data]"}}
    assert said["asked"] == {"model": "other", "input": ["call [number]", shown]}
