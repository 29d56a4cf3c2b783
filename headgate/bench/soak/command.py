"""`headgate bench soak`: whether what a hundred thousand requests of every kind leave behind in the gateway adds up."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from headgate.bench.http_load import Server, announced, cores

_CHAT = "/v1/chat/completions"
_KEY = "soak-key-0123456789"
_KIB, _MIB = 1024, 1024 * 1024
_LOOKS = 20
_SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """The gateway's process after so many requests: bytes in memory, open files, threads."""

    requests: int
    resident: int
    files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Soak:
    """What was seen. `kinds` counts requests by kind and status."""

    looks: tuple[Look, ...]
    kinds: dict[str, int]
    seconds: float

    @property
    def bytes_each(self) -> float:
        """What a request leaves: the slope of a line through the looks at the second half, when buffers are full."""
        late = self.looks[len(self.looks) // 2 :]
        return float(np.polyfit([look.requests for look in late], [look.resident for look in late], 1)[0])


@click.command()
@click.option("--requests", type=click.IntRange(min=_LOOKS), default=100_000, show_default=True, help="All together.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=16, show_default=True, help="Clients at a time.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
def soak(requests: int, concurrency: int, json_file: Path | None) -> None:
    """Send requests of every kind to one gateway and look at its memory in between.

    Answers from the cache, of the small demo model and of another server, whole, streamed and left in the middle;
    refusals for model, parameter, address and key; counts of tokens; embeddings where there is a model for them. The
    gateway has one core, clients and the other server the other.
    """
    try:
        own, others = cores()
        with tempfile.TemporaryDirectory() as scratch, _gateway(own, others, Path(scratch)) as server:
            import uvloop

            found = uvloop.run(_soak(server, requests, concurrency))
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from None
    table = Table("requests", "in memory", "open files", "threads")
    for look in found.looks:
        table.add_row(f"{look.requests:,}", f"{look.resident / _MIB:,.1f} MiB", str(look.files), str(look.threads))
    console = Console(width=110)
    console.print(table)
    for kind, count in sorted(found.kinds.items()):
        console.print(f"{count:>8,}  {kind}")
    console.print(
        f"{found.bytes_each:+.1f} bytes a request over the second half; {requests:,} requests of {concurrency} clients "
        f"in {found.seconds:.0f} s; {date.today()}"
    )
    if json_file is not None:
        json_file.write_text(json.dumps({**asdict(found), "bytes_each": found.bytes_each}, indent=1) + "\n")


@contextmanager
def _gateway(own: int, others: int, folder: Path) -> Iterator[Server]:
    """With everything on that a server has by default, a key, limits, a budget, and a cache that is soon full."""
    config, teams = folder / "headgate.yaml", folder / "teams"
    teams.mkdir()
    million = 1_000_000_000
    team = {
        "team": {"name": "soak"},
        "keys": [{"id": "soak", "secret": "env:SOAK_KEY"}],
        "limits": {"requests_per_minute": million, "tokens_per_minute": million, "concurrency": 10_000},
        "budgets": {"daily_usd": 100_000.0},
    }
    (teams / "soak.yaml").write_text(json.dumps(team))
    mock = [sys.executable, "-m", "headgate.bench.proxy.mock"]
    with announced(mock, others, {}, folder / "mock.log") as upstream:
        settings = {
            "models": [{"id": "demo-student", "path": "demo:student", "tier": "small"}],
            "upstreams": [
                {"id": name, "base_url": f"{upstream.url}/v1", "model": name, "context_length": 8192}
                for name in ("fixed", "paced")
            ],
            "cache": {"exact": {"max_bytes": "1MiB"}, "redis": "off"},
            "teams": {"folder": str(teams)},
            "storage": {"folder": str(folder / "data")},
            "engine": {"threads": 1},
            "logging": {"file": str(folder / "access.log")},
        }
        config.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", "0", "--config", str(config)]
        quiet = {"OMP_NUM_THREADS": "1", "SOAK_KEY": _KEY}
        with announced(command, own, quiet, folder / "server.log") as server:
            yield server


async def _soak(server: Server, requests: int, concurrency: int) -> Soak:
    kinds: Counter[str] = Counter()
    looks: list[Look] = []
    headers = {"Authorization": f"Bearer {_KEY}"}
    timeout = aiohttp.ClientTimeout(total=120)
    began, step = time.monotonic(), requests // _LOOKS
    async with aiohttp.ClientSession(server.url, headers=headers, timeout=timeout) as session:
        await _ready(session)
        models = await (await session.get("/v1/models")).json()
        embeds = next((m["id"] for m in models["data"] if m.get("task") == "embeddings"), None)
        while (start := len(looks) * step) < requests:
            end = requests if len(looks) == _LOOKS - 1 else start + step
            numbers = iter(range(start, end))
            ask = partial(_ask, session, embeds)
            await asyncio.gather(*(_work_off(numbers, ask, kinds) for _ in range(concurrency)))
            await asyncio.sleep(_SETTLE_S)
            looks.append(_look(server.pid, end))
    return Soak(tuple(looks), dict(kinds), time.monotonic() - began)


async def _ready(session: aiohttp.ClientSession) -> None:
    """Until every part that comes up by itself has."""
    while True:
        async with session.get("/ready") as reply:
            parts = (await reply.json())["parts"]
            if reply.status == 200 and not any(part["state"] == "loading" for part in parts.values()):
                return
        await asyncio.sleep(0.2)


async def _work_off(numbers: Iterator[int], ask: Callable[[int], Any], kinds: Counter[str]) -> None:
    for number in numbers:
        kinds[await ask(number)] += 1


async def _ask(session: aiohttp.ClientSession, embeds: str | None, number: int) -> str:
    """One request; what kind it was, and how it ended."""
    text = f"What is {number} plus {number % 7}?"
    small: dict[str, Any] = {"model": "demo-student", "max_tokens": 4, "temperature": 1.0}
    known = _chat("What is 12 plus 30?", model="demo-student", max_tokens=16)
    match number % 40:
        case 0:
            return await _sent(session, "model", _chat(text, **small))
        case 1:
            return await _sent(session, "model, stream", _chat(text, **small, stream=True))
        case 2:
            return await _left(session, "model", _chat(text, **{**small, "max_tokens": 200, "ignore_eos": True}))
        case 3:
            return await _sent(session, "upstream, stored", _chat(text, model="fixed", temperature=0))
        case 4:
            return await _sent(session, "upstream, stream", _chat(text, model="fixed", stream=True))
        case 5:
            return await _left(session, "upstream", _chat(text, model="paced"))
        case 6:
            return await _sent(session, "no such model", _chat(text, model=f"none-{number}"))
        case 7:
            return await _sent(session, "wrong parameter", _chat(text, **{**small, "top_p": -number}))
        case 8:
            return await _sent(session, "no such address", {}, f"/v1/nowhere/{number}")
        case 9:
            wrong = {"Authorization": f"Bearer wrong-{number}"}
            return await _sent(session, "wrong key", _chat(text, **small), headers=wrong)
        case 10:
            return await _sent(session, "count", {"model": "demo-student", "prompt": text}, "/tokenize")
        case 11 if embeds is not None:
            return await _sent(session, "embedding", {"model": embeds, "input": text}, "/v1/embeddings")
        case odd if odd % 2:
            return await _sent(session, "cached, stream", {**known, "stream": True})
        case _:
            return await _sent(session, "cached", known)


def _chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


async def _sent(
    session: aiohttp.ClientSession, kind: str, body: dict[str, Any], path: str = _CHAT, **options: Any
) -> str:
    async with session.post(path, json=body, **options) as reply:
        await reply.read()
        return f"{kind}: {reply.status}"


async def _left(session: aiohttp.ClientSession, kind: str, body: dict[str, Any]) -> str:
    """The client is gone after the first line of the stream."""
    reply = await session.post(_CHAT, json={**body, "stream": True})
    await reply.content.readline()
    reply.close()
    return f"{kind}, left: {reply.status}"


def _look(pid: int, requests: int) -> Look:
    process = Path(f"/proc/{pid}")
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Look(
        requests, int(fields["VmRSS"].split()[0]) * _KIB, len(list((process / "fd").iterdir())), int(fields["Threads"])
    )
