"""The operator's page: what it shows is what /metrics and the ledger say, and a request is explained by its id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from prometheus_client.parser import text_string_to_metric_families
from team_files import key, write_team
from upstream_server import streamed, upstream_server

from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
CHAT = "/v1/chat/completions"
PRICE = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 1000.0}


def chat(text: str, model: str = "auto", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0, **more}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer sk-{name}-0123456789abcdef"}


@pytest.fixture
async def serve(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    for name in ("ann", "bob", "ops"):
        monkeypatch.setenv(f"{name.upper()}_KEY", f"sk-{name}-0123456789abcdef")
    write_team(tmp_path / "teams", "red", key("ann"), budgets={"daily_usd": 2.0, "soft_percent": 50})
    write_team(tmp_path / "teams", "blue", key("bob"), limits={"requests_per_minute": 2})
    write_team(tmp_path / "teams", "staff", key("ops", role="admin"))
    models = [
        {"id": "tiny", "path": str(tiny_checkpoint), "tier": "small", "price": PRICE},
        {"id": "tiny-2", "path": str(tiny_checkpoint), "tier": "large", "price": PRICE},
    ]

    async def start(**sections: Any) -> Client:
        chosen = {"models": models, "storage": {"folder": str(tmp_path / "data")}, "teams": tmp_path / "teams"}
        return await stack.enter_async_context(site(tiny_checkpoint, **{**chosen, **sections}))

    async with AsyncExitStack() as stack:
        yield start


async def ask(client: Client, who: str, text: str, model: str = "auto", **more: Any) -> tuple[str, int]:
    reply = await client.post(CHAT, json=chat(text, model, **more), headers=bearer(who))
    await reply.read()
    return reply.headers["x-request-id"], reply.status


async def told(client: Client, path: str, who: str = "ops") -> Any:
    reply = await client.get(path, headers=bearer(who))
    assert reply.status == 200, await reply.text()
    return await reply.json()


async def metrics(client: Client) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(await (await client.get("/metrics")).text()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def test_the_figures_are_those_of_prometheus_and_of_the_ledger(serve: Serve, tmp_path: Path) -> None:
    retries = {"most": 1, "first_wait_s": 0.01}
    away = {"id": "away", "base_url": "http://127.0.0.1:1/v1", "model": "m", "retries": retries}
    client = await serve(upstreams=[away])
    for text in ("one", "two", "two", "what is a prime number"):
        assert (await ask(client, "ann", text))[1] == 200
    failed, status = await ask(client, "ann", "one", "away")
    assert status >= 500
    assert [(await ask(client, "bob", "one", "tiny"))[1] for _ in range(3)] == [200, 200, 429]
    shown, scraped = await told(client, "/admin/live"), await metrics(client)

    def total(name: str, **where: str) -> float:
        return sum(value for labels, value in scraped[name] if where.items() <= labels.items())

    traffic = shown["traffic"]
    assert traffic["requests"] == total("headgate_requests_total", endpoint=CHAT) == 8
    assert traffic["failed"] == 1
    assert traffic["refused"] == total("headgate_requests_total", code="429") == 1
    assert traffic["prompt_tokens"] == total("headgate_prompt_tokens_total")
    assert traffic["generated_tokens"] == total("headgate_generation_tokens_total")
    computed = total("headgate_time_to_first_token_seconds_count", source="computed")
    assert traffic["first_token"]["count"] == computed == 4
    assert traffic["in_flight"] == 0
    for model in shown["models"]:
        name = model["id"]
        assert model["requests"] == total("headgate_requests_total", model=name)
        assert model["generated_tokens"] == total("headgate_generation_tokens_total", model=name)
        assert model["inter_token"]["count"] == total("headgate_inter_token_latency_seconds_count", model=name)
        if name == "away":
            attempts = total("headgate_upstream_attempts_total", model=name, end="unreachable")
            assert (model["upstream"]["ends"], model["kv_usage"]) == ({"unreachable": attempts}, None)
            in_vain = (await told(client, f"/admin/requests/{failed}"))["failed"]
            assert [(one["model"], one["end"]) for one in in_vain] == [("away", "unreachable")] * int(attempts)
            times = [one[at] for one in in_vain for at in ("begin_s", "end_s")]
            assert times == sorted(times), "one after the other"
            assert attempts == 2
            continue
        assert (model["upstream"], model["state"]) == (None, "ready")
        assert model["kv_usage"] == total("headgate_kv_cache_usage_ratio", model=name)
    for entry in shown["cache"]["lookups"]:
        labels = {"verdict": entry["verdict"], "reason": entry["reason"]}
        assert entry["count"] == total("headgate_cache_lookups_total", **labels)
    assert sum(entry["count"] for entry in shown["cache"]["lookups"]) == total("headgate_cache_lookups_total") == 7
    assert shown["cache"]["saved_device_s"] == total("headgate_cache_saved_device_seconds_total") > 0
    for route in shown["routes"]:
        labels = {"model": route["model"], "reason": route["reason"]}
        assert route["requests"] == total("headgate_routes_total", **labels)
        assert route["saved_device_s"] == sum(
            value for has, value in scraped.get("headgate_route_saved_device_seconds", []) if labels == has
        )

    teams = {team["name"]: team for team in shown["teams"]}
    assert teams.keys() == {"red", "blue", "staff"}
    for name, team in teams.items():
        assert team["usd"] == sum(v for has, v in scraped["headgate_usage_usd_total"] if has["team"] == name)
    assert teams["blue"]["refused"] == {"requests": total("headgate_refused_requests_total", team="blue")}
    (budget,) = teams["red"]["budgets"]
    assert budget["spent"] / budget["limit"] == total("headgate_budget_used_ratio", team="red")

    await client.close()
    for team, requests, prompt, _, completion, device_us, nano_usd, _ in read_usage(
        tmp_path / "data" / FILE, ("team",), None, None
    ):
        found = teams[str(team)]
        assert (found["requests"], found["prompt_tokens"], found["completion_tokens"]) == (requests, prompt, completion)
        assert found["device_s"] == pytest.approx(int(str(device_us)) / 1e6)
        assert found["usd"] == pytest.approx(int(str(nano_usd)) / 1e9)
        if team == "red":
            assert budget["spent"] == pytest.approx(found["usd"])


async def test_requests_are_explained_by_their_ids_for_administrators(serve: Serve) -> None:
    client = await serve(dashboard={"requests": 6})

    # A generation: every stage from where the one before ended, and what was settled in each.
    request_id, _ = await ask(client, "ann", "write a function that adds two numbers", stream=True)
    found = await told(client, f"/admin/requests/{request_id}")
    line, stages = found["request"], {stage["name"]: stage for stage in found["stages"]}
    assert (line["team"], line["key"], line["status"], line["stream"]) == ("red", "ann", 200, True)
    assert list(stages)[:3] == ["admit", "cache", "route"]
    assert list(stages)[-2:] == ["prompt", "answer"]
    ends = [stage["end_s"] for stage in found["stages"]]
    assert [stage["begin_s"] for stage in found["stages"]] == [0.0, *ends[:-1]]
    assert ends == sorted(ends)
    assert ends[-1] == line["total_s"]
    assert stages["prompt"]["end_s"] == line["first_token_s"]
    assert found["cache"]["verdict"] == line["verdict"] == "miss"
    assert (found["route"]["model"], found["route"]["reason"]) == (line["model"], line["route"])
    assert {entry["model"] for entry in found["route"]["destinations"]} == {"tiny", "tiny-2"}

    # A hit and a refusal show how far they came.
    await ask(client, "ann", "again")
    hit, _ = await ask(client, "ann", "again")
    found = await told(client, f"/admin/requests/{hit}")
    assert [stage["name"] for stage in found["stages"]] == ["admit", "cache", "reply"]
    assert (found["cache"]["verdict"], found["cache"]["reason"], found["route"]) == ("exact", "stored", None)
    for _ in range(2):
        await ask(client, "bob", "again", "tiny")
    refused, status = await ask(client, "bob", "again", "tiny")
    found = await told(client, f"/admin/requests/{refused}")
    assert (status, found["request"]["error"], found["cache"]) == (429, "rate_limit_exceeded", None)
    assert [stage["name"] for stage in found["stages"]] == ["admit"]

    # The list has the latest first, of what is asked for.
    listed = await told(client, "/admin/requests")
    assert (len(listed["requests"]), listed["remembered"]) == (6, 6)
    assert [line["id"] for line in listed["requests"]][::5] == [refused, request_id]
    assert [line["id"] for line in (await told(client, "/admin/requests?status=refused"))["requests"]] == [refused]
    red_hits = await told(client, "/admin/requests?verdict=exact&team=red")
    assert [line["id"] for line in red_hits["requests"]] == [hit]
    assert len((await told(client, "/admin/requests?limit=2"))["requests"]) == 2

    # The oldest leaves when there is no room.
    await ask(client, "ann", "one more")
    gone = await client.get(f"/admin/requests/{request_id}", headers=bearer("ops"))
    assert (gone.status, (await gone.json())["error"]["code"]) == (404, "request_not_found")

    # What is not understood is named, and the figures are for administrators.
    for path, param in (
        ("/admin/live?after=-1", "after"),
        ("/admin/live?before=1", "before"),
        ("/admin/requests?limit=0", "limit"),
        ("/admin/requests?status=good", "status"),
    ):
        reply = await client.get(path, headers=bearer("ops"))
        assert (reply.status, (await reply.json())["error"]["param"]) == (400, param)
    for path in ("/admin/live", "/admin/requests", "/admin/requests/x"):
        assert (await client.get(path)).status == 401
        assert (await client.get(path, headers=bearer("ann"))).status == 403

    # The page itself is for all: it holds nothing, and runs nothing but its own scripts.
    page = await client.get("/dashboard")
    assert await (await client.get("/dashboard/")).text() == await page.text()
    assert (page.status, page.content_type) == (200, "text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert not {"unsafe-inline", "unsafe-eval", "http:", "https:", "*"} & set(policy.replace("'", "").split())
    again = await client.get("/dashboard", headers={"If-None-Match": page.headers["ETag"]})
    assert (again.status, await again.read()) == (304, b"")
    assert (await client.get("/dashboard/index.htm")).status == 404


async def test_an_attempt_in_vain_stands_where_it_was_on_the_way(serve: Serve) -> None:
    left = [2]

    async def script(http: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        if left[0]:
            left[0] -= 1
            raise web.HTTPServiceUnavailable(headers={"retry-after-ms": "20"})
        return await streamed(http, upstream.events())

    async with upstream_server() as upstream:
        upstream.script = script
        client = await serve(upstreams=[{"id": "up", "base_url": upstream.url, "model": "theirs", "tier": "large"}])
        request_id, status = await ask(client, "ann", "hello", "up")
        found = await told(client, f"/admin/requests/{request_id}")
    assert (status, [(entry["model"], entry["end"]) for entry in found["failed"]]) == (200, [("up", "overloaded")] * 2)
    stages = {stage["name"]: stage for stage in found["stages"]}
    assert list(stages) == ["admit", "cache", "route", "queue", "prompt", "answer"]
    first, second = found["failed"]
    # It waits from its first attempt on until it is asked the time that it answers.
    assert stages["route"]["end_s"] <= first["begin_s"] == stages["queue"]["begin_s"]
    assert first["end_s"] + 0.02 <= second["begin_s"] <= second["end_s"] <= stages["queue"]["end_s"] - 0.02
    assert stages["queue"]["end_s"] == stages["prompt"]["begin_s"]


async def test_an_open_server_shows_its_figures_to_this_machine_and_not_to_pages_of_others(serve: Serve) -> None:
    client = await serve(teams=None)
    assert (await told(client, "/admin/live"))["config"]["open"]
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
        assert (await client.get("/admin/live", headers={"Host": host})).status == 200
    for host in ("rebound.example", "localhost.example:8000", "192.0.2.1", ""):
        assert (await client.get("/admin/live", headers={"Host": host})).status == 403


async def test_it_can_be_switched_off(serve: Serve) -> None:
    client = await serve(dashboard={"enabled": False})
    assert (await ask(client, "ann", "one"))[1] == 200
    for path in ("/dashboard", "/dashboard/base.css", "/admin/live", "/admin/requests"):
        assert (await client.get(path, headers=bearer("ops"))).status == 404
