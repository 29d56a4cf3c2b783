"""Adapters of a model as models to clients: listed, asked, allowed, priced and counted each by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from adapter_files import write_adapter
from click.testing import CliRunner
from gateway_fakes import FakeDestination
from gateway_site import Client, Serve, forget_environment, hold_steps, site
from msgspec import structs
from road_pairs import HELLO
from road_site import CLASSIFIER, RED
from team_files import key, write_team

from headgate.gateway import keys
from headgate.gateway.api.dashboard import WATCHED
from headgate.gateway.cli import main
from headgate.gateway.configuration.models import ModelSection
from headgate.gateway.road.destinations import Live
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.routing.price import Load, Rates
from headgate.routing.types import Price, Tier

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Whose are you, and since when?"}],
    "max_tokens": 8,
    "ignore_eos": True,
}
UNCACHED = {"Cache-Control": "no-cache"}
PRICE = {"usd_per_million_prompt_tokens": 3}


def base_of(checkpoint: Path, folder: Path) -> dict[str, Any]:
    """A model with two adapters, as it is configured."""
    for name, seed in (("sql", 1), ("legal", 2)):
        if not (folder / name).exists():
            write_adapter(checkpoint, folder / name, seed=seed)
    adapters = [
        {"id": "sql", "path": str(folder / "sql"), "price": PRICE},
        {"id": "legal", "path": str(folder / "legal"), "tier": "large", "lacks": ["tools"]},
    ]
    return {"id": "base", "path": str(checkpoint), "tier": "small", "adapters": adapters}


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "red-secret")
    async with AsyncExitStack() as stack:

        async def start(**sections: Any) -> Client:
            models = [base_of(tiny_checkpoint, tmp_path)]
            return await stack.enter_async_context(site(tiny_checkpoint, models=models, **sections))

        yield start


async def ask(client: Client, model: str, **headers: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    response = await client.post(CHAT, json={**ASK, "model": model}, headers=headers)
    return response.status, await response.json(), dict(response.headers)


async def test_each_is_a_model_to_clients(serve: Serve, tiny_checkpoint: Path, tmp_path: Path) -> None:
    client = await serve()
    listed = {model["id"]: model for model in (await (await client.get("/v1/models")).json())["data"]}
    assert [*listed][:3] == ["base", "sql", "legal"]
    assert [listed[name]["parent"] for name in ("base", "sql", "legal", "auto")] == [None, "base", "base", None]
    replies = {name: await ask(client, name) for name in ("base", "sql", "legal")}
    texts = {name: body["choices"][0]["message"]["content"] for name, (_, body, _) in replies.items()}
    assert all(status == 200 for status, _, _ in replies.values())
    assert all(body["model"] == name for name, (_, body, _) in replies.items())
    assert len(set(texts.values())) == 3, "no answer of one is another's, neither cached nor computed"
    assert len({body["system_fingerprint"] for _, body, _ in replies.values()}) == 3
    async with site(
        tiny_checkpoint,
        models=[{"id": "sql", "path": str(tiny_checkpoint), "adapter": str(tmp_path / "sql")}],
    ) as alone:
        merged = (await ask(alone, "sql"))[1]["choices"][0]["message"]["content"]
    assert texts["sql"] == merged

    again = await ask(client, "sql")
    assert again[1]["choices"][0]["message"]["content"] == texts["sql"]
    assert again[2]["x-headgate-cache"] == "exact"
    small, large = [(await ask(client, tier))[1]["model"] for tier in ("small", "large")]
    assert (small, large) == ("base", "legal"), "the tier is the adapter's own"
    report = await (await client.post("/admin/route", json={**ASK, "model": "auto"})).json()
    assert {entry["model"] for entry in report["destinations"]} == {"base", "legal"}


async def test_each_is_counted_by_itself_and_the_engine_once(serve: Serve) -> None:
    client = await serve()
    for name in ("sql", "sql", "legal"):
        assert (await ask(client, name, **{"Cache-Control": "no-cache"}))[0] == 200
    lines = (await (await client.get("/metrics")).text()).splitlines()
    steps = [line for line in lines if line.startswith("headgate_steps_total{")]
    assert [line.partition("}")[0] for line in steps] == ['headgate_steps_total{model="base"']
    requests = [line for line in lines if line.startswith("headgate_requests_total{") and 'model="sql"' in line]
    assert [line.rpartition(" ")[2] for line in requests] == ["2.0"]
    ready = await (await client.get("/ready")).json()
    assert {"model base", "model sql", "model legal"} <= {*ready["parts"]}
    states = (await (await client.get("/admin/models")).json())["models"]
    assert [(state["model"], state["kv_bytes"] > 0) for state in states] == [
        ("base", True), ("sql", False), ("legal", False)
    ]  # fmt: skip

    assert (await client.post("/admin/models/sleep", json={"model": "legal"})).status == 200
    states = (await (await client.get("/admin/models")).json())["models"]
    assert {state["state"] for state in states} == {"asleep"}, "they share what sleeps"
    assert (await ask(client, "sql", **{"Cache-Control": "no-cache"}))[0] == 200


async def test_what_runs_is_the_models_whichever_adapter_it_is_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve()
    held, free = hold_steps(monkeypatch, 1)
    asked = asyncio.create_task(ask(client, "sql", **UNCACHED))
    await held.wait()
    states = (await (await client.get("/admin/models")).json())["models"]
    free.set()
    assert (await asked)[0] == 200
    assert {state["model"]: state["running"] for state in states} == {"base": 1, "sql": 0, "legal": 0}


async def test_the_dashboard_counts_what_runs_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve()
    held, free = hold_steps(monkeypatch, 8)
    asked = asyncio.create_task(client.post(CHAT, json={**ASK, "model": "sql", "n": 8}, headers=UNCACHED))
    await held.wait()
    history = client.app[WATCHED].history
    history.take()
    free.set()
    assert (await asked).status == 200
    assert history.since(0)[-1].running == 8


async def test_teams_are_allowed_adapters_as_models(serve: Serve, tmp_path: Path) -> None:
    teams = tmp_path / "teams"
    write_team(teams, "red", keys=[key("RED")], models={"allow": ["sql"]})
    client = await serve(teams=teams)
    headers = {"Authorization": "Bearer red-secret"}
    assert [(await ask(client, name, **headers))[0] for name in ("sql", "base", "legal")] == [200, 403, 403]
    routes = client.app[keys.LOADER].backend.routes
    assert routes.destinations["legal"].lacks >= {"tools"}


async def test_what_shares_a_lane_is_one_load() -> None:
    """To wait for the lane's steps is to wait once, whoever of its models asks; and no model waits for itself."""
    busy = Live(Load(running=8, waiting=4, pending_tokens=900), Rates(0.03, 0.003, 0.003), "cpu")
    base, other = FakeDestination("base", stands=busy), FakeDestination("other", stands=busy)
    adapters = [FakeDestination(name, stands=structs.replace(busy, lane="base")) for name in ("sql", "legal")]

    async def prices(*destinations: FakeDestination) -> dict[str, Price | None]:
        tiers: dict[str, Tier] = {"base": "small", "sql": "small", "other": "large"}
        plan = await Routes(destinations, tiers, CLASSIFIER).plan(HELLO, None, RED)
        return {entry.destination.name: entry.destination.price for entry in plan.decision.weighed}

    alone, together = await prices(base, other), await prices(base, other, *adapters)
    assert alone["base"] is not None
    assert together == {**alone, "sql": alone["base"]}


