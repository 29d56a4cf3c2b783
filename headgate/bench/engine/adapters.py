"""`headgate bench adapters`: what rows with adapters of their own cost beside the bare model and a merged one."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import click
import torch
from rich.console import Console
from safetensors.torch import save_file

from headgate.bench.checkpoints import model_folder
from headgate.bench.engine.speed import EngineBench, Timing, Tokens
from headgate.bench.engine.workloads import Prompts, Workload
from headgate.bench.options import at_once, model_option, weights_option
from headgate.engine.engine import Engine
from headgate.engine.models.weights.tensors import CheckpointTensors
from headgate.engine.quant.linear import WeightFormat
from headgate.engine.settings import ModelSpec

_PROMPT = 32
_RANK = 16
_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@click.command()
@model_option("qwen3-0.6b")
@weights_option("int8")
@click.option("--adapters", "count", type=click.IntRange(min=1), default=8, show_default=True, help="How many.")
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True, help="Answers at the same time.")
@click.option("--new", type=click.IntRange(min=2), default=64, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Of all kinds, by turns.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
def adapters(
    model: str,
    weights: WeightFormat,
    count: int,
    batch: int,
    new: int,
    rounds: int,
    device: str,
    threads: int | None,
) -> None:
    """Generate answers by the bare model, by merged ones, by one adapter and by all adapters in one batch.

    Greedy, random prompts, no cache hits, random factors.
    """
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(model, Path(scratch))
        names = [f"adapter-{number}" for number in range(count)]
        folders = {name: write_adapter(folder, Path(scratch) / name, _RANK, seed) for seed, name in enumerate(names)}
        engine = Engine(replace(at_once(batch), device=device, threads=threads))
        bare = ModelSpec("bare", folder, weights=weights)
        engine.load(replace(bare, adapters=folders), replace(bare, name="merged", adapter=folders[names[0]]))
        engine.start()
        try:
            info, one = engine.models["bare"].info, engine.models[names[0]].info
            shared, merged = EngineBench(engine, "bare"), EngineBench(engine, "merged")
            requests = list(Prompts(min(info.vocab_size, 3000)).fill(Workload("adapters", ((_PROMPT, new),) * batch)))
            # Merged models take turns on the device, each with its own rows: so fast is one of them with these alone.
            alone = requests[: max(1, batch // count)]
            kinds: dict[str, tuple[EngineBench, Sequence[str], Sequence[tuple[Tokens, int]]]] = {
                "the bare model": (shared, ("bare",), requests),
                "one merged model": (merged, ("merged",), requests),
                f"{count} merged by turns": (merged, ("merged",), alone),
                "one adapter": (shared, names[:1], requests),
                f"{count} adapters": (shared, names, requests),
                f"bare and {count}": (shared, ("bare", *names), requests),
            }
            ran: dict[str, list[Timing]] = {kind: [] for kind in kinds}
            for _ in range(rounds + 1):
                for kind, (runner, asked, given) in kinds.items():
                    ran[kind].append(runner.time(given, models=asked))
        except RuntimeError as error:
            raise click.ClickException(str(error)) from None
        finally:
            engine.stop()
    console.print(
        f"{model}, {info.dtype}, weights {weights}: {batch} at a time, {new} tokens each; {info.parameters / 1e6:.1f} "
        f"million numbers, {(one.parameters - info.parameters) / 1e6:.1f} million in an adapter of rank {_RANK}"
    )
    plain = statistics.median(_rates(ran["the bare model"]))
    for kind, times in ran.items():
        rates = _rates(times)
        rate = statistics.median(rates)
        console.print(
            f"  {kind:18} {rate:8,.1f} tokens/s ({min(rates):,.1f} to {max(rates):,.1f}), {rate / plain:5.2f} times"
        )
    used = threads or torch.get_num_threads()
    console.print(f"{info.device}, {used} threads; torch {torch.__version__}, {date.today()}")


def write_adapter(base: Path, folder: Path, rank: int, seed: int) -> Path:
    """A bfloat16 adapter of random factors of all linear layers of a checkpoint, in PEFT's files."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in CheckpointTensors(base).shapes.items():
        module = name.removesuffix(".weight")
        if module.endswith(_LAYERS):
            for factor, size in (("A", (rank, shape[1])), ("B", (shape[0], rank))):
                drawn = torch.randn(size, generator=generator) * 0.02
                tensors[f"base_model.model.{module}.lora_{factor}.weight"] = drawn.bfloat16()
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    stated = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": list(_LAYERS)}
    (folder / "adapter_config.json").write_text(json.dumps(stated))
    return folder


def _rates(times: Sequence[Timing]) -> list[float]:
    """Of the rounds behind the first, in which what is new is set up."""
    return [one.decode_tokens / one.decode_s for one in times[1:]]
