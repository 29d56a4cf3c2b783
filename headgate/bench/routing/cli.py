"""`headgate bench routing`: what estimates of quality are worth, whether targets hold, what an attack achieves."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console

from headgate.bench.ceilings import device_name
from headgate.bench.engine.speed import started
from headgate.bench.options import FILE_TO_WRITE, need_matplotlib
from headgate.bench.output import write_json
from headgate.bench.routing.attack import Attacked, attack, defended, embedding_seconds, texts_only
from headgate.bench.routing.cascades import Cost, compare_costs, lone_waits
from headgate.bench.routing.classes import measure_classes, print_classes
from headgate.bench.routing.load import load_table
from headgate.bench.routing.load_report import print_load
from headgate.bench.routing.report import print_attacks, print_costs, print_held_out, print_targets, print_trial
from headgate.bench.routing.targets import RESAMPLES, hold
from headgate.bench.routing.trial import HeldOut, Trial, decision_seconds, held_out, in_domain
from headgate.bench.routing.wordings import ask_wordings
from headgate.bench.routing.wordings import lines as wordings_lines
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.engine.demo import checkpoint
from headgate.engine.front.local import LocalModel
from headgate.engine.models.identity import checkpoint_identity
from headgate.engine.settings import EngineSettings, ModelSpec
from headgate.routing.outcomes import OutcomeTable, TableError
from headgate.routing.quality import FittedQuality
from headgate.routing.types import Vector
from headgate.training.outcomes import embedded
from headgate.training.quality import fit_quality

OF_OUTCOMES = frozenset({"table", "calibration", "cascade", "attack"})
"""Parts that need the outcome table."""
PARTS = ("table", "calibration", "cascade", "attack", "wordings", "classes", "load")


@click.command()
@click.option(
    "--outcomes",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("outcomes"),
    show_default=True,
    help="Folder of the outcome table, which `headgate route learn` makes.",
)
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Parts to run; all by default.")
@click.option(
    "--small",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The small model's folder, which attack, cascade and wordings ask.  [default: the demo student]",
)
@click.option(
    "--large",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The large model's folder, which cascade and wordings ask.  [default: the demo teacher]",
)
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="More prompts to tell the task classes of: lines of a class, a system text and a text, tabs between.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of folds, resamples, the attack and arrivals.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
@click.option("--plot", "plots", type=click.Path(file_okay=False, path_type=Path), help="Write PNG files here.")
def routing(
    outcomes: Path,
    only: tuple[str, ...],
    small: Path | None,
    large: Path | None,
    prompts: tuple[Path, ...],
    seed: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Compare routing rules on the outcomes of two models, in their domain and on families held out.

    Then tell the task classes of prompts written by hand, and play load with and without each signal of the price.
    """
    need_matplotlib(plots)
    parts = set(only) or set(PARTS)
    console = Console(width=150)
    figures: dict[str, object] = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{device_name(torch.device('cpu'))}, Python {platform.python_version()}",
    }
    pair = (small or checkpoint("student"), large or checkpoint("teacher"))
    if parts & OF_OUTCOMES:
        _of_outcomes(parts, outcomes, pair, seed, console, figures, plots)
    if "wordings" in parts:
        with Console(stderr=True).status("asking in other words") as status:
            worded = ask_wordings(*pair, seed=seed, tell=lambda text: status.update(text))
        for line in wordings_lines(worded):
            console.print(line, highlight=False)
        figures["wordings"] = asdict(worded)
    if "classes" in parts:
        try:
            reports = asyncio.run(measure_classes(prompts))
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        print_classes(reports, console)
        figures["classes"] = [report.figures() for report in reports]
    if "load" in parts:
        with Console(stderr=True).status("playing load") as status:
            load = load_table(seed=seed, tell=lambda text: status.update(text))
        print_load(console, load)
        figures["load"] = asdict(load)
    write_json(json_file, figures)


