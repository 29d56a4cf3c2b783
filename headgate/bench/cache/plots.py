"""Plots of `headgate bench cache`. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from headgate.bench.cache.edits import draw_pairs
from headgate.bench.cache.intents import Share
from headgate.bench.cache.rules import encode
from headgate.bench.cache.slots import EditType
from headgate.bench.cache.trial import KINDS, Row, StreamResult, rows
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.judge import Judge

# Distinct for people who do not see red and green apart (Okabe and Ito's palette).
_COLORS = {
    "ours": "#0072B2",
    "best static": "#E69F00",
    "static + guards": "#009E73",
    "vCache": "#D55E00",
}
_OTHERS = "#999999"


def plot(
    results: Sequence[StreamResult],
    judge: Judge,
    encoder: BertEncoder,
    share: Share,
    folder: Path,
    *,
    pairs: int = 900,
) -> list[Path]:
    """Writes PNG files to the folder, which exists, and returns their paths; `pairs` of each sort in the histograms."""
    pictures = {"cache-cosines.png": _cosines(judge, encoder, share, pairs)}
    if results:
        pictures["cache-errors.png"] = _errors(rows(results))
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=150)
    return [folder / name for name in pictures]


def _errors(made: Sequence[Row]) -> Figure:
    """Wrong share of the hits against right hits, relative to the oracle's; bars are 95 % intervals."""
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in made)]
    figure = Figure(figsize=(2.5 + 3.5 * len(kinds), 4.2), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0], kinds, strict=True):
        for row in made:
            if row.kind != kind or row.policy == "oracle" or not row.error.trials:
                continue
            low, high = row.error.interval
            share = row.error.share
            color = _COLORS.get(row.policy, _OTHERS)
            bars = [[100 * (share - low)], [100 * (high - share)]]
            axes.errorbar(100 * row.of_oracle, 100 * share, yerr=bars, fmt="o", markersize=4, color=color, capsize=2)
            label = f"{row.level:.0%}" if row.level is not None else row.policy.removeprefix("cosine ")
            axes.annotate(label, (100 * row.of_oracle, 100 * share), (4, 3), textcoords="offset points", fontsize=7)
        axes.set_title(f"{kind} streams")
        axes.set_xlabel("right hits, % of the oracle's")
        axes.set_xlim(0, 100)
        axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylim(0, 100)
        axes.set_yticks([0, 0.5, 1, 2, 5, 10, 20, 50, 100], ["0", "0.5", "1", "2", "5", "10", "20", "50", "100"])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("wrong hits, % of the hits by meaning")
    served = {row.policy for row in made if row.error.trials}
    names = [*(name for name in _COLORS if name in served), "fixed cosine"]
    for name in names:
        figure.axes[0].plot([], [], "o", markersize=4, color=_COLORS.get(name, _OTHERS), label=name)
    figure.legend(loc="outside lower center", ncols=len(names), fontsize=8)
    return figure


def _cosines(judge: Judge, encoder: BertEncoder, share: Share, count: int) -> Figure:
    """One small histogram for each kind of near miss, over that of the paraphrases."""
    pairs = list(draw_pairs(share, count, 0))
    texts = encode((text for pair in pairs for text in (pair.first, pair.second)), encoder, judge)
    embedded = texts.embedded
    found: dict[tuple[EditType | None, bool], list[float]] = {}
    for pair in pairs:
        first, second = (embedded.vectors[embedded.rows[text]] for text in (pair.first, pair.second))
        found.setdefault((pair.edit, pair.same_words), []).append(float(first @ second))
    kinds = sorted({kind for kind, _ in found if kind is not None})
    columns = 6
    lines = -(-len(kinds) // columns)
    figure = Figure(figsize=(13, 1.9 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, sharex=True, squeeze=False)
    edges = [0.02 * step + 0.3 for step in range(36)]
    for axes, kind in zip(grid.ravel(), kinds, strict=False):
        axes.hist(found[None, False], edges, density=True, color=_OTHERS, label="paraphrases")
        for words, same, color in (("same", True, _COLORS["vCache"]), ("other", False, _COLORS["ours"])):
            if (kind, same) in found:
                label = f"near misses, {words} words"
                axes.hist(found[kind, same], edges, density=True, histtype="step", color=color, label=label)
        axes.set_title(kind, fontsize=9)
        axes.set_yticks([])
    for axes in grid.ravel()[len(kinds) :]:
        axes.set_visible(False)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    figure.suptitle("cosine similarity (all-MiniLM-L6-v2) of generated pairs of unseen intents", fontsize=10)
    return figure
