"""What a team used: replies, headers, metrics and ledger tell the same, to the token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from prometheus_client.parser import text_string_to_metric_families

from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {
    "model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "user": "ann",
    "metadata": {"project": "x"},
}  # fmt: skip
PRICE = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 1000.0}


@pytest.fixture
async def serve(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    models = [
        {"id": "tiny", "path": str(tiny_checkpoint), "tier": "small", "price": PRICE},
        {"id": "tiny-2", "path": str(tiny_checkpoint), "tier": "large", "price": PRICE},
    ]

    async def start(**sections: Any) -> Client:
        return await stack.enter_async_context(
            site(tiny_checkpoint, models=models, storage={"folder": str(tmp_path)}, **sections)
        )

    async with AsyncExitStack() as stack:
        yield start


async def metrics(client: Client) -> dict[tuple[str, ...], float]:
    text = await (await client.get("/metrics")).text()
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("headgate_usage", "headgate_budget", "headgate_refused", "headgate_ledger"))
        and not sample.name.endswith("_created")
    }


async def test_replies_metrics_and_ledger_agree_to_the_token(serve: Serve, tmp_path: Path) -> None:
    client = await serve()
    cost, prompt, completion = 0.0, 0, 0
    for number in range(3):
        reply = await client.post(CHAT, json={**HELLO, "temperature": 1, "seed": number})
        usage = (await reply.json())["usage"]
        prompt, completion = prompt + usage["prompt_tokens"], completion + usage["completion_tokens"]
        cost += float(reply.headers["x-headgate-cost-usd"])
    assert cost == pytest.approx(prompt * 1e-6 + completion * 1e-3)
    hit = await client.post(CHAT, json={**HELLO, "temperature": 1, "seed": 0})
    assert hit.headers["x-headgate-cost-usd"] == "0"
    usage = (await hit.json())["usage"]

    found = await metrics(client)
    name = "headgate_usage_tokens_total"
    assert found[(name, "generated", "prompt", "tiny", "default")] == prompt
    assert found[(name, "generated", "completion", "tiny", "default")] == completion
    assert found[(name, "exact", "completion", "tiny", "default")] == usage["completion_tokens"]
    assert found[("headgate_usage_usd_total", "generated", "tiny", "default")] == pytest.approx(cost)
    assert found[("headgate_ledger_failing",)] == 0

    await client.close()
    rows = {row[0]: row[1:] for row in read_usage(tmp_path / FILE, ("cause",), None, None)}
    requests, prompts, cached, completions, device_us, nano_usd, _ = rows["generated"]
    assert (requests, prompts, completions) == (3, prompt, completion)
    assert nano_usd == round(cost * 1e9)
    assert int(str(device_us)) > 0
    assert cached == found[(name, "generated", "cached", "tiny", "default")]
    assert rows["exact"] == (1, usage["prompt_tokens"], 0, usage["completion_tokens"], 0, 0, 0)
    assert read_usage(tmp_path / FILE, ("user", "team"), None, None)[0][:2] == ("ann", "default")


async def test_a_stream_tells_its_cost_at_its_end(serve: Serve) -> None:
    client = await serve()
    body = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
    reply = await client.post(CHAT, json=body)
    assert "x-headgate-cost-usd" not in reply.headers
    text = await reply.text()
    usage = json.loads(next(line[6:] for line in text.splitlines() if '"usage":{' in line))["usage"]
    expected = usage["prompt_tokens"] * 1e-6 + usage["completion_tokens"] * 1e-3
    assert f": x-headgate-cost-usd: {expected:.9f}".rstrip("0") in text
    assert text.endswith("data: [DONE]\n\n")
    hit = await client.post(CHAT, json=body)
    assert hit.headers["x-headgate-cost-usd"] == "0"


async def test_a_spent_budget_is_refused_for_good_and_the_cache_still_answers(serve: Serve) -> None:
    client = await serve(defaults={"budgets": {"daily_usd": 0.009, "soft_percent": 10}})
    first = await client.post(CHAT, json=HELLO)
    assert first.status == 200
    assert first.headers["x-headgate-budget"].startswith("daily_usd=")
    replies = [await client.post(CHAT, json={**HELLO, "seed": n, "temperature": 1}) for n in range(3)]
    refused = replies[-1]
    assert refused.status == 429
    assert refused.headers["x-should-retry"] == "false"
    error = (await refused.json())["error"]
    assert (error["type"], error["code"], error["param"]) == ("insufficient_quota", "insufficient_quota", None)
    assert "daily_usd of team 'default' is 0.009" in error["message"]
    assert (await client.post(CHAT, json=HELLO)).status == 200
    found = await metrics(client)
    assert 0 < found[("headgate_budget_used_ratio", "daily_usd", "default")] <= 1
    assert found[("headgate_refused_requests_total", "daily_usd", "default")] >= 1


async def test_a_budget_may_turn_to_the_small_model(serve: Serve) -> None:
    client = await serve(defaults={"budgets": {"daily_usd": 0.001, "on_exceed": "downgrade"}})
    body = {**HELLO, "model": "tiny-2", "temperature": 1}
    models = [(await client.post(CHAT, json={**body, "seed": n})).headers["x-headgate-model"] for n in range(3)]
    assert models == ["tiny-2", "tiny", "tiny"]


async def test_budgets_survive_a_restart(serve: Serve) -> None:
    budgets = {"budgets": {"daily_usd": 0.009}}
    client = await serve(defaults=budgets)
    statuses = [(await client.post(CHAT, json={**HELLO, "seed": n, "temperature": 1})).status for n in range(4)]
    assert statuses == [200, 200, 429, 429]
    await client.close()
    client = await serve(defaults=budgets)
    assert (await client.post(CHAT, json={**HELLO, "seed": 9, "temperature": 1})).status == 429