def _of_outcomes(
    parts: set[str],
    outcomes: Path,
    pair: tuple[Path, Path],
    seed: int,
    console: Console,
    figures: dict[str, object],
    plots: Path | None,
) -> None:
    try:
        table = OutcomeTable.load(outcomes)
        fitted = fit_quality(table, seed=seed)
    except (TableError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    figures |= {"small": table.small, "large": table.large, "prompts": len(table)}
    if "table" in parts:
        trial, held = _table(table, fitted, seed, console, figures)
        if plots is not None:
            from headgate.bench.routing.plots import plot

            plots.mkdir(parents=True, exist_ok=True)
            for path in plot(trial, held, plots):
                console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    if "calibration" in parts:
        targets = hold(table, fitted, seed=seed)
        print_targets(console, targets, RESAMPLES)
        figures["calibration"] = [asdict(one) for one in targets]
    if "cascade" in parts:
        compared = _costs(table, fitted, pair, seed)
        print_costs(console, compared)
        figures["cascade"] = [asdict(one) for one in compared]
    if "attack" in parts:
        attacks = _attacks(table, fitted, pair[0], seed, console, figures)
        print_attacks(console, attacks)
        figures["attack"] = [asdict(one) for one in attacks]


def _table(
    table: OutcomeTable, fitted: FittedQuality, seed: int, console: Console, figures: dict[str, object]
) -> tuple[Trial, HeldOut]:
    new = table.take(table.rows("test"))
    trial = in_domain(table.take(table.rows("train")), new, seed=seed)
    print_trial(console, trial)
    with Console(stderr=True).status("holding families out") as status:
        held = held_out(table, tell=lambda text: status.update(text), seed=seed)
    print_held_out(console, held)
    decided = decision_seconds(fitted, new)
    console.print(f"one estimate: {1e6 * decided:.0f} us, median")
    figures["in_domain"], figures["held_out"], figures["decision_s"] = asdict(trial), asdict(held), decided
    return trial, held


def _costs(table: OutcomeTable, fitted: FittedQuality, pair: tuple[Path, Path], seed: int) -> list[Cost]:
    _of_these(pair[0], "small", table.small)
    _of_these(pair[1], "large", table.large)
    with started(EngineSettings(), ModelSpec("small", pair[0]), ModelSpec("large", pair[1])) as engine:
        waits = asyncio.run(lone_waits(engine.models["small"], engine.models["large"], table, seed=seed))
    return compare_costs(table, fitted, waits)


def _of_these(folder: Path, tier: str, wanted: str) -> None:
    if checkpoint_identity(folder) != wanted:
        raise click.ClickException(
            f"the table is of the {tier} model {wanted}; {folder} is {checkpoint_identity(folder)}. "
            f"Name its folder with --{tier}, or make the table anew"
        )


def _attacks(
    table: OutcomeTable, fitted: FittedQuality, folder: Path, seed: int, console: Console, figures: dict[str, object]
) -> list[Attacked]:
    _of_these(folder, "small", table.small)
    encoder_folder = default_folder()
    encoder = BertEncoder(encoder_folder) if encoder_folder is not None else None
    with started(EngineSettings(), ModelSpec("small", folder)) as engine, asyncio.Runner() as runner:

        def states(texts: Sequence[str]) -> Vector:
            return runner.run(_states(engine.models["small"], texts))

        def vectors(texts: Sequence[str]) -> Vector:
            assert encoder is not None
            return embedded(encoder, texts)

        if encoder is not None:
            spent = embedding_seconds(encoder, [one.text for one in table.outcomes])
            figures["embedding_s"] = asdict(spent)
            told = " and ".join(f"{1e3 * part:.2f} ms" for part in (spent.text, spent.cores))
            console.print(f"embedding a text and, in one pass, its cores take {told}, medians")
        found = []
        for source, estimator in fitted.estimators.items():
            if source == "cores":
                # The defence of those from the embedding, which are attacked with and without it.
                continue
            if source == "embedding" and encoder is None:
                console.print("no embedding model is installed: the estimates from embeddings are not attacked")
                continue
            # What the gateway judges cores by; for the probe, which would take more passes, it has no defence.
            own = fitted.estimators["cores"] if source == "embedding" else estimator
            plain, guarded = (texts_only(one, source, vectors, states) for one in (estimator, own))
            found.append(attack(table, source, plain, defended(guarded), seed=seed))
        return found


async def _states(model: LocalModel, texts: Sequence[str]) -> Vector:
    prompts = [await model.render_chat([{"role": "user", "content": text}]) for text in texts]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(model.probe("attack", prompt)) for prompt in prompts]
    return np.stack([task.result().state for task in tasks])
