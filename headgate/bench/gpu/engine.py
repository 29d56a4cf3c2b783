"""`headgate bench gpu`, its timings of the engine: tokens in, tokens out, on random checkpoints."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType

from headgate.bench.ceilings import Ceilings
from headgate.bench.engine.speed import EngineBench, started
from headgate.bench.engine.workloads import Workload, decode
from headgate.engine.engine import Engine
from headgate.engine.kernels.checks.line import Line
from headgate.engine.models.weights.tensors import CheckpointTensors, Tensors
from headgate.engine.settings import EngineSettings, ModelSpec


def workloads(longest: int = 1024, sequences: int = 256) -> tuple[Workload, ...]:
    """One prompt of eight times `longest`, decoding by batch, then `sequences` prompts and answers of 100 to `longest`.

    The last is the script that nano-vllm and mini-sglang publish, its lengths drawn with seed 0.
    """
    draw = random.Random(0)
    lengths = tuple((draw.randint(100, longest), draw.randint(100, longest)) for _ in range(sequences))
    return (
        Workload(f"prompt of {8 * longest}", ((8 * longest, 1),)),
        *(decode(batch) for batch in (1, 8, 32, 128)),
        Workload(f"{sequences} sequences", lengths),
    )


def engine_speed(
    folder: Path,
    settings: EngineSettings,
    ceilings: Ceilings,
    work: Sequence[Workload],
    tensors: Callable[[Path], Tensors] = CheckpointTensors,
    profiled: Sequence[Workload] = (),
) -> Iterator[Line]:
    """A line per workload: one round to warm up, which compiles what is missing, and one that counts.

    Then where the device's time goes in those that are `profiled`.
    """
    with started(settings, ModelSpec("bench", folder), tensors=tensors) as engine:
        yield from recorded(engine)
        runner = EngineBench(engine, "bench")
        for workload in work:
            runner.run(workload)
            figure = runner.figure(workload, [runner.run(workload)], ceilings)
            figures = {"tokens_s": figure.tokens_s, "rate": figure.rate * 1e9, "share": figure.share}
            if figure.decode_tokens_s is not None:
                figures["decode_tokens_s"] = figure.decode_tokens_s
            alone = "" if figure.decode_tokens_s is None else f" ({figure.decode_tokens_s:,.1f} when decoding alone)"
            text = f"{figure.tokens_s:,.0f} tokens/s{alone}, {figure.rate:,.0f} {figure.unit} ({figure.share:.0%})"
            yield Line(workload.name, f"{text}, {figure.overhead:.0%} of the time outside the forward pass", figures)
        for workload in profiled:
            runner.run(workload)
            yield from _profile(engine, runner, workload)


def _profile(engine: Engine, runner: EngineBench, workload: Workload) -> Iterator[Line]:
    """A line per kernel, those that take most; none of the CPU's."""
    kind = torch.profiler.ProfilerActivity
    before = engine.models["bench"].stats().steps
    with torch.profiler.profile(activities=[kind.CUDA if engine.device.type == "cuda" else kind.CPU]) as profiler:
        total = runner.run(workload).total_s
    steps = engine.models["bench"].stats().steps - before
    ran: list[Any] = [e for e in profiler.events() if e.device_type == DeviceType.CUDA]
    spans = [(e.name, e.time_range.start / 1e6, e.time_range.end / 1e6) for e in ran]
    yield from kernel_shares(f"profile, {workload.name}", kernel_turns(spans), steps, total)


def kernel_turns(spans: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, int]]:
    """Of (kernel, start, end): (kernel and what ended before it, seconds by which it ended later, launches).

    A launch may begin before the one before it has ended, and then waits for it: only from there on it counts, so that
    all together are the seconds in which the device was busy.
    """
    found: dict[str, tuple[float, int]] = {}
    before, latest = "nothing", -math.inf
    for kernel, start, end in sorted(spans, key=lambda span: span[2]):
        name = f"{kernel[:60]} behind {before[:60]}"
        seconds, count = found.get(name, (0.0, 0))
        found[name] = seconds + end - max(start, latest), count + 1
        before, latest = kernel, end
    return [(name, seconds, count) for name, (seconds, count) in found.items()]


def kernel_shares(
    name: str, spent: Sequence[tuple[str, float, int]], steps: int, total_s: float, most: int = 20
) -> Iterator[Line]:
    """How busy the device was, then the `most` dearest of its (kernel, seconds, launches)."""
    busy = sum(seconds for _, seconds, _ in spent)
    text = f"{steps} steps of {total_s / steps * 1e6:,.0f} µs, the device busy for {busy / total_s:.0%} of them"
    yield Line(name, text, {"steps": steps, "seconds": total_s, "busy_seconds": busy})
    for kernel, seconds, count in sorted(spent, key=lambda each: -each[1])[:most]:
        text = f"{seconds / steps * 1e6:,.1f} µs a step, {seconds / busy:.0%}, {count / steps:.1f} launches"
        yield Line(f"{name}: {kernel}", text, {"seconds": seconds, "launches": count})


def recorded(engine: Engine) -> Iterator[Line]:
    """Wait until steps are recorded that are to be; how long that took."""
    model, began = engine.models["bench"], time.perf_counter()
    left = model.stats().unrecorded
    while model.stats().unrecorded:
        time.sleep(0.02)
    if left:
        seconds = time.perf_counter() - began
        yield Line("recording", f"{left} sizes of steps in {seconds:.1f} s", {"sizes": left, "seconds": seconds})
