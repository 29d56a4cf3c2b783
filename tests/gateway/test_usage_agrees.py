"""Whatever answers and however it ends: replies, headers, metrics and ledger tell the same, to the token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from prometheus_client.parser import text_string_to_metric_families
from upstream_server import FakeUpstream, text_event, upstream_server

from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage

Client = TestClient[Any, Any]
CHAT = "/v1/chat/completions"
LOCAL: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "temperature": 1,
    "seed": 1,
}
PRICE = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 1000.0}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
COLUMNS = ("requests", "prompt", "cached", "completion", "usd")


async def reply(client: Client, body: dict[str, Any]) -> tuple[int, int, int, float]:
    """Prompt, cached and completion tokens and the cost, as the client is told."""
    answer = await client.post(CHAT, json=body)
    text = await answer.text()
    if "stream" not in body:
        usage, cost = json.loads(text)["usage"], answer.headers["x-headgate-cost-usd"]
    else:
        usage = json.loads(next(line[6:] for line in text.splitlines() if '"usage":{' in line))["usage"]
        cost = next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(": x-headgate-cost-usd"))
    return (
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["completion_tokens"],
        float(cost),
    )


async def leave(client: Client, body: dict[str, Any], heard: bytes) -> None:
    """Ask for a stream and go away when that was heard."""
    answer = await client.post(CHAT, json={**body, "stream": True})
    await answer.content.readuntil(heard)
    answer.close()


async def metrics(client: Client) -> dict[tuple[str, str], dict[str, float]]:
    """The usage by model and cause, as Prometheus is told."""
    text = await (await client.get("/metrics")).text()
    found: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("headgate_usage_") and sample.labels.get("cause"):
                what = sample.labels.get("kind") or family.name.removeprefix("headgate_usage_")
                found.setdefault((sample.labels["model"], sample.labels["cause"]), {})[what] = sample.value
    return found


async def computed(client: Client) -> dict[str, tuple[float, float]]:
    """Tokens of prompts and of answers by model, whoever caused them, as Prometheus is told."""
    text = await (await client.get("/metrics")).text()
    found = {
        (family.name, sample.labels["model"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name in ("headgate_prompt_tokens", "headgate_generation_tokens")
    }
    models = {model for _, model in found}
    return {m: (found["headgate_prompt_tokens", m], found["headgate_generation_tokens", m]) for m in models}


async def settled(client: Client, *ended: tuple[str, str]) -> dict[tuple[str, str], dict[str, float]]:
    """The same, once these are in it: what a client left is settled a moment later."""
    async with asyncio.timeout(20):
        while True:
            found = await metrics(client)
            if set(ended) <= set(found):
                return found


async def endless(fake: FakeUpstream, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in ("one ", "two "):
        await response.write(text_event(piece))
    await fake.left.wait()
    return response


async def test_replies_metrics_and_ledger_agree(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    told: dict[tuple[str, str], list[tuple[int, int, int, float]]] = {}
    async with upstream_server() as fake:
        fake.usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
        parts: dict[str, Any] = {
            "models": [{"id": "tiny", "path": str(tiny_checkpoint), "price": PRICE}],
            "upstreams": [{"id": "up", "base_url": fake.url, "model": "theirs", "price": PRICE}],
            "storage": {"folder": str(tmp_path)},
        }
        async with site(tiny_checkpoint, **parts) as client:
            upstream = {**LOCAL, "model": "up"}
            for key, body in (
                (("tiny", "generated"), {**LOCAL, "max_tokens": 4}),
                (("tiny", "generated"), {**LOCAL, "max_tokens": 7, "n": 2, **STREAM}),
                (("up", "generated"), upstream),
                (("up", "generated"), {**upstream, "seed": 2, **STREAM}),
                (("up", "exact"), upstream),
                (("tiny", "exact"), {**LOCAL, "max_tokens": 4}),
            ):
                told.setdefault(key, []).append(await reply(client, body))
            fake.script = lambda request, _: endless(fake, request)
            await leave(client, {**upstream, "seed": 3}, b"two ")
            await leave(client, {**LOCAL, "seed": 3, "max_tokens": 400, "ignore_eos": True}, b"content")
            counted = await settled(client, ("up", "cancelled"), ("tiny", "cancelled"))
            tokens = await computed(client)

    rows = read_usage(tmp_path / FILE, ("model", "cause"), None, None)
    ledger = {(str(model), str(cause)): counts for model, cause, *counts in rows}
    assert set(ledger) == set(counted) == {*told, ("up", "cancelled"), ("tiny", "cancelled")}
    for key, (requests, prompts, cached, completions, _, nano_usd, _) in ledger.items():
        found = counted[key]
        assert (found["requests"], found["prompt"], found["completion"]) == (requests, prompts, completions), key
        assert (found.get("cached", 0), found.get("usd", 0)) == (cached, pytest.approx(float(str(nano_usd)) / 1e9)), key
    for key, replies in told.items():
        requests, prompts, cached, completions, _, nano_usd, _ = ledger[key]
        sums = [sum(column) for column in zip(*replies, strict=True)]
        assert (len(replies), sums[0], sums[2]) == (requests, prompts, completions), key
        assert (0.0 if key[1] == "exact" else sums[3]) == pytest.approx(float(str(nano_usd)) / 1e9), key
        assert key[1] == "exact" or sums[1] == cached, key
    for model, sums in tokens.items():
        causes = [ledger[model, cause] for cause in ("generated", "cancelled")]
        assert sums == tuple(sum(int(str(counts[at])) for counts in causes) for at in (1, 3)), model
    assert ledger["up", "cancelled"][3] == 2, "the two pieces that came"
    assert int(str(ledger["tiny", "cancelled"][3])) > 0


async def test_an_answer_that_was_left_and_asked_for_again_is_billed_once(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    models = [{"id": "tiny", "path": str(tiny_checkpoint), "price": PRICE}]
    body = {**LOCAL, **STREAM, "max_tokens": 400, "ignore_eos": True}
    async with site(tiny_checkpoint, models=models, storage={"folder": str(tmp_path)}) as client:
        await leave(client, body, b"content")
        left = (await settled(client, ("tiny", "cancelled")))["tiny", "cancelled"]
        prompt, _, completion, usd = await reply(client, body)
        counted = await metrics(client)
    assert 0 < left["completion"] < completion == 400
    # The prompt was billed before, and the tokens that the first attempt came to.
    again, paid = counted["tiny", "retried"], counted["tiny", "generated"]
    assert (again["requests"], again["prompt"], again["completion"]) == (0, prompt, left["completion"])
    assert (paid["requests"], paid["prompt"], paid["completion"]) == (1, 0, completion - left["completion"])
    assert (paid["usd"], left["usd"] + usd) == (pytest.approx(usd), pytest.approx(prompt * 1e-6 + completion * 1e-3))
    rows = read_usage(tmp_path / FILE, ("cause",), None, None)
    ledger = {str(cause): [float(str(count)) for count in counts] for cause, *counts in rows}
    for cause, of in (("cancelled", left), ("retried", again), ("generated", paid)):
        requests, prompts, _, completions, _, nano_usd, _ = ledger[cause]
        found = of["requests"], of["prompt"], of["completion"], of.get("usd", 0)
        assert found == (requests, prompts, completions, pytest.approx(nano_usd / 1e9)), cause
