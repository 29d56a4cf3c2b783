"""Plots of `headgate bench demo`. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from headgate.bench.demo.measure import NAMES, DemoFigures
from headgate.bench.demo.report import LABELS
from headgate.engine.demo import Name
from headgate.training.evaluate import Score, scores

# Distinct for people who do not see red and green apart, and in grey (Okabe and Ito's palette).
_COLORS: dict[Name, str] = {"teacher": "#0072B2", "student": "#E69F00", "undistilled": "#999999"}
_MARKERS: dict[Name, str] = {"teacher": "s", "student": "o", "undistilled": "^"}

_THIN: dict[str, Any] = {"capsize": 2, "error_kw": {"linewidth": 1}}


def plot(figures: DemoFigures, folder: Path) -> list[Path]:
    """Writes three PNG files to `folder` and returns their paths. Error bars are 95 % intervals."""
    pictures = {
        "accuracy_by_level.png": _by_level(figures),
        "accuracy_by_cost.png": _by_cost(figures),
        "accuracy_by_family.png": _by_family(figures),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=150)
    return [folder / name for name in pictures]


def _by_level(figures: DemoFigures) -> Any:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(NAMES):
        counted = scores(figures.models[name].answers)
        groups = [*counted.by_level.values(), counted.overall]
        places = [place + 0.27 * (number - 1) for place in range(len(groups))]
        axes.bar(places, _heights(groups), 0.25, color=_COLORS[name], label=LABELS[name], yerr=_bars(groups), **_THIN)
    levels = scores(figures.models["teacher"].answers).by_level
    axes.set_xticks(range(len(levels) + 1), [*(f"level {level}" for level in levels), "all"])
    _percent(axes.set_ylim, axes.set_ylabel)
    _legend(figure)
    return figure


def _by_cost(figures: DemoFigures) -> Any:
    """Hollow points: levels; solid ones: all samples."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name in NAMES:
        model = figures.models[name]
        counted = scores(model.answers)
        found = [(f"level {level}", model.device_s_per_right(level), s) for level, s in counted.by_level.items()]
        found.append(("all", model.device_s_per_right(), counted.overall))
        # Without a right answer there is no cost of one, so the point has no place.
        points = [(label, cost, score) for label, cost, score in found if cost is not None]
        for label, cost, score in points:
            at = (1e3 * cost, 100 * score.accuracy)
            axes.errorbar(
                *at,
                yerr=_bars([score]),
                color=_COLORS[name],
                marker=_MARKERS[name],
                markerfacecolor=_COLORS[name] if label == "all" else "white",
                label=LABELS[name] if label == "all" else None,
                linestyle="",
                elinewidth=1,
                capsize=2,
            )
            # Level 2 is about as dear as all together.
            aside = (5, -11) if label == "all" else (5, 5)
            axes.annotate(label, at, xytext=aside, textcoords="offset points", fontsize=7, color=_COLORS[name])
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("device milliseconds per right answer")
    _percent(axes.set_ylim, axes.set_ylabel)
    _legend(figure)
    return figure


def _by_family(figures: DemoFigures) -> Any:
    figure = Figure(figsize=(7, 9), layout="constrained")
    axes = figure.subplots()
    families: list[str] = []
    for number, name in enumerate(NAMES):
        by_family = scores(figures.models[name].answers).by_family
        families, groups = list(by_family), list(by_family.values())
        places = [place + 0.27 * (number - 1) for place in range(len(groups))]
        axes.barh(places, _heights(groups), 0.25, color=_COLORS[name], label=LABELS[name], xerr=_bars(groups), **_THIN)
    axes.set_yticks(range(len(families)), families)
    _percent(axes.set_xlim, axes.set_xlabel)
    axes.set_ylim(len(families) - 0.5, -0.5)
    _legend(figure)
    return figure


def _legend(figure: Any) -> None:
    if not figure.axes[0].get_legend_handles_labels()[0]:  # no model has a right answer, so nothing has a place
        return
    figure.legend(loc="outside upper center", ncols=len(NAMES))


def _percent(limit: Any, label: Any) -> None:
    limit(0, 105)
    label("right answers, %")


def _heights(groups: Sequence[Score]) -> list[float]:
    return [100 * score.accuracy for score in groups]


def _bars(groups: Sequence[Score]) -> list[list[float]]:
    """Lengths of the error bars below and above, in percent."""
    below = [100 * (score.accuracy - score.interval[0]) for score in groups]
    above = [100 * (score.interval[1] - score.accuracy) for score in groups]
    # Rounding can leave a length just below 0 where the interval ends at the value, which matplotlib refuses.
    return [[max(0.0, length) for length in side] for side in (below, above)]
