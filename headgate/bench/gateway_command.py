"""`headgate bench gateway`: the table of what the gateway takes for a request."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from headgate.bench.gateway import FRESH, REQUEST, bare_server, first_answer, headgate_server
from headgate.bench.http_load import Load, cores, load
from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import write_json


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
@click.option("--concurrency", type=click.IntRange(1, 1024), default=16, show_default=True, help="Clients at a time.")
@click.option("--seconds", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Of each run.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each, by turns.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
def gateway(concurrency: int, seconds: float, rounds: int, json_file: Path | None) -> None:
    """Time answers from the exact cache over HTTP with keys, limits, budgets, ledger and metrics on.

    All clients send one body, or each request has a body that was never sent before. By turns with a bare aiohttp
    handler that finds the same answer in a dict. The server has one core, the clients another.
    """
    try:
        own, others = cores()
        with tempfile.TemporaryDirectory() as scratch, headgate_server(own, Path(scratch)) as server:
            answer = first_answer(server)
            with bare_server(own, Path(scratch), answer) as bare:
                asked = {
                    "one body": (server, REQUEST),
                    "new bodies": (server, FRESH),
                    "one body, bare aiohttp": (bare, REQUEST),
                }
                runs: dict[str, list[Load]] = {name: [] for name in asked}
                for round_s in (1.0, *[seconds] * rounds):
                    for name, (asks, request) in asked.items():
                        runs[name].append(load(asks, others, concurrency, round_s, request))
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
    console.print(f"{concurrency} clients, {rounds} runs of {seconds:g} s each by turns; medians of the runs.")
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
