"""Two gateways spend one budget through one Redis, one of them is killed and started again: sums stay exact."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from redis_process import running_redis
from server_process import run_server

from headgate.gateway.app import make_app
from headgate.gateway.settings import Settings
from headgate.gateway.teams.ledger import FILE

CLIENTS = 8
"""Of each gateway."""
CENT = 10_000_000
ANSWERS = 60
"""That the budget has room for: each takes five tokens of an answer, a cent, no more and no less."""


async def provider(request: web.Request) -> web.StreamResponse:
    """Says one word and that it was five tokens."""
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in (
        {"choices": [{"index": 0, "delta": {"content": "well"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
    ):
        await response.write(b"data: " + json.dumps({"object": "chat.completion.chunk", **piece}).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


async def client(url: list[str], number: int, whole: list[int], enough: asyncio.Event) -> None:
    """Asks until the budget is spent; a gateway that is away is asked again."""
    body: dict[str, Any] = {"model": "up", "max_tokens": 5, "messages": [{"role": "user", "content": f"I am {number}"}]}
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"{url[0]}/v1/chat/completions", json=body) as reply:
                    answer = await reply.json()
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
                continue
            if reply.status == 200:
                whole.append(number)
                if len(whole) == ANSWERS // 3:
                    enough.set()
            elif answer["error"]["code"] == "insufficient_quota":
                return
            else:
                assert answer["error"]["code"] == "rate_limit_exceeded", answer
                await asyncio.sleep(0.02)


def configuration(folder: Path, upstream_url: str, redis_url: str) -> dict[str, Any]:
    price = {"usd_per_million_completion_tokens": 2000}
    return {
        "server": {"replicas": 2},
        "models": [],
        "upstreams": [{"id": "up", "base_url": upstream_url, "model": "theirs", "price": price}],
        "cache": {"redis": redis_url, "redis_timeout_s": 10, "semantic": {"enabled": False}},
        "embeddings": {"enabled": False},
        "storage": {"folder": str(folder / "data")},
        "defaults": {"budgets": {"daily_usd": ANSWERS * CENT / 1e9}},
    }


def spent(folder: Path) -> dict[str, tuple[int, int]]:
    """Rows and billionths of a dollar of a ledger, by cause."""
    connection = sqlite3.connect(f"file:{folder / 'data' / FILE}?mode=ro", uri=True)
    rows = connection.execute("SELECT cause, COUNT(*), SUM(nano_usd) FROM generations GROUP BY cause").fetchall()
    connection.close()
    return {str(cause): (int(count), int(nano)) for cause, count, nano in rows}


async def test_sums_are_exact_though_one_of_two_gateways_is_killed(tmp_path: Path) -> None:
    """The one that is killed is a process; what comes after it, and the other, are served from here."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", provider)
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(running_redis(tmp_path))
        upstream = await stack.enter_async_context(TestServer(app))
        sections = [configuration(folder, str(upstream.make_url("/v1")), redis.url) for folder in folders]
        file = tmp_path / "headgate.yaml"
        file.write_text(yaml.safe_dump(sections[0]))
        environment = {"HEADGATE_CACHE__REDIS": redis.url, "HEADGATE_STORAGE__FOLDER": str(folders[0] / "data")}
        killed = stack.enter_context(run_server(folders[0], "--config", str(file), **environment))

        async def serve(settings: dict[str, Any]) -> str:
            server = TestServer(make_app(Settings(**settings)))
            await stack.enter_async_context(server)
            return str(server.make_url(""))

        urls, whole, enough = [[killed.url], [await serve(sections[1])]], list[int](), asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(2 * CLIENTS):
                group.create_task(client(urls[number % 2], number, whole, enough))
            await enough.wait()
            killed.process.kill()
            killed.process.wait()
            urls[0][0] = await serve(sections[0])
    ledgers = [spent(folder) for folder in folders]
    # What the kill cut off counts as it was set aside, which is what an answer costs here.
    assert sum(nano for ledger in ledgers for _, nano in ledger.values()) == ANSWERS * CENT
    # The killed one may not have had the time for any.
    generated = sum(ledger.get("generated", (0, 0))[0] for ledger in ledgers)
    cut, _ = ledgers[0].get("cut", (0, 0))
    assert set(ledgers[1]) == {"generated"}
    assert generated + cut == ANSWERS
    assert cut <= CLIENTS
    assert len(whole) <= generated <= len(whole) + CLIENTS, "who was killed may have settled what no client saw"
