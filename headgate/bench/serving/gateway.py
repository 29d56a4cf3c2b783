"""`headgate bench gateway`: what the gateway itself takes for a request, beside a handler that does nothing.

Answers are from the exact cache.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import write_json
from headgate.bench.serving.http_load import Load, Request, cores, load
from headgate.bench.serving.servers import Server, announced
from headgate.bench.serving.servers import gateway as running_gateway

_KEY = "bench-key-0123456789"
_BODY = json.dumps(
    {"model": "demo-student", "messages": [{"role": "user", "content": "What is 12 plus 30?"}], "max_tokens": 16}
).encode()
_REQUEST = Request("/v1/chat/completions", {"Authorization": f"Bearer {_KEY}"}, _BODY)
_SEED = b"1234567890123456"
_CLIENTS = 16
"""At a time."""
_FRESH = replace(
    _REQUEST, body=_BODY.replace(b'"model"', b'"temperature": 0, "seed": ' + _SEED + b', "model"'), fresh=_SEED
)
"""Each request with a seed of its own, which changes no answer at temperature 0: the same answer to a new body."""
_BARE = """
import asyncio, sys
import uvloop
from aiohttp import web

answers = {}

async def handler(request):
    body = await request.read()
    return web.Response(body=answers[body], content_type="application/json")

async def main():
    answers[bytes.fromhex(sys.argv[1])] = bytes.fromhex(sys.argv[2])
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()

uvloop.run(main())
"""


def _headgate_server(core: int, folder: Path) -> AbstractContextManager[Server]:
    """The gateway over the demo student, with everything counted."""
    settings = {
        "models": [{"id": "demo-student", "path": "demo:student", "tier": "small"}],
        "engine": {"threads": 1},
        "cache": {"semantic": {"enabled": False}, "redis": "off"},
        "logging": {"access": "off"},
    }
    return running_gateway(settings, folder, core, {"OMP_NUM_THREADS": "1"}, key=_KEY)


def _bare_server(core: int, folder: Path, answer: bytes) -> AbstractContextManager[Server]:
    """An aiohttp handler that finds the answer in a dict: what HTTP alone takes here."""
    return announced([sys.executable, "-c", _BARE, _BODY.hex(), answer.hex()], folder / "bare.log", core)


def _first_answer(server: Server) -> bytes:
    """Have the answer made and stored; the body of its reply from the cache."""
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        _BODY,
        {"Content-Type": "application/json", "Authorization": f"Bearer {_KEY}"},
    )
    for _ in range(2):
        with urllib.request.urlopen(request, timeout=120) as reply:
            body, verdict = reply.read(), reply.headers["x-headgate-cache"]
    if verdict != "exact":
        raise RuntimeError(f"the answer was asked for twice and not found in the cache: {verdict}")
    return bytes(body)


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over rounds, with the best and worst rate."""

    per_second: float
    least: float
    most: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Of each run.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each, by turns.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def gateway(seconds: float, rounds: int, json_file: Path | None) -> None:
    """Time answers from the exact cache over HTTP with keys, limits, budgets, ledger and metrics on.

    All clients send one body, or each request has a body that was never sent before. By turns with a bare aiohttp
    handler that finds the same answer in a dict. The server has one core, the clients another.
    """
    try:
        own, others = cores()
        with tempfile.TemporaryDirectory() as scratch, _headgate_server(own, Path(scratch)) as server:
            answer = _first_answer(server)
            with _bare_server(own, Path(scratch), answer) as bare:
                asked = {
                    "one body": (server, _REQUEST),
                    "new bodies": (server, _FRESH),
                    "one body, bare aiohttp": (bare, _REQUEST),
                }
                runs: dict[str, list[Load]] = {name: [] for name in asked}
                for round_s in (1.0, *[seconds] * rounds):
                    for name, (asks, request) in asked.items():
                        runs[name].append(load(asks, others, _CLIENTS, round_s, request))
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from None
    # The first run of each is to warm up.
    figures = {name: figures_of(loads[1:]) for name, loads in runs.items()}
    table = Table(
        "server", "hits/s", "least to most", "p50", "p99", "CPU per hit", title=f"{len(answer)} bytes of answer"
    )
    for name, f in figures.items():
        table.add_row(
            name,
            f"{f.per_second:,.0f}",
            f"{f.least:,.0f} to {f.most:,.0f}",
            f"{f.p50_ms:.2f} ms",
            f"{f.p99_ms:.2f} ms",
            f"{f.cpu_ms:.3f} ms",
        )
    console = Console(width=110)
    console.print(table)
    console.print(f"{_CLIENTS} clients, {rounds} runs of {seconds:g} s each by turns; medians of the runs.")
    write_json(json_file, {name: asdict(f) for name, f in figures.items()})


def figures_of(loads: Sequence[Load]) -> Figures:
    """The medians."""
    rates = [run.per_second for run in loads]
    return Figures(
        statistics.median(rates),
        min(rates),
        max(rates),
        statistics.median(run.percentile(0.5) for run in loads),
        statistics.median(run.percentile(0.99) for run in loads),
        statistics.median(run.cpu_ms for run in loads),
    )
