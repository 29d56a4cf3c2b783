"""The plot of `headgate usage`. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headgate.gateway.commands.usage import Row

# Distinct for people who do not see red and green apart (Okabe and Ito's palette).
_COLORS = {
    "generated": "#0072B2", "rejected": "#56B4E9", "cancelled": "#999999", "cut": "#D55E00", "exact": "#009E73",
    "semantic": "#E69F00", "retried": "#CC79A7", "shadow": "#000000",
}  # fmt: skip


def draw(rows: Sequence[Row], path: Path) -> None:
    """Tokens of each day by cause, and below what they cost. `rows` have the labels day and cause.

    ClickException where the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise click.ClickException("--plot needs matplotlib; pip install matplotlib brings it") from None
    days = sorted({row.labels[0] for row in rows})
    figure = Figure(figsize=(8, 5), layout="constrained")
    tokens, usd = figure.subplots(2, sharex=True)
    base, money = dict.fromkeys(days, 0), dict.fromkeys(days, 0.0)
    for cause, color in _COLORS.items():
        counts = {
            row.labels[0]: row.counts["prompt_tokens"] + row.counts["completion_tokens"]
            for row in rows
            if row.labels[1] == cause
        }
        if counts:
            heights = [counts.get(day, 0) for day in days]
            tokens.bar(days, heights, bottom=[base[day] for day in days], color=color, label=cause)
            for day, height in zip(days, heights, strict=True):
                base[day] += height
    for row in rows:
        money[row.labels[0]] += row.cost.nano_usd / 1e9
    usd.bar(days, [money[day] for day in days], color="#0072B2")
    tokens.set_ylabel("tokens, prompt and answer")
    usd.set_ylabel("US dollars")
    usd.tick_params(axis="x", rotation=45)
    if days:
        tokens.legend()
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        # Of a folder that is not there, or of an ending that names no format.
        raise click.ClickException(f"--plot: {path} cannot be written: {error}") from None
