"""`headgate bench gpu`: everything that a machine with a GPU is asked, in one call of less than nine minutes.

It imports nothing but the engine and what that needs, so that `python -m headgate.bench.gpu_check` also runs on a bare
GPU host, where the gateway's packages are missing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path

import click
import torch
from rich.console import Console

from headgate.bench.ceilings import Ceilings
from headgate.bench.checkpoints import write_random
from headgate.bench.gpu_check_engine import engine_speed, workloads
from headgate.bench.gpu_check_kernels import Draw, Sizes, kernel_checks
from headgate.bench.gpu_check_parity import parity
from headgate.bench.gpu_check_speed import attention_work, gpu_ceilings, linear_work, mixture_work, row_work, timed
from headgate.bench.gpu_check_stages import Line, Outcome, Stage, run_stages
from headgate.engine.engine import EngineSettings
from headgate.engine.kernels.choice import KernelSet, choose_kernels
from headgate.engine.quant.linear import WeightFormat

_KINDS: tuple[KernelSet, KernelSet] = "triton", "reference"
_ROUNDED: tuple[WeightFormat, ...] = "int8", "int4"
_MIXTURE = Sizes(hidden=2048)
"""Qwen3-30B-A3B's."""
_KV_BYTES = 32 << 30
"""For nearly all of 256 sequences of Qwen3-0.6B at once, and few enough for a GPU of 48 GB."""


@click.command()
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
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
        if json_file is not None:
            # After each stage: a call that is cut off leaves what it had.
            content = {**about, "stages": [each.as_json() for each in outcomes]}
            json_file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as scratch:
        chosen = [s for s in stages(Path(scratch)) if not only or any(part in s.name for part in ("ceilings", *only))]
        run_stages(chosen, budget, report)
    sys.exit(0 if all(outcome.ok for outcome in outcomes) else 1)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """A line per result, what is wrong marked as such."""
    console.print(f"{outcome.name}: {outcome.seconds:.1f} s{f', {outcome.failure}' if outcome.failure else ''}")
    for line in outcome.lines:
        console.print(f"  {'' if line.ok else 'WRONG '}{line.name}: {line.text}", highlight=False)


def stages(scratch: Path) -> Iterator[Stage]:
    """The ceilings, which later stages need, then what is most worth knowing first."""
    device = torch.device("cuda")
    measured = list[Ceilings]()

    def ceilings() -> Iterator[Line]:
        found = gpu_ceilings(device, median_seconds)
        measured.append(found)
        figures = {"bytes_s": found.read_bytes_s, "bfloat16_flops": found.peak("bfloat16")}
        yield Line("copy", f"{found.read_bytes_s / 1e12:.2f} TB/s", figures)
        yield Line("bfloat16 product", f"{found.peak('bfloat16') / 1e12:.0f} TFLOP/s")

    yield Stage("ceilings", 10, ceilings)
    for dtype in (torch.bfloat16, torch.float32):
        yield Stage(f"kernels, {dtype}", 30, partial(_checked, device, dtype))
    yield Stage("parity", 40, partial(parity, "triton", "cuda"))
    yield Stage("speed of kernels", 60, lambda: _timed(device, measured[0]))
    for shape in ("qwen3-0.6b", "qwen3-moe"):
        for kernels in _KINDS:
            yield Stage(
                f"speed of the engine, {shape}, {kernels}",
                60,
                partial(_engine, shape, kernels, scratch, measured),
            )


def _checked(device: torch.device, dtype: torch.dtype) -> Iterator[Line]:
    with torch.inference_mode():
        yield from kernel_checks(choose_kernels("triton", device).kernels, device, dtype, Sizes())


def _timed(device: torch.device, ceilings: Ceilings) -> Iterator[Line]:
    ours, plain = (choose_kernels(kind, device).kernels for kind in _KINDS)
    draw, sizes = Draw(device, torch.bfloat16), Sizes()
    with torch.inference_mode():
        for work in chain(
            *(row_work(draw, sizes, tokens) for tokens in (1, 128, 8192)),
            attention_work(draw, sizes, (1, 8, 32, 128), 1024, 8192),
            *(linear_work(draw, (ours, plain), 4096, 14336, fmt, (1, 4, 16, 256)) for fmt in _ROUNDED),
            mixture_work(draw, _MIXTURE, (ours, plain), "native", (1, 4, 32, 128, 2048)),
            *(mixture_work(draw, _MIXTURE, (ours, plain), fmt, (1, 32)) for fmt in _ROUNDED),
        ):
            yield timed(work, ours, plain, ceilings, median_seconds)


def _engine(shape: str, kernels: KernelSet, scratch: Path, measured: list[Ceilings]) -> Iterator[Line]:
    settings = EngineSettings(
        device="cuda", kernels=kernels, prefix_cache=False, max_running=256, max_step_tokens=8192, kv_bytes=_KV_BYTES
    )
    return engine_speed(write_random(shape, scratch), settings, measured[0], workloads())


def median_seconds(call: Callable[[], object]) -> float:
    """Of a call on the GPU, by its events, with the second-level cache emptied before each."""
    from triton.testing import do_bench

    return float(do_bench(call, return_mode="median")) / 1e3


if __name__ == "__main__":
    gpu()
