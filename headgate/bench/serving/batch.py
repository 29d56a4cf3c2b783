"""`headgate bench batch`: a batch in idle capacity, and what users notice of it, by turns on one server."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import aiohttp
import click
from rich.console import Console

from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import at_share, table_of, write_json
from headgate.bench.serving.serve import server
from headgate.bench.serving.servers import Server
from headgate.engine.demo import checkpoint

_CHAT = "/v1/chat/completions"
_LINES = 10_000
_QUESTION = "Which of these numbers is the largest, and why: {}, {} or {}?"
_LEAST_S = 2.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a user, streamed. Seconds."""

    first_s: float
    total_s: float
    longest_gap_s: float
    """Between two pieces."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All rounds together."""

    without: list[Asked]
    beside: list[Asked]
    idle_tokens_s: list[float]
    """Of the batch, while nobody asks; one for each round."""
    beside_tokens_s: list[float]
    """Of the batch, while users ask."""


@click.command()
@click.option(
    "--model", type=click.Choice(["small", "large"]), default="large", show_default=True, help="Of the demo pair."
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians are over these.")
@click.option("--requests", type=click.IntRange(min=1), default=20, show_default=True, help="Of a user, in each part.")
@click.option("--pause", type=click.FloatRange(min=0), default=0.2, show_default=True, help="Seconds between them.")
@click.option("--new", type=click.IntRange(min=1), default=32, show_default=True, help="Tokens of each answer.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def batch(model: str, rounds: int, requests: int, pause: float, new: int, json_file: Path | None) -> None:
    """A batch of 10,000 lines beside a user who asks one question after the other.

    Each round has three parts: the user alone, the user beside the running batch, the batch alone.
    """
    folder = checkpoint("student" if model == "small" else "teacher")
    with tempfile.TemporaryDirectory() as scratch, server(folder, "native", Path(scratch)) as running:
        figures = asyncio.run(_measure(running, rounds, requests, pause, new))
    _show(figures, model)
    write_json(json_file, asdict(figures))


async def _measure(running: Server, rounds: int, requests: int, pause: float, new: int) -> Figures:
    figures = Figures([], [], [], [])
    async with aiohttp.ClientSession(running.url, timeout=aiohttp.ClientTimeout(total=600)) as session:
        file_id = await _upload(session, new)
        await _ask(session, new, 0)  # the first request of a server pays for what is prepared once
        for number in range(rounds):
            asked = 1 + 2 * number * requests
            figures.without.extend(await _user(session, requests, pause, new, asked))
            batch_id = await _begin(session, file_id)
            started, tokens = time.perf_counter(), await _tokens(session, batch_id)
            figures.beside.extend(await _user(session, requests, pause, new, asked + requests))
            between, so_far = time.perf_counter(), await _tokens(session, batch_id)
            await asyncio.sleep(max(_LEAST_S, between - started))
            end, total = time.perf_counter(), await _tokens(session, batch_id)
            figures.beside_tokens_s.append((so_far - tokens) / (between - started))
            figures.idle_tokens_s.append((total - so_far) / (end - between))
            await _cancel(session, batch_id)
    return figures


async def _upload(session: aiohttp.ClientSession, new: int) -> str:
    lines = []
    for number in range(_LINES):
        question = _QUESTION.format(number, number + 7, number * 3)
        body = _body(question, new)
        lines.append(json.dumps({"custom_id": str(number), "method": "POST", "url": _CHAT, "body": body}))
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", "\n".join(lines), filename="lines.jsonl")
    async with session.post("/v1/files", data=form) as reply:
        reply.raise_for_status()
        return str((await reply.json())["id"])


async def _begin(session: aiohttp.ClientSession, file_id: str) -> str:
    """A batch that has answered its first lines."""
    ask = {"input_file_id": file_id, "endpoint": _CHAT, "completion_window": "24h"}
    async with session.post("/v1/batches", json=ask) as reply:
        reply.raise_for_status()
        batch_id = str((await reply.json())["id"])
    while not await _tokens(session, batch_id):  # noqa: ASYNC110  another process does it
        await asyncio.sleep(0.05)
    return batch_id


async def _tokens(session: aiohttp.ClientSession, batch_id: str) -> int:
    async with session.get(f"/v1/batches/{batch_id}") as reply:
        found = await reply.json()
        if found["status"] not in ("validating", "in_progress"):
            raise click.ClickException(f"the batch is {found['status']}: {found['errors']}")
        return int(found["usage"]["output_tokens"])


async def _cancel(session: aiohttp.ClientSession, batch_id: str) -> None:
    status = "cancelling"
    async with session.post(f"/v1/batches/{batch_id}/cancel") as reply:
        reply.raise_for_status()
    while status == "cancelling":
        async with session.get(f"/v1/batches/{batch_id}") as reply:
            status = (await reply.json())["status"]
        await asyncio.sleep(0.05)


async def _user(session: aiohttp.ClientSession, count: int, pause: float, new: int, first: int) -> list[Asked]:
    asked = []
    for number in range(first, first + count):
        asked.append(await _ask(session, new, number))
        await asyncio.sleep(pause)
    return asked


async def _ask(session: aiohttp.ClientSession, new: int, number: int) -> Asked:
    body = {**_body(f"User {number}: {_QUESTION.format(number, 2 * number, 5)}", new), "stream": True}
    began = last = time.perf_counter()
    first, longest = 0.0, 0.0
    async with session.post(_CHAT, json=body) as reply:
        reply.raise_for_status()
        async for line in reply.content:
            if b'"content":"' not in line or b'"content":""' in line:
                continue
            now = time.perf_counter()
            if not first:
                first = now - began
            else:
                longest = max(longest, now - last)
            last = now
    return Asked(first, time.perf_counter() - began, longest)


def _body(question: str, new: int) -> dict[str, object]:
    messages = [{"role": "user", "content": question}]
    return {"model": "bench", "messages": messages, "max_tokens": new, "ignore_eos": True, "temperature": 0}


def _show(figures: Figures, model: str) -> None:
    title = f"a user beside a batch of {_LINES:,} lines, {model} demo model"
    table = table_of(title, ("milliseconds",), ("alone", "beside the batch", "more"), min_width=90)
    for name, field in (
        ("to the first text", "first_s"),
        ("whole answer", "total_s"),
        ("longest gap", "longest_gap_s"),
    ):
        for share, label in ((0.5, "median"), (0.95, "p95")):
            alone, beside = (
                at_share([getattr(a, field) for a in part], share) for part in (figures.without, figures.beside)
            )
            cells = (f"{1e3 * alone:.1f}", f"{1e3 * beside:.1f}", f"{1e3 * (beside - alone):+.1f}")
            table.add_row(f"{name}, {label}", *cells)
    console = Console(width=110)
    console.print(table)
    idle, shared = figures.idle_tokens_s, figures.beside_tokens_s
    console.print(
        f"The batch: {statistics.median(idle):.0f} tokens/s ({min(idle):.0f} to {max(idle):.0f}) while nobody asks, "
        f"{statistics.median(shared):.0f} ({min(shared):.0f} to {max(shared):.0f}) beside the user; "
        f"{len(figures.beside)} requests each way, {date.today()}"
    )
