"""Two gateways spend one budget through one Redis, one of them is killed and started again: sums stay exact."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from redis_process import running_redis
from server_process import ServerProcess, run_server

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


def configuration(folder: Path, upstream_url: str) -> Path:
    price = {"usd_per_million_completion_tokens": 2000}
    upstream = {"id": "up", "base_url": upstream_url, "model": "theirs", "price": price}
    path = folder / "headgate.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "server": {"replicas": 2},
                "models": [],
                "upstreams": [upstream],
                "cache": {"redis_timeout_s": 10, "semantic": {"enabled": False}},
                "embeddings": {"enabled": False},
                "defaults": {"budgets": {"daily_usd": ANSWERS * CENT / 1e9}},
            }
        )
    )
    return path


def spent(folder: Path) -> dict[str, tuple[int, int]]:
    """Rows and billionths of a dollar of a ledger, by cause."""
    connection = sqlite3.connect(f"file:{folder / 'data' / FILE}?mode=ro", uri=True)
    rows = connection.execute("SELECT cause, COUNT(*), SUM(nano_usd) FROM generations GROUP BY cause").fetchall()
    connection.close()
    return {str(cause): (int(count), int(nano)) for cause, count, nano in rows}


async def test_sums_are_exact_though_one_of_two_gateways_is_killed(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", provider)
    with running_redis(tmp_path) as redis, ExitStack() as stack:
        async with TestServer(app) as upstream:

            async def start(folder: Path) -> ServerProcess:
                config = str(configuration(folder, str(upstream.make_url("/v1"))))
                server = run_server(folder, "--config", config, HEADGATE_CACHE__REDIS=redis.url)
                return await asyncio.to_thread(stack.enter_context, server)

            first, second = await asyncio.gather(*(start(folder) for folder in folders))
            urls, whole, enough = [[first.url], [second.url]], list[int](), asyncio.Event()
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for number in range(2 * CLIENTS):
                    group.create_task(client(urls[number % 2], number, whole, enough))
                await enough.wait()
                first.process.kill()
                first.process.wait()
                urls[0][0] = (await start(folders[0])).url
    ledgers = [spent(folder) for folder in folders]
    # What the kill cut off counts as it was set aside, which is what an answer costs here.
    assert sum(nano for ledger in ledgers for _, nano in ledger.values()) == ANSWERS * CENT
    generated = sum(ledger["generated"][0] for ledger in ledgers)
    cut, _ = ledgers[0].get("cut", (0, 0))
    assert set(ledgers[1]) == {"generated"}
    assert generated + cut == ANSWERS
    assert cut <= CLIENTS
    assert len(whole) <= generated <= len(whole) + CLIENTS, "who was killed may have settled what no client saw"
