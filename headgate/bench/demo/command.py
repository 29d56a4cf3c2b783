"""`headgate bench demo`: what the shipped models know, what distilling gained, and what a right answer costs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import torch
from rich.console import Console

from headgate.bench.demo.measure import NAMES, measure
from headgate.bench.demo.report import Asked, as_json, dialogues, print_report
from headgate.bench.options import FILE_TO_WRITE, need_matplotlib
from headgate.bench.output import write_json
from headgate.engine.demo import Name, checkpoint
from headgate.engine.demo.tasks import each_beyond, each_cell
from headgate.engine.errors import EngineError
from headgate.engine.text.chat_template import NoChatTemplate, TemplateError
from headgate.engine.text.folder import TokenizerError
from headgate.training.evaluate import distinct

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--samples", type=click.IntRange(min=1), default=40, show_default=True, help="Samples per family and level."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the samples.")
@click.option(
    "--split",
    type=click.Choice(["test", "calibration"]),
    default="test",
    show_default=True,
    help="Of which the samples are.",
)
@click.option(
    "--timed",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Samples per family and level that are also answered one at a time, for seconds per right answer.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians are over these.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
@click.option("--dialogues", "shown", type=click.IntRange(min=0), default=0, help="Print this many sample dialogues.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
@click.option(
    "--plot", "plot_folder", type=click.Path(file_okay=False, path_type=Path), help="Write plots (PNG) to this folder."
)
@click.option("--teacher", type=_FOLDER, help="Checkpoint folder instead of the shipped teacher.")
@click.option("--student", type=_FOLDER, help="Checkpoint folder instead of the shipped, distilled student.")
@click.option("--undistilled", type=_FOLDER, help="Checkpoint folder instead of the shipped undistilled student.")
def demo(
    samples: int,
    seed: int,
    split: Literal["test", "calibration"],
    timed: int,
    rounds: int,
    threads: int | None,
    shown: int,
    json_file: Path | None,
    plot_folder: Path | None,
    teacher: Path | None,
    student: Path | None,
    undistilled: Path | None,
) -> None:
    """Compare the demo teacher, its distilled student and the same student trained without distillation.

    Accuracy by family and level with 95 % intervals, decode speed, seconds per right answer, sizes. Of the test split
    also accuracy beyond training, on a level that no other figure counts.
    """
    given: dict[Name, Path | None] = {"teacher": teacher, "student": student, "undistilled": undistilled}
    folders = {name: given[name] or _shipped(name) for name in NAMES}
    need_matplotlib(plot_folder)
    if plot_folder is not None:
        plot_folder.mkdir(parents=True, exist_ok=True)
    if threads is not None:
        torch.set_num_threads(threads)
    asked = Asked(samples, seed, split, timed, rounds)
    questions = distinct(each_cell(samples, seed=seed, split=split))
    harder = distinct(each_beyond(samples, seed=seed)) if split == "test" else []
    console = Console(width=110)
    try:
        with Console(stderr=True).status("loading") as status:
            figures = measure(
                folders,
                questions,
                beyond=harder,
                timed=timed,
                rounds=rounds,
                threads=threads,
                progress=lambda text: status.update(text),
            )
    except (EngineError, TokenizerError, NoChatTemplate, TemplateError) as error:
        raise click.ClickException(str(error)) from None
    print_report(console, asked, figures)
    if shown:
        dialogues(console, figures, shown)
    write_json(json_file, as_json(asked, figures))
    if plot_folder is not None:
        from headgate.bench.demo.plot import plot

        for path in plot(figures, plot_folder):
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _shipped(name: Name) -> Path:
    folder = checkpoint(name)
    if not folder.is_dir():
        raise click.BadParameter(f"this installation ships no {name} checkpoint; name a folder", param_hint=f"--{name}")
    return folder
