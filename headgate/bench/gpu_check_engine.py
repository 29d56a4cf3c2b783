"""`headgate bench gpu`, its timings of the engine: tokens in, tokens out, on random checkpoints."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from headgate.bench.ceilings import Ceilings
from headgate.bench.engine import EngineBench
from headgate.bench.gpu_check_stages import Line
from headgate.bench.workloads import Workload, decode
from headgate.engine.engine import Engine, EngineSettings, ModelSpec


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
    folder: Path, settings: EngineSettings, ceilings: Ceilings, work: Sequence[Workload]
) -> Iterator[Line]:
    """A line per workload: one round to warm up, which compiles what is missing, and one that counts."""
    engine = Engine(settings)
    engine.load(ModelSpec("bench", folder))
    engine.start()
    try:
        runner = EngineBench(engine, "bench")
        for workload in work:
            runner.run(workload)
            figure = runner.figure(workload, [runner.run(workload)], ceilings)
            figures = {"tokens_s": figure.tokens_s, "rate": figure.rate * 1e9, "share": figure.share}
            if figure.decode_tokens_s is not None:
                figures["decode_tokens_s"] = figure.decode_tokens_s
            text = f"{figure.tokens_s:,.0f} tokens/s, {figure.rate:,.0f} {figure.unit} ({figure.share:.0%})"
            yield Line(workload.name, f"{text}, {figure.overhead:.0%} of the time outside the forward pass", figures)
    finally:
        engine.stop()
