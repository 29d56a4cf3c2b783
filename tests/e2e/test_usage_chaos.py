"""A hundred clients against limits: some leave, some err, the server is killed and started again. Sums stay exact."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from server_process import ServerProcess, run_server

from headgate.gateway.teams.ledger import FILE

CLIENTS, TURNS = 100, 3
RPM, TPM = 120, 4000
PRICE = {"usd_per_million_prompt_tokens": 3.0, "usd_per_million_completion_tokens": 7.0}


@dataclass
class Seen:
    """What a client saw of a request: its status, and its account where the answer came whole."""

    id: str
    status: int
    usage: tuple[int, int] | None = None
    cost: float | None = None


async def one(session: aiohttp.ClientSession, url: str, number: int, kind: str) -> Seen:
    """A request with an id and a text of its own."""
    name = f"chaos-{number}"
    body: dict[str, Any] = {
        "model": "tiny", "messages": [{"role": "user", "content": f"request {number}"}], "temperature": 1,
        "max_tokens": 12 if kind != "leaves" else 60, "stream": kind in ("streams", "leaves"),
    }  # fmt: skip
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    if kind == "errs":
        body["max_tokens"] = -1
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body, headers={"x-request-id": name}) as reply:
            if reply.status != 200 or not body["stream"]:
                answer = await reply.json()
                if reply.status != 200:
                    return Seen(name, reply.status)
                usage = answer["usage"]
                return Seen(
                    name, 200, (usage["prompt_tokens"], usage["completion_tokens"]),
                    float(reply.headers["x-headgate-cost-usd"]),
                )  # fmt: skip
            last = None
            async for line in reply.content:
                if kind == "leaves":
                    return Seen(name, 499)
                if b'"usage":{' in line:
                    last = json.loads(line[6:])["usage"]
            assert last is not None
            return Seen(name, 200, (last["prompt_tokens"], last["completion_tokens"]))
    except (aiohttp.ClientError, ConnectionError, AssertionError):
        return Seen(name, 0)


async def storm(server: ServerProcess, first: int, seed: int, kill_after: int | None) -> list[Seen]:
    """All clients at once; the server is killed once so many answers are whole."""
    draw, seen = random.Random(seed), list[Seen]()
    whole = 0

    async def client(session: aiohttp.ClientSession, place: int) -> None:
        nonlocal whole
        for turn in range(TURNS):
            kind = draw.choice(["plain", "streams", "leaves", "errs"])
            found = await one(session, server.url, first + place * TURNS + turn, kind)
            seen.append(found)
            whole += found.usage is not None
            if whole == kill_after:
                server.process.kill()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
        await asyncio.gather(*(client(session, place) for place in range(CLIENTS)))
    return seen


def rows(path: Path) -> list[dict[str, Any]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    found = [dict(row) for row in connection.execute("SELECT * FROM generations")]
    connection.close()
    return found


@pytest.mark.parametrize("seed", [0])
def test_sums_are_exact_and_no_limit_is_passed(tiny_checkpoint: Path, tmp_path: Path, seed: int) -> None:
    config = tmp_path / "headgate.yaml"
    settings = {
        "models": [{"id": "tiny", "path": str(tiny_checkpoint), "price": PRICE}],
        "storage": {"folder": str(tmp_path / "data")},
        "cache": {"semantic": {"enabled": False}},
        "defaults": {"limits": {"requests_per_minute": RPM, "tokens_per_minute": TPM}},
    }
    config.write_text(json.dumps(settings))
    path = tmp_path / "data" / FILE

    with run_server(tmp_path, "--config", str(config)) as server:
        before = asyncio.run(storm(server, 0, seed, kill_after=15))
    killed = rows(path)
    with run_server(tmp_path, "--config", str(config)) as server:
        after = asyncio.run(storm(server, 10_000, seed + 1, kill_after=None))
        metrics = server.get("/metrics")
        assert server.terminate() == 0
    ledger = rows(path)

    for life in (before, after):
        assert sum(s.status in (200, 499) for s in life) <= RPM
        assert sum(sum(s.usage) for s in life if s.usage is not None) <= TPM
    assert {s.status for s in after} == {200, 400, 429, 499}
    assert any(s.status == 0 for s in before)

    by_id = {row["request"]: row for row in ledger}
    assert len(by_id) == len(ledger), "a request was billed twice"
    for s in (*before, *after):
        row = by_id.get(s.id)
        if s.usage is not None:
            assert row is not None
            assert (row["cause"], row["prompt_tokens"], row["completion_tokens"]) == ("generated", *s.usage)
            assert row["nano_usd"] == s.usage[0] * 3000 + s.usage[1] * 7000
            assert s.cost is None or round(s.cost * 1e9) == row["nano_usd"]
        elif s.status in (400, 429):
            assert row is None
    # What was written before the kill is there unchanged; what was under way then counts as it was set aside.
    assert [row for row in ledger if row in killed] == killed
    cut = [row for row in ledger if row["cause"] == "cut"]
    assert all(row["request"] in {s.id for s in before if s.usage is None} for row in cut)
    assert all(row["completion_tokens"] in (12, 60) for row in cut)

    lived = [row for row in ledger if row["request"] in {s.id for s in after}]
    for kind in ("prompt", "completion"):
        told = [
            float(line.rpartition(" ")[2])
            for line in metrics.splitlines()
            if line.startswith("headgate_usage_tokens_total{") and f'kind="{kind}"' in line
        ]
        assert sum(told) == sum(row[f"{kind}_tokens"] for row in lived)