def test_adapters_take_over_what_they_do_not_say() -> None:
    model = ModelSection(
        **{**base_of_nothing(), "lacks": ["json"], "hand_over": "No.", "price": PRICE, "sleep": {"idle_s": 9}}
    )
    base, small, large = model.models
    assert base is model
    assert (small.id, small.path, small.adapter) == ("a", "demo:student", "/a")
    assert (small.tier, small.hand_over, small.lacks, small.price) == ("small", "No.", {"json"}, model.price)
    assert (large.tier, large.hand_over, large.lacks) == (None, None, frozenset())
    assert large.price.usd_per_million_prompt_tokens == 7
    assert {each.sleep.idle_s for each in (small, large)} == {0}
    assert [m.id for m in Settings(models=(model,)).served] == ["m", "a", "b"]


def base_of_nothing() -> dict[str, Any]:
    adapters = [
        {"id": "a", "path": "/a", "tier": "small"},
        {"id": "b", "path": "/b", "lacks": [], "price": {"usd_per_million_prompt_tokens": 7}},
    ]
    return {"id": "m", "path": "demo:student", "tier": "small", "adapters": adapters}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"adapter": "/x"}, "the model 'm' has 'adapter' and 'adapters'"),
        ({"id": "b"}, "the id 'b' is given twice"),
        ({"adapters": [{"id": "auto", "path": "/a"}]}, "'auto' is a route, not an id"),
        ({"adapters": [{"id": "a"}]}, "path"),
        ({"adapters": [{"id": "a", "path": "/a", "dtype": "auto"}]}, "dtype"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Settings(models=[{**base_of_nothing(), **changes}])


def test_explaining_looks_at_adapters(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server would refuse to start with is not explained as if it were served."""
    forget_environment(monkeypatch)
    file, request = tmp_path / "headgate.yaml", tmp_path / "request.json"
    model = base_of(tiny_checkpoint, tmp_path)
    tree = {"models": [model], "cache": {"semantic": {"enabled": False}}, "teams": {"folder": None}}
    file.write_text(yaml.safe_dump(tree))
    request.write_text(json.dumps({**ASK, "model": "sql"}))
    explain = ["explain", "--request", str(request), "--config", str(file)]
    told = CliRunner().invoke(main, explain)
    assert (told.exit_code, "sql" in told.output) == (0, True), told.output
    (tmp_path / "legal" / "adapter_config.json").unlink()
    told = CliRunner().invoke(main, explain)
    assert told.exit_code != 0
    assert "adapter_config.json: the file is missing" in told.output
