"""Trains the demo pair from nothing: `python -m headgate.training.recipe --out DIR`.

Tokenizer; teacher; an assistant distilled from it, with wider MLPs than the student; the student distilled from the
assistant; and the same student trained without either. The students hand over some kinds of tasks
(`headgate.training.handing`). Model cards with scores, loss plot. Needs the `train` extra.
Running it again with the same folder continues from the last checkpoint; stages that are complete cost nothing.
`--weights DIR --seed N` goes on from an earlier run's weights with other data, and with `--only student` the student
learns from that run's assistant, or from its teacher where it has none. A pair is shipped by copying `DIR/teacher`,
`DIR/student` and `DIR/undistilled` to `headgate/engine/demo`. On a machine with several cores and no GPU, `torchrun
--nproc-per-node 2 -m headgate.training.recipe --threads 1` uses two better than two threads do, with batches twice as
large.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer

from headgate.engine.demo.tasks import FAMILIES, Sample, Variety, each_cell, generate
from headgate.engine.demo.tasks.draw import Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tokenizer import END_OF_TEXT, conversation_segments, load_tokenizer, token_id, train_tokenizer
from headgate.training.batches import Encoded, Stream, encode, stream
from headgate.training.card import Training, card
from headgate.training.caught import caught
from headgate.training.evaluate import distinct, evaluate
from headgate.training.forward import prepare
from headgate.training.handing import HAND_OVER, SAMPLES, left, teach
from headgate.training.hidden import attach, detach
from headgate.training.loop import CheckpointMismatchError, TrainSettings, train
from headgate.training.losses import Loss, answer_loss, balanced_loss, distillation_loss
from headgate.training.parallel import rank, world
from headgate.training.progress import plot, progress
from headgate.training.rare import rare_pieces
from headgate.training.shapes import ASSISTANT, STUDENT, TEACHER, Shape, build, export, load_weights

Stage = Literal["teacher", "assistant", "student", "undistilled"]
STAGES: tuple[Stage, ...] = ("teacher", "assistant", "student", "undistilled")
TOKENS = 3840
"""Of a step, padding included."""
CHUNK = 4096
"""Samples generated and bucketed together."""
FURTHER = 3
"""Questions after the first about one text or table, whose tokens then serve several answers."""
CAUGHT = 0.01
"""Share of rows whose answer is caught in a loop and ended."""
EASY = 0.35
"""Share of the students' samples that are of level 1 to begin with; a third of the others is, too."""
LOOSENED = 0.5
"""Share of the wordings that are said otherwise, so that those of users are understood, too."""
HANDED_OVER = 0.5
"""Share of the students' samples of the kinds they are to hand over whose answer is the mark and not the answer."""
SHARES: Mapping[str, float] = {
    "sentiment": 0.3,
    "topic": 0.3,
    "intent": 0.4,
    "extraction": 2.8,
    "passage": 3.0,
    "tables": 4.0,
    "headline": 1.8,
    "lists": 2.6,
    "repeating": 1.4,
    "rewriting": 2.0,
    "strings": 3.8,
    "arithmetic": 1.0,
    "conversion": 1.2,
    "puzzles": 2.8,
    "facts": 0.9,
    "out_of_domain": 0.4,
}
"""Weights of families in training, where they are not the families' own: more of what the first teacher had not learnt
(look-ups, letters, orders), less of what it knew."""


