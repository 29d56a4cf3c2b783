"""`headgate route learn`: the command line of outcome tables and of what is fitted on them."""

from __future__ import annotations

from pathlib import Path

import click

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def route() -> None:
    """Teach the router which model answers what well enough."""


@route.command()
@click.option("--small", type=_FOLDER, help="Checkpoint folder of the small model.  [default: the demo student]")
@click.option("--large", type=_FOLDER, help="Checkpoint folder of the large model.  [default: the demo teacher]")
@click.option(
    "--prompts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines of messages, answer and, if wanted, grading (text, number, json, call), family, level and tools. "
    "[default: the demo tasks]",
)
@click.option(
    "--outcomes",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Fit on what a gateway has logged (routing.outcomes.file), and ask no model.",
)
@click.option("--samples", type=click.IntRange(min=8), default=8000, show_default=True, help="Prompts of demo tasks.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the demo tasks.")
@click.option(
    "--harder",
    type=click.FloatRange(min=0, max=10, min_open=True),
    default=1.0,
    show_default=True,
    help="Demo prompts of a level for one of the level below; below 1 fewer are hard.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("outcomes"),
    show_default=True,
    help="Folder of the table.",
)
@click.option(
    "--fitted",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of what is fitted on it.  [default: quality.safetensors in the table's folder]",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
def learn(
    small: Path | None,
    large: Path | None,
    prompts: Path | None,
    outcomes: Path | None,
    samples: int,
    seed: int,
    harder: float,
    out: Path,
    fitted: Path | None,
    device: str,
    threads: int | None,
) -> None:
    """Ask both models prompts whose answers are graded, and fit what the router estimates their quality by.

    Everything follows from the models and the seed, but for the seconds, which are this machine's.
    """
    if outcomes is not None:
        if prompts is not None or small is not None or large is not None:
            raise click.UsageError("--outcomes names its models itself; --small, --large and --prompts go without it")
        _learn_from_log(outcomes, fitted or out / "quality.safetensors", seed)
        return
    # Imported here: torch takes seconds, and --help needs none of it.
    from headgate.engine.demo import checkpoint
    from headgate.engine.errors import EngineError
    from headgate.engine.text.chat_template import NoChatTemplate, TemplateError
    from headgate.engine.text.folder import TokenizerError
    from headgate.training.outcomes import demo_prompts, make_table, read_prompts
    from headgate.training.quality import fit_quality

    try:
        asked = demo_prompts(samples, seed=seed, harder=harder) if prompts is None else read_prompts(prompts)
        table = make_table(
            small or checkpoint("student"),
            large or checkpoint("teacher"),
            asked,
            device=device,
            threads=threads,
            tell=lambda text: click.echo(text, err=True),
        )
        table.save(out)
        path = fitted or out / "quality.safetensors"
        fit_quality(table).save(path)
    except (EngineError, TokenizerError, NoChatTemplate, TemplateError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or out}: {error.strerror or error}") from None
    shares = [f"{tier} right on {table.right(tier).mean():.1%}" for tier in ("small", "large")]
    parts = f"{len(table.rows('train'))} to fit on, {len(table.rows('calibration'))} to calibrate on"
    click.echo(f"{out}: {len(table)} prompts, {parts}; {', '.join(shares)}")
    click.echo(f"{path}: estimates of quality, which are for these two models alone")


def _learn_from_log(log: Path, path: Path, seed: int) -> None:
    from headgate.routing.outcome_log import read_log
    from headgate.training.logged import fit_logged

    try:
        outcomes = read_log(log)
        fit_logged(outcomes, seed=seed).save(path)
    except ValueError as error:
        raise click.ClickException(f"{log}: {error}" if str(log) not in str(error) else str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror or error}") from None
    rated = sum(bool(one.voice) for one in outcomes)
    told = f"{len(outcomes) - rated} logged outcomes" + (f" and {rated} ratings" if rated else "")
    click.echo(f"{path}: estimates of quality from {told}, for these two models alone")
