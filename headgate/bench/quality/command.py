"""`headgate bench quality`: the table of what 8 and 4 bits cost."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from headgate.bench.ceilings import device_name
from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import table_of, write_json
from headgate.bench.quality.measure import (
    FORMATS,
    RANDOM_SHAPES,
    Divergence,
    Format,
    Measured,
    change,
    divergence,
    measure_demo,
)
from headgate.bench.quality.parts import part_divergences
from headgate.engine.demo import Name, checkpoint
from headgate.engine.demo.tasks import each_cell
from headgate.engine.kernels.choice import choose_kernels
from headgate.training.evaluate import distinct, paired_difference, scores

_MODELS: tuple[Name, ...] = ("student", "teacher")


@click.command()
@click.option(
    "--samples", type=click.IntRange(min=1), default=40, show_default=True, help="Texts read per family and level."
)
@click.option(
    "--answered",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Questions answered per family and level, for accuracy.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the samples.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
@click.option(
    "--only",
    type=click.Choice([*_MODELS, "random"]),
    multiple=True,
    help="Leave out what is not named; may be repeated.",
)
def quality(samples: int, answered: int, seed: int, json_file: Path | None, only: tuple[str, ...]) -> None:
    """Compare formats of weights, keys and values of the demo pair: perplexity of held-out answers, accuracy, KL."""
    console = Console(width=140)
    # How likely a text is tells something only of a model that would write such: the students do not write working.
    plain = [sample for sample in each_cell(samples, seed=seed, split="test") if not sample.working]
    read = distinct(plain)
    asked = distinct(each_cell(answered, seed=seed + 1, split="test")) if answered else []
    found: dict[str, dict[Format, Measured]] = {}
    with Console(stderr=True).status("loading") as status:
        for name in (name for name in _MODELS if not only or name in only):
            found[name] = {
                fmt: measure_demo(checkpoint(name), fmt, read, asked, lambda text: status.update(text))
                for fmt in FORMATS
            }
        status.update("parts in 4 bits")
        parts = {name: part_divergences(checkpoint(name), read) for name in _MODELS if name in found}
        status.update("random shapes")
        shapes = RANDOM_SHAPES if not only or "random" in only else {}
        random = {shape: divergence(config) for shape, config in shapes.items()}
    device = torch.device("cpu")
    made_on = f"{device_name(device)}; kernels: {choose_kernels('auto', device).why}; torch {torch.__version__}"
    content = (
        _as_json(found, random)
        | {"parts": parts}
        | {"samples": samples, "answered": answered, "seed": seed, "made_on": made_on}
    )
    _print(console, content)
    console.print(f"{made_on}, {date.today()}", soft_wrap=True, highlight=False)
    write_json(json_file, content)


def _as_json(
    found: dict[str, dict[Format, Measured]], random: dict[str, dict[Format, Divergence]]
) -> dict[str, object]:
    rows = []
    for name, formats in found.items():
        baseline = formats[FORMATS[0]]
        for fmt, measured in formats.items():
            row: dict[str, object] = {
                "model": name,
                "weights": str(fmt),
                "weight_bytes": measured.weight_bytes,
                "texts": len(measured.losses.tokens),
                "tokens": sum(measured.losses.tokens),
                "perplexity": measured.losses.perplexity,
                "change": asdict(change(measured.losses, baseline.losses)),
            }
            if measured.answers:
                score = scores(measured.answers).overall
                row["accuracy"] = {"right": score.right, "count": score.count, "interval": score.interval}
                row["accuracy_difference"] = asdict(paired_difference(measured.answers, baseline.answers))
            rows.append(row)
    divergences = [
        {"shape": shape, "weights": str(fmt), **asdict(figures)}
        for shape, formats in random.items()
        for fmt, figures in formats.items()
    ]
    return {"demo": rows, "random": divergences}


def _print(console: Console, content: dict[str, Any]) -> None:
    title = "The demo pair: perplexity of reference answers, accuracy of its own"
    heads = ("MB", "perplexity", "relative to native", "accuracy", "difference in points")
    table = table_of(title, ("model", "weights"), heads, min_width=130)
    for row in content["demo"]:
        base, more, right = row["weights"] == str(FORMATS[0]), row["change"], row.get("accuracy")
        less = row.get("accuracy_difference")
        table.add_row(
            row["model"],
            row["weights"],
            f"{row['weight_bytes'] / 1e6:.1f}",
            f"{row['perplexity']:.4f}",
            "" if base else f"{more['value']:+.2%} ({more['low']:+.2%} to {more['high']:+.2%})",
            f"{right['right'] / right['count']:.1%} of {right['count']}" if right else "",
            "" if base or not less else f"{less['value']:+.1%} ({less['low']:+.1%} to {less['high']:+.1%})",
        )
    console.print(table)
    title = "Parts in 4 bits: distance from the native model over the reference answers"
    table = table_of(title, ("model", "4 bits"), ("KL, nats",), min_width=130)
    for model, parts in content["parts"].items():
        for part, kl in parts.items():
            table.add_row(model, part, f"{kl:.5f}")
    console.print(table)
    title = "Random weights: distance from float32 in bfloat16 arithmetic"
    shown = ("KL, nats", "entropy, nats", "same likeliest token")
    table = table_of(title, ("shape", "weights"), shown, min_width=130)
    for row in content["random"]:
        table.add_row(
            row["shape"], row["weights"], f"{row['kl']:.5f}", f"{row['entropy']:.2f}", f"{row['agreement']:.1%}"
        )
    console.print(table)
