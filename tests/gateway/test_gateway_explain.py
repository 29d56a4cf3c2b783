"""Asking where a request would go: over HTTP, and from the command line with and without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from gateway_site import Serve, forget_environment
from team_files import key, write_team

from headgate.gateway import keys
from headgate.gateway.cli import main

STAY = {"sessions": {"switch_gain": 1}}
"""Nobody moves for a price: two models of one checkpoint cost the same, give or take."""
HELLO: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
MATHS = {**HELLO, "messages": [{"role": "user", "content": "What is 12 * 7?"}]}


def run(tmp_path: Path, body: Any, *arguments: str) -> Result:
    file = tmp_path / "request.json"
    file.write_text(body if isinstance(body, str) else json.dumps(body))
    return CliRunner().invoke(main, ["explain", "--request", str(file), *arguments])


async def test_a_server_says_where_a_request_would_go_and_does_nothing(serve: Serve) -> None:
    client = await serve()
    report = await (await client.post("/admin/route", json=MATHS)).json()
    assert (report["model"], report["reason"], report["task"]) == ("tiny-2", "task:math", "math")
    assert report["fallbacks"] == ["tiny"]
    prices = {entry["model"]: entry["price"] for entry in report["destinations"]}
    assert prices["tiny"]["score"] > 0
    assert prices["tiny"]["output_tokens"] == 4
    assert len(report["features"]) == 16
    assert len(report["config"]) == 8
    metrics = await (await client.get("/metrics")).text()
    assert "headgate_routes_total{" not in metrics
    assert "headgate_generation_tokens_total{" not in metrics


async def test_what_the_log_and_the_report_say_is_the_same(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = await serve(routing=STAY)
    report = await (await client.post("/admin/route", json=HELLO)).json()
    with caplog.at_level("INFO", "headgate.access"):
        answer = await client.post("/v1/chat/completions", json=HELLO)
        named = await client.post("/v1/chat/completions", json={**HELLO, "model": "tiny"})
    assert answer.headers["x-headgate-route"] == report["reason"] == "task:chit_chat"
    auto, by_name = (json.loads(record.message) for record in caplog.records if record.name == "headgate.access")
    assert {name: auto[name] for name in ("task", "features", "config")} == {
        name: report[name] for name in ("task", "features", "config")
    }
    assert auto["predicted_ms"] > 0
    assert named.headers["x-headgate-route"] == "requested"
    assert "features" not in by_name


async def test_resident_tokens_lower_the_price(serve: Serve) -> None:
    client = await serve(routing=STAY)
    long = {**HELLO, "messages": [{"role": "user", "content": "Hello! " * 40}]}
    before = await (await client.post("/admin/route", json=long)).json()
    await client.post("/v1/chat/completions", json=long)
    after = await (await client.post("/admin/route", json=long)).json()

    def computed(report: Any) -> dict[str, int]:
        return {entry["model"]: entry["price"]["computed_tokens"] for entry in report["destinations"]}

    assert computed(after)["tiny"] <= 16 < computed(before)["tiny"]
    assert computed(after)["tiny-2"] == computed(before)["tiny-2"]
    assert after["conversation"] == "tiny"


async def test_only_admins_may_ask_and_they_may_ask_for_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RED_KEY", "red-secret")
    monkeypatch.setenv("BOSS_KEY", "boss-secret")
    write_team(tmp_path, "red", {"id": "one", "secret": "env:RED_KEY"}, models={"allow": ["tiny"]})
    write_team(tmp_path, "ops", key("boss", role="admin"))
    client = await serve(teams=tmp_path)
    boss = {"Authorization": "Bearer boss-secret"}
    assert (await client.post("/admin/route", json=MATHS)).status == 401
    refused = await client.post("/admin/route", json=MATHS, headers={"Authorization": "Bearer red-secret"})
    assert refused.status == 403
    own = await (await client.post("/admin/route", json=MATHS, headers=boss)).json()
    theirs = await (await client.post("/admin/route?team=red&key=one", json=MATHS, headers=boss)).json()
    assert (own["model"], theirs["model"], theirs["reason"]) == ("tiny-2", "tiny", "fallback:not_allowed")
    for model, status in (("gpt-9", 404), ("tiny-2", 403)):
        named = await client.post("/admin/route?team=red", json={**MATHS, "model": model}, headers=boss)
        assert named.status == status
    assert (await client.post("/admin/route", json={"model": "auto"}, headers=boss)).status == 400
    for query, param in (("teem=red", "teem"), ("team=red&team=blue", "team"), ("team=nobody", "team")):
        reply = await client.post(f"/admin/route?{query}", json=MATHS, headers=boss)
        assert (reply.status, (await reply.json())["error"]["param"]) == (400, param)
    assert (await client.post("/admin/route?team=rde", json=MATHS, headers=boss)).status == 400


TEAM: dict[str, Any] = {
    "models": {"aliases": {"gpt-4o": "large"}, "default": "tiny"},
    "prompts": {"system_prepend": "Be brief. " * 5},
    "limits": {"max_tokens": 3, "max_n": 2},
    "experiments": {"weights": {"tiny-2": 1}},
}


async def test_a_request_is_explained_as_its_team_has_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOSS_KEY", "boss-secret")
    write_team(tmp_path, "red", **TEAM)
    write_team(tmp_path, "ops", key("boss", role="admin"))
    client = await serve(teams=tmp_path)

    async def explained(team: str = "red", **fields: Any) -> Any:
        body = {"messages": HELLO["messages"], **fields}
        boss = {"Authorization": "Bearer boss-secret"}
        return await (await client.post(f"/admin/route?team={team}", json=body, headers=boss)).json()

    def price(report: Any) -> Any:
        return next(entry["price"] for entry in report["destinations"] if entry["model"] == "tiny-2")

    alias, bare = await explained(model="gpt-4o"), await explained("ops", model="large")
    assert (alias["requested"], alias["model"], price(alias)["output_tokens"]) == ("large", "tiny-2", 3)
    assert price(bare)["computed_tokens"] < price(alias)["computed_tokens"]
    assert (await explained())["model"] == "tiny", "the default"
    dealt = await explained(model="auto")
    assert (dealt["requested"], dealt["reason"]) == ("tiny-2", "experiment"), "its arm"
    assert dealt["rule"] == "an experiment sends this conversation there"
    app: Any = client.app
    breaker = app[keys.LOADER].backend.routes.breakers["tiny-2"]
    for _ in range(3):
        breaker.failed()
    down = await explained(model="auto")
    assert (down["model"], down["reason"]) == ("tiny", "fallback:down")
    assert (await explained(model="auto", n=3))["error"]["code"] == "above_limit"


async def test_an_arm_that_is_asleep_and_is_not_to_be_woken_is_told_as_it_would_be(
    serve: Serve, tiny_checkpoint: Path
) -> None:
    models = [
        {"id": "tiny", "path": str(tiny_checkpoint), "tier": "small"},
        {"id": "arm", "path": str(tiny_checkpoint), "tier": "large", "sleep": {"on_request": "refuse"}},
    ]
    client = await serve(models=models, defaults={"experiments": {"weights": {"arm": 1}}})
    await client.post("/admin/models/sleep", json={"model": "arm"})
    asked = {**HELLO, "model": "auto"}
    told = await (await client.post("/admin/route", json=asked)).json()
    answer = await client.post("/v1/chat/completions", json=asked)
    assert (
        (told["model"], told["reason"]) == ("tiny", answer.headers["x-headgate-route"]) == ("tiny", "fallback:asleep")
    )


@pytest.mark.parametrize("model", ["auto", "small", "tiny"])
async def test_what_no_model_takes_is_refused_as_it_would_be(serve: Serve, model: str) -> None:
    client = await serve()
    long = {"model": model, "messages": [{"role": "user", "content": "Hello! " * 600}]}
    told, answer = [await client.post(path, json=long) for path in ("/admin/route", "/v1/chat/completions")]
    assert (told.status, answer.status) == (400, 400)
    assert await told.json() == await answer.json()


@pytest.mark.parametrize("on_exceed", ["block", "downgrade", "queue"])
async def test_a_spent_budget_turns_as_it_says_when_explained_too(serve: Serve, on_exceed: str) -> None:
    client = await serve(defaults={"budgets": {"daily_usd": 0, "on_exceed": on_exceed}})
    told = await client.post("/admin/route", json={**HELLO, "model": "tiny-2"})
    report = await told.json()
    if on_exceed == "block":
        answer = await client.post("/v1/chat/completions", json={**HELLO, "model": "tiny-2"})
        assert (told.status, answer.status) == (429, 429)
        assert report["error"]["code"] == "insufficient_quota"
    else:
        assert (told.status, report["model"]) == (200, {"downgrade": "tiny", "queue": "tiny-2"}[on_exceed])


async def test_the_command_asks_a_server(serve: Serve, tmp_path: Path) -> None:
    client = await serve()
    url = str(client.make_url("")).rstrip("/")
    told = await asyncio.to_thread(run, tmp_path, MATHS, "--url", url)
    assert told.exit_code == 0, told.output
    assert "model        tiny-2 (task:math)" in told.output
    missing = await asyncio.to_thread(run, tmp_path, {**MATHS, "model": "gpt-9"}, "--url", url)
    assert missing.exit_code == 1
    assert "The model 'gpt-9' does not exist" in missing.output
    unreadable = await asyncio.to_thread(run, tmp_path, "{", "--url", url)
    assert "not JSON" in unreadable.output


def test_the_command_needs_no_server(tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    config = tmp_path / "headgate.yaml"
    settings = {
        "models": [
            {"id": "tiny", "path": str(tiny_checkpoint), "tier": "small"},
            {"id": "tiny-2", "path": str(tiny_checkpoint), "tier": "large"},
        ],
        "teams": {"folder": str(tmp_path / "teams")},
        "cache": {"semantic": {"enabled": False}},
    }
    monkeypatch.setenv("K_KEY", "secret-of-k")
    write_team(tmp_path / "teams", "red", key("k", models=["tiny-2"]))
    config.write_text(yaml.safe_dump(settings))
    told = run(tmp_path, HELLO, "--config", str(config), "--json")
    assert told.exit_code == 0, told.output
    report = json.loads(told.output)
    assert (report["model"], report["reason"]) == ("tiny", "task:chit_chat")
    assert all(entry["price"]["queue_s"] == 0 for entry in report["destinations"])
    kept = run(tmp_path, HELLO, "--config", str(config), "--key", "k")
    assert "tiny-2 (fallback:not_allowed)" in kept.output
    long = {**HELLO, "messages": [{"role": "user", "content": "Hello! " * 600}]}
    for body, said in (
        ({**HELLO, "model": "gpt"}, "does not exist"),
        (long, "maximum context length"),
        ({**HELLO, "tools": [1]}, "'tools[0]'"),
    ):
        refused = run(tmp_path, body, "--config", str(config))
        assert refused.exit_code == 1
        assert said in refused.output
    assert "there is no key 'l'; the keys are k" in run(tmp_path, HELLO, "--config", str(config), "--key", "l").output
    write_team(tmp_path / "teams", "blue", **TEAM)
    aliased = run(tmp_path, {**HELLO, "model": "gpt-4o", "max_tokens": 3}, "--config", str(config), "--team", "blue")
    assert "tiny-2 (tier:large)" in aliased.output
    config.write_text(yaml.safe_dump({**settings, "routing": {"quality": "/nowhere.safetensors"}}))
    wrong = run(tmp_path, HELLO, "--config", str(config))
    assert (wrong.exit_code, wrong.output.startswith("Error: routing.quality is '/nowhere.safetensors'")) == (1, True)
    config.write_text("routing: {chain: []}")
    assert "routing.chain" in run(tmp_path, HELLO, "--config", str(config)).output
