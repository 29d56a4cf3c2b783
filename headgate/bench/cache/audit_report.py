"""`headgate bench audit`: the table of what the audits' labels are worth, and the file that the cache ships."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import msgspec
from rich.console import Console

from headgate.bench.cache.audit import AuditFigures, Pair, measure
from headgate.bench.options import FILE_TO_WRITE
from headgate.bench.output import table_of, write_json
from headgate.cache.audits.labels import KINDS, LabelKind
from headgate.engine.demo import checkpoint
from headgate.engine.errors import EngineError
from headgate.engine.text.chat_template import NoChatTemplate, TemplateError
from headgate.engine.text.folder import TokenizerError


@click.command()
@click.option("--model", default="large", show_default=True, help="small or large (the demo pair), or a folder.")
@click.option("--triples", type=click.IntRange(min=10), default=400, show_default=True, help="Of each split.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the questions.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of CPU operators.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
@click.option("--write", "calibration_file", type=FILE_TO_WRITE, help="Write the labels' calibration here.")
def audit(
    model: str, triples: int, seed: int, threads: int | None, json_file: Path | None, calibration_file: Path | None
) -> None:
    """Measure how often the labels that audit the cache's hits are wrong.

    Questions, paraphrases and near misses come from the demo tasks; where the likelihood label decides is chosen on
    their calibration split, and every rate is measured on the test split.
    """
    folder, name = _folder(model)
    console = Console(width=110)
    try:
        with Console(stderr=True).status("loading") as status:
            figures = measure(
                folder,
                name,
                count=triples,
                seed=seed,
                threads=threads,
                command=f"headgate bench audit --model {shlex.quote(name)} --triples {triples} --seed {seed}",
                progress=lambda text: status.update(text),
            )
    except (EngineError, TokenizerError, NoChatTemplate, TemplateError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    _print(console, figures)
    if calibration_file is not None:
        plain = msgspec.json.format(msgspec.json.encode(figures.calibration), indent=1)
        calibration_file.write_bytes(plain + b"\n")
    write_json(json_file, as_json(figures))


def as_json(figures: AuditFigures) -> dict[str, object]:
    """The calibration and what the table says."""
    return {
        "calibration": msgspec.to_builtins(figures.calibration),
        "rows": [_row(figures, kind) for kind in (*KINDS, None)],
        "cost": _cost(figures.tested),
    }


def _row(figures: AuditFigures, kind: LabelKind | None) -> dict[str, Any]:
    counted: dict[str, Any] = {"label": kind or "any"}
    for name, same in (("same", True), ("different", False)):
        pairs = [pair for pair in figures.tested if pair.cached_right and pair.same == same]
        said = [pair.labelled(kind, figures.calibration) for pair in pairs]
        counted[name] = {"pairs": len(pairs), "right": said.count(True), "wrong": said.count(False)}
    everything = [pair for pair in figures.tested if not pair.same]
    counted["different, whatever was cached"] = {
        "pairs": len(everything),
        "right": sum(pair.labelled(kind, figures.calibration) is True for pair in everything),
    }
    return counted


def _cost(pairs: Sequence[Pair]) -> dict[str, float]:
    """Device seconds of an audit: the scoring pass always, the generation where that did not settle it."""
    score, again = fmean(p.score_s for p in pairs), fmean(p.generate_s for p in pairs)
    audited = fmean(p.score_s + (0.0 if p.identical else p.generate_s) for p in pairs if p.same)
    return {"score_s": score, "generate_s": again, "audit_of_a_right_hit_s": audited}


def _print(console: Console, figures: AuditFigures) -> None:
    made, tested = figures.calibration, figures.tested
    heads = ("same:\nright", "\nwrong", "other:\nright", "\nwrong", "wrong called right", "right called wrong")
    title = f"labels of cached answers, {made.model}, {made.date}, test split"
    table = table_of(title, ("label",), heads, min_width=100)
    for kind in (*KINDS, None):
        row = _row(figures, kind)
        cells: list[str] = [kind or "together"]
        for side in (row["same"], row["different"]):
            cells += [f"{side[word] / side['pairs']:.1%}" for word in ("right", "wrong")]
        for rates in (made.false_accept, made.false_reject):
            rate = rates[kind or "any"]
            cells.append(f"{rate.errors} of {rate.pairs} (<={rate.upper:.1%})")
        table.add_row(*cells)
    console.print(table)
    right = sum(pair.cached_right for pair in tested)
    console.print(
        f"{len(tested)} pairs, of which {right} with a cached answer that is right for its own question: only these "
        "count above.\nSame: served to the same question in other words; other: to a close one with another answer. "
        "The rest gets no label.\nIn brackets: upper end of the one-sided 95 % interval.\n"
        f"Likelihood says right from {made.right_from:.3f} and wrong below {made.wrong_below:.3f}, mean natural "
        "log-probability per token."
    )
    everything = _row(figures, None)["different, whatever was cached"]
    console.print(
        f"Wrong called right whatever was cached: {everything['right']} of {everything['pairs']}; the others are "
        "answers that the model gives wrongly to both questions."
    )
    cost = _cost(tested)
    console.print(
        f"device time: {cost['score_s'] * 1e3:.1f} ms to score, {cost['generate_s'] * 1e3:.1f} ms to generate, "
        f"{cost['audit_of_a_right_hit_s'] * 1e3:.1f} ms to audit a hit with the right answer (16 at a time, "
        f"{sys.platform})"
    )


def _folder(model: str) -> tuple[Path, str]:
    if model in ("small", "large"):
        return checkpoint("student" if model == "small" else "teacher"), model
    if Path(model).is_dir():
        return Path(model), Path(model).name
    raise click.BadParameter(f"{model!r} is no folder and neither small nor large", param_hint="--model")
