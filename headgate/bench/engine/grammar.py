"""`headgate bench grammar`: what holding answers to a form costs, beside the same decoding without."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from headgate.bench import ceilings
from headgate.bench.checkpoints import model_folder
from headgate.bench.engine.speed import EngineBench, started
from headgate.bench.engine.workloads import Prompts, Workload
from headgate.bench.options import at_once, model_option, weights_option
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import ModelSpec
from headgate.engine.text.answer_grammar import json_grammar

ENTRY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["person", "place", "thing"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99999},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
    },
    "required": ["name", "kind", "count", "tags"],
    "additionalProperties": False,
}
LONG = {"type": "array", "items": ENTRY, "minItems": 10_000}
"""Never complete, so that every answer has all of its tokens."""
MOST_LOST = 0.05
"""Share of tokens/s that a form may cost."""


@click.command()
@model_option("qwen3-0.6b")
@weights_option("int8")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 8),
    show_default=True,
    help="Answers at the same time.",
)
@click.option("--new", type=click.IntRange(min=2), default=64, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Pairs, in alternation.")
def grammar(model: str, weights: WeightFormat, batch: tuple[int, ...], new: int, rounds: int) -> None:
    """Decode with and without a JSON schema, round by round in alternation: greedy, random prompts, no cache hits."""
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as scratch:
        spec = ModelSpec("bench", model_folder(model, Path(scratch)), weights=weights)
        with started(at_once(max(batch)), spec) as engine:
            info = engine.models["bench"].info
            runner, prompts = EngineBench(engine, "bench"), Prompts(min(info.vocab_size, 3000))
            form = asyncio.run(engine.models["bench"].grammar(json_grammar(LONG)))
            console.print(
                f"{model}, {info.dtype}, weights {weights}, vocabulary {info.vocab_size}, {new} tokens an answer"
            )
            for size in batch:
                workload = Workload(f"b{size}", ((32, new),) * size)
                taken: dict[bool, list[float]] = {False: [], True: []}
                for round_number in range(1 + rounds):
                    for held in (False, True):
                        timing = runner.time(list(prompts.fill(workload)), form if held else None)
                        if round_number:
                            taken[held].append(timing.decode_tokens / timing.decode_s)
                lost = [1 - held / free for free, held in zip(taken[False], taken[True], strict=True)]
                console.print(
                    f"  batch {size:2}: {statistics.median(taken[False]):8,.1f} tokens/s without, "
                    f"{statistics.median(taken[True]):8,.1f} with a schema: "
                    f"{statistics.median(lost):+.1%} lost ({min(lost):+.1%} to {max(lost):+.1%}; goal {MOST_LOST:.0%})"
                )
    cpu = torch.device("cpu")
    console.print(
        f"{ceilings.device_name(cpu)}, {torch.get_num_threads()} threads; torch {torch.__version__}, {date.today()}"
    )
