"""Plots of `headgate bench routing`. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headgate.bench.routing.trial import HeldOut, Line, Trial

# Distinct for people who do not see red and green apart (Okabe and Ito's palette); baselines are thin or broken.
_STYLES: dict[str, tuple[str, str, float]] = {
    "probe": ("#0072B2", "-", 2.4),
    "logistic": ("#D55E00", "-", 2.4),
    "kNN": ("#CC79A7", "--", 1.4),
    "cascade, quantiles": ("#009E73", "-.", 1.6),
    "cascade, mean": ("#009E73", ":", 1.6),
    "task rule": ("#E69F00", "--", 1.4),
    "length rule": ("#999999", "--", 1.4),
    "told the small answer": ("#56B4E9", ":", 1.6),
    "oracle": ("#000000", "-", 1.2),
}
_BANDS = ("probe", "logistic", "oracle")
"""Rules whose interval is drawn as a band; those of the others are bars at their middle."""


def plot(trial: Trial, held: HeldOut, folder: Path) -> list[Path]:
    """Writes PNG files to the folder, which exists, and returns their paths."""
    pictures = {"routing-cost-quality.png": _cost_quality(trial), "routing-held-out.png": _held_out(held)}
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=150)
    return [folder / name for name in pictures]


def _cost_quality(trial: Trial) -> Figure:
    """Right answers against device time, every rule from no upgrades to all."""
    figure = Figure(figsize=(8.6, 5.6), layout="constrained")
    axes = figure.subplots()
    lines = {line.name: line for line in trial.lines}
    plain = lines["length rule"]
    ends = (
        (plain.milliseconds[0], plain.quality[0], trial.small),
        (plain.milliseconds[-1], plain.quality[-1], trial.large),
    )
    axes.plot([x for x, _, _ in ends], [100 * y for _, y, _ in ends], ":", color="#555555", label="random mix")
    for name, (color, style, width) in _STYLES.items():
        line = lines.get(name)
        if line is None:
            continue
        axes.plot(line.milliseconds, [100 * q for q in line.quality], style, color=color, linewidth=width, label=name)
        if name == "oracle":
            # Once it has upgraded all that this makes right, more to spend brings nothing.
            axes.hlines(
                100 * line.quality[-1], line.milliseconds[-1], ends[1][0], color=color, linewidth=0.8, alpha=0.5
            )
        if name in _BANDS:
            low, high = ([100 * q for q in side] for side in (line.low, line.high))
            axes.fill_between(line.milliseconds, low, high, color=color, alpha=0.12, linewidth=0)
        else:
            _bar(axes, line, color)
    for (x, y, interval), name, side in zip(ends, ("small alone", "large alone"), ((8, -18), (-8, -18)), strict=True):
        bars = [[100 * (y - interval[1])], [100 * (interval[2] - y)]]
        axes.errorbar([x], [100 * y], yerr=bars, fmt="s", color="#333333", markersize=6, capsize=3, zorder=5)
        align = "left" if side[0] > 0 else "right"
        box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        axes.annotate(name, (x, 100 * y), side, textcoords="offset points", fontsize=9, ha=align, bbox=box, zorder=6)
    axes.set_xlabel("device milliseconds a request, with what the rule itself costs")
    axes.set_ylabel("right answers, %")
    axes.set_title(f"{trial.prompts} test prompts; bands and bars are 95 % bootstrap intervals", fontsize=10)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=9)
    return figure


def _bar(axes: Axes, line: Line, color: str) -> None:
    """The interval of one point in the middle of a line."""
    at = len(line.quality) // 2
    quality = line.quality[at]
    bars = [[100 * (quality - line.low[at])], [100 * (line.high[at] - quality)]]
    axes.errorbar(
        [line.milliseconds[at]],
        [100 * quality],
        yerr=bars,
        fmt=".",
        color=color,
        markersize=4,
        capsize=2,
        linewidth=0.9,
    )


def _held_out(held: HeldOut) -> Figure:
    """Share of the gap closed on each family that was held out, and over all of them."""
    rules = [name for name in ("length rule", "kNN", "logistic", "probe", "cascade, quantiles") if name in held.mean]
    figure = Figure(figsize=(8.6, 1.2 + 0.42 * (len(held.families) + 1)), layout="constrained")
    axes = figure.subplots()
    names = [*held.families, "pooled"]
    for place, rule in enumerate(rules):
        color = _STYLES[rule][0]
        at = [row + 0.13 * (place - (len(rules) - 1) / 2) for row in range(len(names))]
        values = [*(100 * held.by_family[rule][family] for family in held.families), 100 * held.pooled[rule][0]]
        axes.plot(values, at, "o", color=color, markersize=5, label=rule)
        middle, low, high = (100 * value for value in held.pooled[rule])
        axes.errorbar([middle], at[-1:], xerr=[[middle - low], [high - middle]], color=color, capsize=2)
    axes.axvline(0, color="#555555", linewidth=0.8)
    axes.set_xlim(-60, 100)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("share of the random-to-oracle gap closed, %; the family was held out of what the rule learned on")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(rules), fontsize=9)
    return figure
