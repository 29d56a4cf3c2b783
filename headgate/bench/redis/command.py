"""`headgate bench redis`: the tables of two gateways on one Redis."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import write_json
from headgate.bench.redis.measure import PHASES, SETTLE_S, FaultFigures, Shown, faults, shown, site


@click.command()
@click.option("--pairs", type=click.IntRange(1, 30), default=30, show_default=True, help="Questions that are shared.")
@click.option("--seconds", type=click.FloatRange(min=3), default=30.0, show_default=True, help="Of the fault run.")
@click.option("--clients", type=click.IntRange(min=1), default=8, show_default=True, help="Of the fault run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the texts asked.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def redis(pairs: int, seconds: float, clients: int, seed: int, json_file: Path | None) -> None:
    """Run two gateways on one Redis: how soon they share answers, and what killing Redis under load costs."""
    try:
        with tempfile.TemporaryDirectory() as folder, Console(stderr=True).status("two gateways on one Redis"):
            sharing, fault = asyncio.run(_run(Path(folder), pairs, seconds, clients, seed))
    except (FileNotFoundError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None
    console = Console(width=110)
    _print_sharing(console, sharing)
    _print_faults(console, fault)
    write_json(json_file, {"sharing": asdict(sharing), "faults": asdict(fault)})


async def _run(folder: Path, pairs: int, seconds: float, clients: int, seed: int) -> tuple[Shown, FaultFigures]:
    async with site(folder) as made:
        return await shown(made, pairs), await faults(made, seconds, clients, seed)


def _print_sharing(console: Console, sharing: Shown) -> None:
    table = Table("what one stored, the other served", "questions", "median", "slowest", title="Sharing")
    for name, times in (("to the same words", sharing.exact), ("to other words", sharing.semantic)):
        if times:
            table.add_row(
                name, str(len(times)), f"{statistics.median(times) * 1e3:.0f} ms", f"{max(times) * 1e3:.0f} ms"
            )
    console.print(table)
    for count, words in ((sharing.unserved_exact, "the same words"), (sharing.unserved, "other words")):
        if count:
            console.print(f"{count} questions in {words} were not served within a second.")


def _print_faults(console: Console, fault: FaultFigures) -> None:
    table = Table("Redis", "requests", "failed", "hits", "median", "slowest", title="Redis killed and restarted empty")
    for name in PHASES:
        phase = fault.phases[name]
        hits = phase.verdicts.get("exact", 0) + phase.verdicts.get("semantic", 0)
        table.add_row(
            name,
            str(len(phase.seconds)),
            str(sum(phase.failed.values())),
            str(hits),
            f"{statistics.median(phase.seconds) * 1e3:.0f} ms" if phase.seconds else "",
            f"{max(phase.seconds) * 1e3:.0f} ms" if phase.seconds else "",
        )
    console.print(table)
    late = f"not within {SETTLE_S:.0f} s"
    back = ", ".join(late if seconds is None else f"{seconds:.2f} s" for seconds in fault.recovered_s)
    console.print(f"Used again after the restart by: {back}.")
    held = " and ".join(str(count) for count in fault.indexed)
    after = late if fault.settled_s is None else f"{fault.settled_s * 1e3:.0f} ms after the load"
    console.print(f"Redis then held {fault.stored} vectors, the indexes {held}: the same {after}.")
