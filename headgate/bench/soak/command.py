"""The command: a gateway with everything on, warmed up until what it remembers is full, and looked at from then on."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path

import aiohttp
import click
from rich.console import Console
from rich.table import Table

from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import write_json
from headgate.bench.serving.http_load import cores
from headgate.bench.serving.servers import Server, announced, gateway
from headgate.bench.soak.looks import Look, Slope, growing, look, slope
from headgate.bench.soak.traffic import ask, ask_new
from headgate.gateway.teams.retries import WINDOW_S

_KEY = "soak-key-0123456789"
_MIB = 1024 * 1024
_LOOKS = 40
_CLIENTS = 16
"""At a time."""
_NEW = 17_000
"""New questions at the start: more than the gateway remembers of texts, labels or words."""
_STEP = 5_000
_LEAST_S = WINDOW_S + 10.0
"""Of the mix, before memory is compared: what is remembered for a while is the mix's by then."""
_MOST_STEPS = 60
_SETTLE_S = 0.5

Ask = Callable[[int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Soak:
    """What was seen: `kinds` counts requests by kind and status, `warm_up` how many there were before the looks."""

    warm_up: int
    warm_up_s: float
    looks: tuple[Look, ...]
    kinds: dict[str, int]
    seconds: float

    @property
    def resident(self) -> Slope:
        """Bytes in memory that a request leaves."""
        return slope([look.requests for look in self.looks], [look.resident for look in self.looks])

    @property
    def blocks(self) -> Slope:
        """Blocks of Python's objects that a request leaves."""
        return slope([look.requests for look in self.looks], [look.blocks for look in self.looks])


@click.command()
@click.option("--requests", type=click.IntRange(min=_LOOKS), default=100_000, show_default=True, help="After warm-up.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def soak(requests: int, json_file: Path | None) -> None:
    """Send requests of every kind to one gateway and look at its memory in between.

    Answers from the cache, of the small demo model and of another server, whole, streamed and left in the middle;
    responses that are stored or made in the background; refusals for model, parameter, address and key; counts
    of tokens; embeddings where there is a model for them. What the gateway remembers for a while is filled first. The
    gateway has one core, clients and the other server the other.
    """
    try:
        own, others = cores()
        with tempfile.TemporaryDirectory() as scratch, _gateway(own, others, Path(scratch)) as server:
            import uvloop

            found = uvloop.run(_soak(server, requests))
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from None
    _report(found)
    slopes = {"resident": asdict(found.resident), "blocks": asdict(found.blocks)}
    write_json(json_file, {**asdict(found), "slopes": slopes})


def _report(found: Soak) -> None:
    first, last = found.looks[0], found.looks[-1]
    memory = Table("requests", "in memory", "Python's blocks", "open files", "threads")
    for seen in found.looks[:: len(found.looks) // 10]:
        size = f"{seen.resident / _MIB:,.1f} MiB"
        memory.add_row(f"{seen.requests:,}", size, f"{seen.blocks:,}", str(seen.files), str(seen.threads))
    stores = Table("remembered", "at the start", "at the end", "of its bound")
    for name, (count, full) in sorted(last.stores.items()):
        stores.add_row(name, f"{first.stores[name][0]:,}", f"{count:,}", f"{full:.0%}")
    console = Console(width=110)
    console.print(memory, stores)
    for kind, count in sorted(found.kinds.items()):
        console.print(f"{count:>8,}  {kind}")
    resident, blocks = found.resident, found.blocks
    requests = last.requests - first.requests
    most = max(0.0, resident.high) * requests
    console.print(
        f"Each request left {blocks.each:+.3f} of Python's blocks ({blocks.low:+.3f} to {blocks.high:+.3f}, 95 %) and "
        f"{resident.each:+.1f} bytes in memory ({resident.low:+.1f} to {resident.high:+.1f}): all together at most "
        f"{most / _MIB:.1f} MiB, {most / first.resident:.2%} of what there was.\n"
        f"{found.warm_up:,} requests in {found.warm_up_s:.0f} s before, then {requests:,} of {_CLIENTS} clients in "
        f"{found.seconds:.0f} s; {date.today()}"
    )


@contextmanager
def _gateway(own: int, others: int, folder: Path) -> Iterator[Server]:
    """With everything on that a server has by default, a key, limits, a budget, and stores that are soon full."""
    mock = [sys.executable, "-m", "headgate.bench.proxy.mock"]
    with announced(mock, folder / "mock.log", others) as upstream:
        settings = {
            "models": [{"id": "demo-student", "path": "demo:student", "tier": "small"}],
            "upstreams": [
                {"id": name, "base_url": f"{upstream.url}/v1", "model": name, "context_length": 8192}
                for name in ("fixed", "paced")
            ],
            "cache": {"exact": {"max_bytes": "1MiB"}, "redis": "off"},
            "responses": {"max_bytes": "1MiB"},
            "engine": {"threads": 1, "kv_bytes": "32MiB"},
            "logging": {"file": str(folder / "access.log")},
        }
        with gateway(settings, folder, own, {"OMP_NUM_THREADS": "1"}, key=_KEY) as server:
            server.wait_until_ready()
            yield server


async def _soak(server: Server, requests: int) -> Soak:
    headers = {"Authorization": f"Bearer {_KEY}"}
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(server.url, headers=headers, timeout=timeout) as session:
        models = await (await session.get("/v1/models")).json()
        embeds = next((m["id"] for m in models["data"] if m.get("task") == "embeddings"), None)
        mixed = partial(ask, session, embeds)

        async def seen(made: int) -> Look:
            await asyncio.sleep(_SETTLE_S)
            async with session.get("/metrics") as reply:
                return look(server.pid, await reply.text(), made)

        began = time.monotonic()
        await _send(range(_NEW), partial(ask_new, session))
        warm = await _warmed_up(mixed, seen)
        warmed = time.monotonic()
        looks, kinds = [await seen(0)], Counter[str]()
        for number in range(_LOOKS):
            begin, end = (requests * at // _LOOKS for at in (number, number + 1))
            kinds += await _send(range(warm + begin, warm + end), mixed)
            looks.append(await seen(end))
    return Soak(warm, warmed - began, tuple(looks), dict(kinds), time.monotonic() - warmed)


async def _warmed_up(mixed: Ask, seen: Callable[[int], Awaitable[Look]]) -> int:
    """Send the mix until no store fills any more; how many requests there were by then.

    Raises:
        RuntimeError: some go on growing.
    """
    made, began = _NEW, time.monotonic()
    looks = [await seen(made)]
    for _ in range(_MOST_STEPS):
        await _send(range(made, made + _STEP), mixed)
        made += _STEP
        looks.append(await seen(made))
        if time.monotonic() - began >= _LEAST_S and not growing(looks[-2], looks[-1]):
            return made
    grow = ", ".join(growing(looks[-2], looks[-1]))
    raise RuntimeError(f"after {made:,} requests these stores are neither full nor as they were: {grow}")


async def _send(numbers: range, one: Ask) -> Counter[str]:
    """Each of the requests, some at a time; how many there were of each kind."""
    kinds, left = Counter[str](), iter(numbers)

    async def work_off() -> None:
        for number in left:
            kinds[await one(number)] += 1

    await asyncio.gather(*(work_off() for _ in range(_CLIENTS)))
    return kinds
