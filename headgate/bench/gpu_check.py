"""`headgate bench gpu`: everything that a machine with a GPU is asked, in one call of less than nine minutes.

It imports nothing but the engine and what that needs, so that `python -m headgate.bench.gpu_check` also runs on a bare
GPU host, where the gateway's packages are missing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import date
from functools import partial
from pathlib import Path

import click
import torch
from rich.console import Console

from headgate.bench.gpu.apart import Apart
from headgate.bench.gpu.course import stages
from headgate.bench.gpu.goals import against_goals
from headgate.bench.gpu.stages import Outcome, Stage, run_stages
from headgate.bench.options import FILE_TO_WRITE, terminable
from headgate.bench.output import write_json

_PATIENCE = 3
"""A stage may take so many times what must be left for it to begin, but for the last not beyond the budget."""


@click.command()
@click.option(
    "--json",
    "json_file",
    type=FILE_TO_WRITE,
    help="Write all results here, stage by stage.",
)
@click.option("--budget", type=click.FloatRange(min=1), default=510, show_default=True, help="Seconds for everything.")
@click.option("--only", multiple=True, help="Stages whose names contain this; all by default.")
def gpu(json_file: Path | None, budget: float, only: tuple[str, ...]) -> None:
    """Check the Triton kernels on this machine's GPU, then time them and the engine.

    Kernels against float64, greedy answers against transformers, then times beside those of plain torch, as shares of
    the bandwidth and of the bfloat16 product that are measured first. Ends with 1 if something is wrong or was not run,
    with 2 where there is no CUDA device.
    """
    names = [stage.name for stage in stages(Path())]
    for part in only:
        if not any(part in name for name in names):
            raise click.BadParameter(
                f"no stage has {part!r} in its name; they are {', '.join(names)}", param_hint="--only"
            )
    if not torch.cuda.is_available():
        click.echo("headgate bench gpu needs a CUDA device, and torch sees none here", err=True)
        sys.exit(2)
    console, outcomes = Console(width=150), list[Outcome]()
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": str(date.today()),
    }
    console.print(", ".join(f"{value}" for value in about.values()))

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print_outcome(outcome, console)
        # After each stage: a call that is cut off leaves what it had.
        write_json(json_file, {**about, "stages": [each.as_json() for each in outcomes]})

    with terminable(), tempfile.TemporaryDirectory() as scratch:
        apart, end = Apart(partial(stages, Path(scratch))), time.monotonic() + budget
        course = [
            Stage(s.name, s.seconds, partial(apart.lines, s.name, _PATIENCE * s.seconds, end))
            for s in stages(Path(scratch))
            if not only or any(part in s.name for part in ("ceilings", *only))
        ]
        try:
            run_stages(course, budget, report)
        finally:
            apart.close()
    # By the figures that are there: nothing is run any more.
    report(Outcome("goals on an H200", 0.0, tuple(against_goals(outcomes))))
    sys.exit(0 if all(outcome.ok for outcome in outcomes) else 1)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """A line per result, what is wrong marked as such."""
    console.print(f"{outcome.name}: {outcome.seconds:.1f} s{f', {outcome.failure}' if outcome.failure else ''}")
    for line in outcome.lines:
        console.print(f"  {'' if line.ok else 'WRONG '}{line.name}: {line.text}", highlight=False)


if __name__ == "__main__":
    gpu()
