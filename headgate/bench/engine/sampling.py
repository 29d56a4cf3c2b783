"""`headgate bench sampling`: what choosing tokens takes of a step, by the compiled kernels and by stock operators."""

from __future__ import annotations

import statistics
import time
from datetime import date

import click
import torch
from rich.console import Console
from rich.table import Table

from headgate.engine.kernels.choice import choose_kernels
from headgate.engine.sampling.params import SamplingParams
from headgate.engine.sampling.sampler import Sampler, SamplingRow

_WARM_UP = 3
_SETTINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature": SamplingParams(),
    "top_k 50": SamplingParams(top_k=50),
    "top_p 0.95": SamplingParams(top_p=0.95),
    "top_k 50, top_p 0.95, min_p 0.05": SamplingParams(top_k=50, top_p=0.95, min_p=0.05),
}


@click.command()
@click.option(
    "--vocabulary", type=click.IntRange(min=1), default=151_936, show_default=True, help="Logits of each sequence."
)
@click.option("--rows", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences that get a token.")
@click.option("--spread", type=float, default=3.0, show_default=True, help="Standard deviation of the random logits.")
@click.option("--rounds", type=click.IntRange(min=1), default=21, show_default=True, help="Runs of each, by turns.")
def sampling(vocabulary: int, rows: int, spread: float, rounds: int) -> None:
    """Time the sampler on random bfloat16 logits, the kernels and stock operators by turns."""
    cpu = torch.device("cpu")
    chosen = choose_kernels("auto", cpu)
    samplers = {
        "kernels": Sampler(vocabulary, cpu, chosen.kernels),
        "stock operators": Sampler(vocabulary, cpu, choose_kernels("reference", cpu).kernels),
    }
    logits = (torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0)) * spread).bfloat16()
    table = Table(title=f"{rows} rows of {vocabulary:,} logits of spread {spread:g}, ms a step", min_width=90)
    table.add_column("settings")
    for name in samplers:
        table.add_column(f"{name} (spread)", justify="right")
    for label, params in _SETTINGS.items():
        taken: dict[str, list[float]] = {name: [] for name in samplers}
        for position in range(_WARM_UP + rounds):
            drawn = [SamplingRow(params, (), (), choice, position, 1) for choice in range(rows)]
            for name, sampler in samplers.items():
                started = time.perf_counter()
                sampler.sample(logits, drawn)
                if position >= _WARM_UP:
                    taken[name].append((time.perf_counter() - started) * 1e3)
        cells = (f"{statistics.median(t):.2f} ({min(t):.2f} to {max(t):.2f})" for t in taken.values())
        table.add_row(label, *cells)
    console = Console(width=110)
    console.print(table)
    console.print(
        f"{torch.get_num_threads()} threads; kernels: {chosen.why}; torch {torch.__version__}, {date.today()}"
    )
