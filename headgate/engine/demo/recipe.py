"""Trains the demo pair from nothing: `python -m headgate.engine.demo.recipe --out DIR`.

Tokenizer, teacher, student distilled from it, model cards with scores, loss plot. Needs the `train` extra. Running it
again with the same folder and steps continues from the last checkpoint. The shipped pair is `DIR/teacher` and
`DIR/student` of a run with the defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from headgate.engine.demo.card import Training, write_card
from headgate.engine.demo.distill import student_loss
from headgate.engine.demo.evaluate import answers
from headgate.engine.demo.pair import STUDENT, TEACHER, Name, Shape, build, export, prepare
from headgate.engine.demo.tasks import generate
from headgate.engine.demo.tokenizer import train_tokenizer
from headgate.engine.demo.train import Loss, Report, TrainSettings, teacher_loss, train

STEPS_TEACHER = 12000
STEPS_STUDENT = 9000


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and runs the recipe."""
    parser = argparse.ArgumentParser(prog="python -m headgate.engine.demo.recipe", description="Train the demo pair.")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for checkpoints and results")
    parser.add_argument("--seed", type=int, default=0, help="seed of data, initialisation and order")
    parser.add_argument("--steps-teacher", type=int, default=STEPS_TEACHER, help="training steps of the teacher")
    parser.add_argument("--steps-student", type=int, default=STEPS_STUDENT, help="training steps of the student")
    parser.add_argument("--device", default="cpu", help="torch device, such as cpu or cuda")
    parser.add_argument("--samples", type=int, default=2000, help="test samples behind the scores of the model cards")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads of torch")
    options = parser.parse_args(arguments)
    for name in ("steps_teacher", "steps_student", "samples", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be at least 1")
    torch.set_num_threads(options.threads)
    run(options.out, options.seed, options.steps_teacher, options.steps_student, options.device, options.samples)


def run(out: Path, seed: int, steps_teacher: int, steps_student: int, device: str, samples: int) -> None:
    """Trains both models into `out/teacher` and `out/student`; training states and `loss.png` lie beside them."""
    tokenizer = train_tokenizer(seed=seed)
    teacher = prepare(build(TEACHER, tokenizer, seed=seed)).to(device)
    student = prepare(build(STUDENT, tokenizer, seed=seed + 1)).to(device)
    # The student learns from other data than the teacher saw, so that the teacher's answers there are not remembered.
    stages: tuple[tuple[Name, Shape, Any, Callable[[], Loss], TrainSettings], ...] = (
        ("teacher", TEACHER, teacher, teacher_loss, TrainSettings(steps_teacher, seed=seed, rate=2e-3)),
        (
            "student",
            STUDENT,
            student,
            lambda: student_loss(teacher),
            TrainSettings(steps_student, seed=seed + 1, rate=3e-3),
        ),
    )
    curves: dict[Name, list[float]] = {}
    for name, shape, model, objective, settings in stages:
        with _progress(name, settings.steps) as report:
            curves[name] = train(model, tokenizer, objective(), settings, out / f"{name}.pt", report=report)
        export(model, tokenizer, out / name)
        last = curves[name][-100:]
        training = Training(
            name=name,
            shape=shape,
            weights=sum(weight.numel() for weight in model.parameters()),
            seed=settings.seed,
            steps=settings.steps,
            tokens=settings.tokens,
            loss=sum(last) / len(last),
            device=device,
        )
        given = list(answers(out / name, list(generate(samples, seed=seed, split="test")), device=device))
        write_card(out / name, training, given)
    plot(curves, out / "loss.png")


@contextmanager
def _progress(name: str, steps: int) -> Iterator[Report]:
    """A progress bar with the smoothed loss and the speed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("{task.fields[speed]:.0f} tokens/s"),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task(name, total=steps, loss=float("nan"), speed=0.0)
        smooth: list[float] = []

        def report(step: int, loss: float, speed: float) -> None:
            smooth.append(loss)
            del smooth[:-50]
            progress.update(bar, completed=step, loss=sum(smooth) / len(smooth), speed=speed)
            if not progress.console.is_terminal and step % 100 == 0:
                progress.console.print(f"{name} {step}/{steps} loss {sum(smooth) / len(smooth):.4f} {speed:.0f} tok/s")

        yield report


def plot(curves: dict[Name, list[float]], path: Path) -> None:
    """Writes the smoothed losses as a picture, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    for name, losses in curves.items():
        width = max(1, len(losses) // 100)
        means = [sum(losses[start : start + width]) / width for start in range(0, len(losses) - width + 1, width)]
        axes.plot([width * (index + 1) for index in range(len(means))], means, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
