"""`/v1/batches` over HTTP and the real road: caches, priorities, teams and refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import FormData
from aiohttp.test_utils import TestClient
from batch_site import CHAT, line
from gateway_site import forget_environment, site
from team_files import key, write_team
from upstream_server import upstream_server

ASK = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital?"}], "max_tokens": 4}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    for team in ("red", "blue", "ops"):
        monkeypatch.setenv(f"{team.upper()}_KEY", f"{team}-secret")


@pytest.fixture
def teams(tmp_path: Path) -> Path:
    folder = tmp_path / "teams"
    for team in ("red", "blue"):
        write_team(folder, team, key(team))
    write_team(folder, "ops", key("ops", role="admin"))
    return folder


def of(team: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {team}-secret"}


async def put(client: TestClient[Any, Any], data: bytes) -> str:
    form = FormData({"purpose": "batch"})
    form.add_field("file", data, filename="in.jsonl")
    reply = await client.post("/v1/files", data=form, headers=of("red"))
    return str((await reply.json())["id"])


async def begin(client: TestClient[Any, Any], data: bytes, endpoint: str = CHAT) -> dict[str, Any]:
    body = {"input_file_id": await put(client, data), "endpoint": endpoint, "completion_window": "24h"}
    reply = await client.post("/v1/batches", json=body, headers=of("red"))
    made: dict[str, Any] = await reply.json()
    assert reply.status == 200, made
    return made


async def ended(client: TestClient[Any, Any], batch: dict[str, Any]) -> dict[str, Any]:
    while batch["status"] in ("validating", "in_progress", "finalizing", "cancelling"):
        await asyncio.sleep(0.01)
        batch = await (await client.get(f"/v1/batches/{batch['id']}", headers=of("red"))).json()
    return batch


async def results(client: TestClient[Any, Any], file_id: str | None) -> dict[str, Any]:
    if file_id is None:
        return {}
    text = await (await client.get(f"/v1/files/{file_id}/content", headers=of("red"))).read()
    lines = [json.loads(one) for one in text.splitlines()]
    return {one["custom_id"]: one["response"] for one in lines}


async def test_lines_take_the_road_of_every_request(
    tiny_checkpoint: Path, tmp_path: Path, teams: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_team(teams, "red", key("red"), logging={"content": "full"})
    caplog.set_level("INFO", logger="headgate.content")
    async with site(tiny_checkpoint, storage={"folder": str(tmp_path)}, teams=teams) as client:
        direct = await (await client.post(CHAT, json=ASK, headers=of("red"))).json()
        data = b"".join(
            [
                line("cached", **ASK),
                line("two", **{**ASK, "n": 2, "seed": 1, "temperature": 1.0}),
                line("stream", **{**ASK, "stream": True}),
                line("model", **{**ASK, "model": "none"}),
                line("typo", **{**ASK, "temprature": 1}),
            ]
        )
        batch = await ended(client, await begin(client, data))
        assert batch["status"] == "completed", batch
        assert batch["request_counts"] == {"total": 5, "completed": 2, "failed": 3}
        good, bad = await results(client, batch["output_file_id"]), await results(client, batch["error_file_id"])
        assert good["cached"]["body"]["choices"] == direct["choices"]
        assert good["cached"]["body"]["usage"] == direct["usage"]
        said = {
            one["id"]: one for one in (json.loads(r.message) for r in caplog.records if r.name == "headgate.content")
        }
        assert said[good["cached"]["request_id"]]["asked"] == [ASK["messages"]]
        assert said[good["cached"]["request_id"]]["answers"] == [direct["choices"][0]["message"]["content"]]
        assert len(said[good["two"]["request_id"]]["answers"]) == 2
        assert [c["index"] for c in good["two"]["body"]["choices"]] == [0, 1]
        told = {
            name: (r["status_code"], r["body"]["error"]["param"], r["body"]["error"]["code"]) for name, r in bad.items()
        }
        assert told == {
            "stream": (400, "stream", "unsupported_parameter"),
            "model": (404, "model", "model_not_found"),
            "typo": (400, "temprature", "unknown_parameter"),
        }
        again = await client.post(CHAT, json=ASK, headers=of("red"))
        assert again.headers["x-headgate-cache"] == "exact"
        metrics = await (await client.get("/metrics")).text()
        assert 'headgate_batch_lines_total{code="200",endpoint="/v1/chat/completions",model="tiny"} 2.0' in metrics
        assert "headgate_batch_lines_in_flight 0.0" in metrics
        (shown,) = (await (await client.get("/admin/live", headers=of("ops"))).json())["batches"]
        assert (shown["id"], shown["team"], shown["status"]) == (batch["id"], "red", "completed")
        assert [shown[what] for what in ("lines", "completed", "failed", "running")] == [5, 2, 3, 0]


async def test_completions_of_several_prompts(tiny_checkpoint: Path, tmp_path: Path, teams: Path) -> None:
    ask = {"model": "tiny", "prompt": ["The capital", "One plus"], "max_tokens": 3, "logprobs": 1}
    async with site(tiny_checkpoint, storage={"folder": str(tmp_path)}, teams=teams) as client:
        batch = await ended(client, await begin(client, line("a", "/v1/completions", **ask), "/v1/completions"))
        good = await results(client, batch["output_file_id"])
        direct = await (await client.post("/v1/completions", json=ask, headers=of("red"))).json()
        said = [[(c["index"], c["text"], len(c["logprobs"]["tokens"])) for c in body["choices"]]
                for body in (good["a"]["body"], direct)]  # fmt: skip
        assert said[0] == said[1]


async def test_other_teams_do_not_see_a_batch(tiny_checkpoint: Path, tmp_path: Path, teams: Path) -> None:
    async with site(tiny_checkpoint, storage={"folder": str(tmp_path)}, teams=teams) as client:
        batch = await begin(client, line("a", **ASK))
        url = f"/v1/batches/{batch['id']}"
        for reply in (
            await client.get(url, headers=of("blue")),
            await client.post(f"{url}/cancel", headers=of("blue")),
        ):
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "not_found")
        body = {"input_file_id": batch["input_file_id"], "endpoint": CHAT, "completion_window": "24h"}
        reply = await client.post("/v1/batches", json=body, headers=of("blue"))
        assert (reply.status, (await reply.json())["error"]["code"]) == (400, "file_not_found")
        assert (await (await client.get("/v1/batches", headers=of("blue"))).json())["data"] == []
        await ended(client, batch)


async def test_what_a_batch_may_not_ask_for(tiny_checkpoint: Path, tmp_path: Path, teams: Path) -> None:
    good = {"input_file_id": "file-none", "endpoint": CHAT, "completion_window": "24h"}
    refusals: list[tuple[dict[str, Any], str, str]] = [
        ({}, "input_file_id", "file_not_found"),
        ({"endpoint": "/v1/moderations"}, "endpoint", "invalid_value"),
        ({"completion_window": "1h"}, "completion_window", "invalid_value"),
        ({"metadata": {"k": "v" * 513}}, "metadata", "string_above_max_length"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "object_above_max_length"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after.anchor", "invalid_value"),
        ({"windw": 1}, "windw", "unknown_parameter"),
    ]
    async with site(tiny_checkpoint, storage={"folder": str(tmp_path)}, teams=teams) as client:
        for change, param, code in refusals:
            reply = await client.post("/v1/batches", json={**good, **change}, headers=of("red"))
            error = (await reply.json())["error"]
            assert (reply.status, error["param"], error["code"]) == (400, param, code)
        for query in ("limit=101", "after=batch_none", "order=asc"):
            assert (await client.get(f"/v1/batches?{query}", headers=of("red"))).status == 400


async def test_a_key_that_is_gone_ends_its_batches(tiny_checkpoint: Path, tmp_path: Path, teams: Path) -> None:
    storage = {"folder": str(tmp_path)}
    async with site(tiny_checkpoint, storage=storage, teams=teams) as client:
        batch = await begin(client, b"".join(line(str(n), **{**ASK, "max_tokens": 400}) for n in range(200)))
        while batch["status"] != "in_progress":
            batch = await (await client.get(f"/v1/batches/{batch['id']}", headers=of("red"))).json()
    write_team(teams, "red", {"id": "new", "secret": "env:RED_KEY"})
    async with site(tiny_checkpoint, storage=storage, teams=teams) as client:
        batch = await ended(client, batch)
        assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", "invalid_api_key")


async def test_lines_may_have_pictures_for_a_server_that_takes_them(
    tiny_checkpoint: Path, tmp_path: Path, teams: Path
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    messages = [{"role": "user", "content": [picture]}]
    async with upstream_server() as fake:
        eyes = {"id": "eyes", "base_url": fake.url, "model": "m", "inputs": ["image"]}
        sections: dict[str, Any] = {"upstreams": [eyes], "storage": {"folder": str(tmp_path)}, "teams": teams}
        async with site(tiny_checkpoint, **sections) as client:
            data = line("eyes", model="eyes", messages=messages) + line("tiny", model="tiny", messages=messages)
            done = await ended(client, await begin(client, data))
            found = await results(client, done["output_file_id"]) | await results(client, done["error_file_id"])
            assert found["eyes"]["body"]["choices"][0]["message"]["content"] == "Hello!"
            assert found["tiny"]["body"]["error"]["param"] == "messages[0].content[0]"
            assert fake.asked[0]["messages"] == messages
