"""`headgate distill`: the command line of distillation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.training.progress import progress


class _Refusal(click.ClickException):
    """One line on stderr, before anything was trained."""

    exit_code = 2


class _BrokenOff(click.ClickException):
    """One line on stderr; what was saved is intact."""

    exit_code = 1


@click.command()
@click.option("--teacher", required=True, metavar="DIR", help="Checkpoint folder, or a hub id such as Qwen/Qwen3-0.6B.")
@click.option(
    "--student-config",
    required=True,
    metavar="F",
    type=click.Path(path_type=Path),
    help="The student's config.json: any architecture the engine reads, with the teacher's vocab_size.",
)
@click.option(
    "--data",
    required=True,
    metavar="F",
    type=click.Path(path_type=Path),
    help="JSON lines of messages or of prompt and completion, or a folder with train.jsonl and calibration.jsonl.",
)
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="The student's folder.")
@click.option("--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="Of training.")
@click.option("--tokens", type=click.IntRange(min=8), default=2048, show_default=True, help="Of a step, with padding.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-3,
    show_default=True,
    help="Highest learning rate; it rises over the first steps and falls to zero.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Divides both models' logits where they are compared.",
)
@click.option(
    "--soft",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Weight of the teacher's distribution; the rest is on the data's answers.",
)
@click.option(
    "--hidden",
    type=click.FloatRange(min=0),
    default=4.0,
    show_default=True,
    help="First weight of the difference to the teacher's hidden states; it falls to 0 over the run.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first weights and the order of the data.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="auto is cuda where there is a GPU.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
@click.option("--save-every", type=click.IntRange(min=1), default=100, show_default=True, help="Steps between states.")
@click.option("--tokenizer", metavar="DIR", help="Folder or hub id of the tokenizer.  [default: the teacher's]")
@click.option("--split", default="train", show_default=True, help="The data to learn.")
@click.option("--holdout", default="calibration", show_default=True, help="The data to measure on.")
@click.option("--no-compile", is_flag=True, help="Do without torch.compile: slower steps, but they start at once.")
def distill(no_compile: bool, **options: Any) -> None:
    """Distil a teacher into a smaller student.

    The student learns the data's answers and what the teacher would have said in their place. Running the same command
    again continues after the last saved state.
    """
    # Imported here: torch takes seconds, and --help needs none of it.
    import torch

    from headgate.training.distill import described, run
    from headgate.training.students import DistillError, Job

    job = Job(**options, compiled=not no_compile)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    try:
        outcome = run(job, say=click.echo, progress=lambda steps: progress("distil", steps))
    except DistillError as error:
        line = " ".join(str(error).split())
        raise (_Refusal(line) if error.exit_code == 2 else _BrokenOff(line)) from None
    except KeyboardInterrupt:
        raise _BrokenOff("interrupted before training; the same command starts again") from None
    except OSError as error:
        raise _BrokenOff(f"{error.filename or job.out}: {error.strerror or error}") from None
    if outcome.already:
        click.echo(f"{outcome.out} is finished already, with these settings; nothing was done.")
    click.echo(f"holdout before: {described(outcome.before)}")
    click.echo(f"holdout after:  {described(outcome.after)}")
    click.echo(f"{outcome.out}: {outcome.weights / 1e6:.2f} million weights in bf16")