@dataclass(frozen=True, slots=True)
class Run:
    """The options of a recipe run; `samples` is per family and level of the scores on the cards, `rate` the highest
    learning rate."""

    out: Path
    seed: int
    steps_teacher: int
    steps_student: int
    device: str
    samples: int
    rate: float
    compiled: bool
    start: Path | None
    mean: bool


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and runs the recipe."""
    parser = argparse.ArgumentParser(prog="python -m headgate.training.recipe", description="Train the demo pair.")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for checkpoints and results")
    parser.add_argument("--only", choices=STAGES, action="append", help="run these stages only (repeatable)")
    parser.add_argument("--seed", type=int, default=0, help="seed of data, initialisation and order")
    parser.add_argument("--steps-teacher", type=int, default=8000, help="training steps of the teacher")
    parser.add_argument("--steps-student", type=int, default=4000, help="training steps of each student")
    parser.add_argument("--device", default="cpu", help="torch device, such as cpu or cuda")
    parser.add_argument("--samples", type=int, default=40, help="test samples per family and level for the model cards")
    parser.add_argument("--rate", type=float, default=6e-3, help="highest learning rate")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads of torch")
    parser.add_argument(
        "--no-compile", action="store_false", dest="compiled", help="do without torch.compile, at half the speed"
    )
    parser.add_argument(
        "--weights",
        type=Path,
        dest="start",
        help="folder of an earlier run's models to go on from, such as the shipped ones",
    )
    parser.add_argument("--mean", action="store_true", help="end half way between the weights at the start and the end")
    options = parser.parse_args(arguments)
    if options.mean and options.start is None:
        parser.error("--mean is of --weights and what they become; it needs --weights")
    for name in ("steps_teacher", "steps_student", "samples", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be at least 1")
    if not options.rate > 0.0:
        parser.error(f"--rate is {options.rate}; it must be above 0")
    torch.set_num_threads(options.threads)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    run = Run(**{field.name: getattr(options, field.name) for field in fields(Run)})
    try:
        run_stages(run, tuple(options.only or STAGES))
    except CheckpointMismatchError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, f"\nstopped; the same command continues from the last state in {options.out}\n")


def run_stages(run: Run, stages: Sequence[Stage]) -> None:
    """Runs the stages in order.

    What teaches a stage is complete first: it is of the run that this one starts from if it is not among the stages,
    else of its own, which trains it first if there is none.
    """
    # Weights are of use with their own tokenizer only.
    tokenizer = train_tokenizer(seed=run.seed) if run.start is None else load_tokenizer(run.start / "teacher")
    curves: dict[str, list[float]] = {}
    fresh = run.start is None
    above: _Instructor | None = None
    if "teacher" in stages or (fresh and {"assistant", "student"}.intersection(stages)):
        model, curves["teacher"] = _stage(run, tokenizer, "teacher", TEACHER, balanced_loss, run.seed)
        above = _Instructor("teacher", model)
    # The students learn from other data than the teacher saw, so that its answers there are not remembered. All see
    # the same data; the student and its twin start from the same weights: they differ by the loss alone.
    if "assistant" in stages or (fresh and "student" in stages):
        above = above or _instructor(run, tokenizer, ("teacher",))
        loss = distillation_loss(above.model, exact=True)
        model, curves["assistant"] = _stage(run, tokenizer, "assistant", ASSISTANT, loss, run.seed + 1, above)
        above = _Instructor("assistant", model)
    if "student" in stages:
        # A teacher much larger than its student is understood less well than one between them (Mirzadeh et al. 2020,
        # "Improved Knowledge Distillation via Teacher Assistant"), and costs more beside every step.
        above = above or _instructor(run, tokenizer, ("assistant", "teacher"))
        loss = distillation_loss(above.model, exact=True)
        _, curves["student"] = _stage(run, tokenizer, "student", STUDENT, loss, run.seed + 1, above)
    if "undistilled" in stages:
        _, curves["undistilled"] = _stage(run, tokenizer, "undistilled", STUDENT, answer_loss, run.seed + 1)
    if rank() == 0:
        plot(curves, run.out / "loss.png")


@dataclass(frozen=True, slots=True)
class _Instructor:
    """Who teaches a stage."""

    name: str
    model: Any


def _stage(
    run: Run,
    tokenizer: Tokenizer,
    name: Stage,
    shape: Shape,
    loss: Loss,
    seed: int,
    instructor: _Instructor | None = None,
) -> tuple[Any, list[float]]:
    """Trains one model, or completes it from its last state; with an `instructor` also on its hidden states.

    A folder whose card is written is complete.
    """
    model = build(shape, tokenizer, seed=seed)
    before = None if run.start is None else run.start / name
    reads = before is not None and load_weights(model, before)
    model = prepare(model.to(run.device), compiled=run.compiled)
    # A student that goes on whole can read already; new maps to its instructor's states would first pull it away.
    if instructor is not None and not reads:
        attach(model, instructor.model)
    of = f"--seed {run.seed}" + (f" and --weights {run.start}" if run.start else "")
    settings = TrainSettings(run.steps_teacher if name == "teacher" else run.steps_student, rate=run.rate)
    with progress(name, settings.steps) as report:
        losses = train(
            model,
            demo_stream(tokenizer, seed, students=name != "teacher"),
            loss,
            settings,
            run.out / f"{name}.pt",
            of=of,
            report=report,
        )
    detach(model)
    if run.mean and before is not None:
        _meet_half_way(model, build(shape, tokenizer, seed=seed), before)
    folder = run.out / name
    if rank() != 0:
        return model, losses
    written = folder / "README.md"
    if written.exists() and written.stat().st_size and not report.steps:
        return model, losses
    export(model, tokenizer, folder, "")
    hands_over = teach(folder, seed=seed, samples=SAMPLES) if name in ("student", "undistilled") else None
    training = Training(
        name=name,
        shape=shape,
        weights=sum(weight.numel() for weight in model.parameters()),
        seed=seed,
        settings=settings,
        tokens=TOKENS * world(),
        loss=sum(losses[-100:]) / len(losses[-100:]),
        device=run.device,
        continued=run.start is not None,
        whole=reads,
        mean=run.mean,
        instructor="" if instructor is None else instructor.name,
        hands_over=hands_over,
    )
    given = evaluate(folder, distinct(each_cell(run.samples, seed=run.seed, split="test")))
    written.write_text(card(training, given), encoding="utf-8")
    return model, losses


def _meet_half_way(model: Any, first: Any, folder: Path) -> None:
    """Sets the weights to the mean of themselves and of those in `folder`, for which `first` has room.

    The mean of two ends of one training generalises better than either: Izmailov et al. 2018, "Averaging Weights Leads
    to Wider Optima and Better Generalization".
    """
    load_weights(first, folder)
    with torch.no_grad():
        for weight, other in zip(model.parameters(), first.parameters(), strict=True):
            weight.lerp_(other.to(weight.device), 0.5)


def _instructor(run: Run, tokenizer: Tokenizer, names: Sequence[Stage]) -> _Instructor:
    """The first of these that the run started from has, as it is."""
    assert run.start is not None
    folders = [run.start / name for name in names]
    folder = next((folder for folder in folders if folder.exists()), folders[-1])
    model = build(ASSISTANT if folder.name == "assistant" else TEACHER, tokenizer, seed=run.seed)
    load_weights(model, folder)
    return _Instructor(folder.name, prepare(model.to(run.device), compiled=run.compiled))


def demo_stream(tokenizer: Tokenizer, seed: int, *, students: bool = False) -> Stream:
    """Endless batches of the demo tasks' train split; no sample comes twice but by chance.

    `students`: as the students learn them, with answers alone, without working, more of level 1, and of what is to be
    handed over the mark in place of some answers.
    """
    families = [replace(known, weight=SHARES.get(known.name, known.weight)) for known in FAMILIES]
    variety = Variety(*rare_pieces(tokenizer), LOOSENED)
    if students:
        families = [replace(known, make=_at_once(known.make)) for known in families]

    def chunk(number: int) -> list[Encoded]:
        # Chunks have seeds of their own, so that any one can be made without its predecessors.
        easy = round(EASY * CHUNK) if students else 0
        draw = partial(generate, seed=seed * 1_000_003 + number, families=families, further=FURTHER, variety=variety)
        samples: Iterable[Sample] = itertools.chain(draw(easy, difficulty=1), draw(CHUNK - easy))
        if students:
            rng = random.Random(f"handed over {seed}/{number}")
            samples = (_handed_over(s) if left(s) and rng.random() < HANDED_OVER else s for s in samples)
        rows = [encode(tokenizer, conversation_segments(sample)) for sample in samples]
        rng = random.Random(f"caught {seed}/{number}")
        return [(rng.random() < CAUGHT and caught(row, rng)) or row for row in rows]

    return stream(chunk, pad=token_id(tokenizer, END_OF_TEXT), tokens=TOKENS, seed=seed, together=world())


def _handed_over(sample: Sample) -> Sample:
    return replace(sample, answer=HAND_OVER, working="")


def _at_once(make: Callable[[Draw], Task]) -> Callable[[Draw], Task]:
    """Makes the same tasks without working."""
    return lambda draw: replace(make(draw), working="")


if __name__ == "__main__":
    main()
