"""Tables of `headgate bench routing`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from headgate.bench.routing.attack import Attacked
from headgate.bench.routing.cascades import Cost
from headgate.bench.routing.targets import Held
from headgate.bench.routing.trial import HeldOut, Interval, Trial


def print_trial(console: Console, trial: Trial) -> None:
    """Every rule on the same prompts."""
    table = Table(
        "rule", "gap closed", "APGR", "CPT50", "CPT80", "quality at equal cost (AIQ)", "device s at 95 % of large",
        title=f"{trial.prompts} prompts; right: small {_percent(trial.small)}, large {_percent(trial.large)}",
    )  # fmt: skip
    for row in trial.rows:
        figures = (row.gap_closed, row.apgr, row.cpt50, row.cpt80, row.aiq, row.seconds_at_95)
        table.add_row(row.name, *(_percent(value) for value in figures))
    console.print(table)
    if trial.own:
        told = ", ".join(f"{name} {_percent(value)}" for name, value in trial.own.items())
        console.print(
            f"the small model hands over {trial.handed:.1%}; where it may not it has {_percent(trial.alone)} right. "
            f"Counted against these answers of its own the gap closed is: {told}"
        )
    console.print("in percent, with 95 % bootstrap intervals of 1,000 paired resamples of the prompts", style="dim")


def print_held_out(console: Console, found: HeldOut) -> None:
    """Share of the gap closed on families that nothing was learned from."""
    table = Table(
        "family held out", *found.mean, title="share of the random-to-oracle gap closed, held out, in percent"
    )
    for name in found.families:
        table.add_row(name, *(f"{100 * found.by_family[rule][name]:.0f}" for rule in found.mean))
    table.add_section()
    table.add_row("mean", *(_percent(value) for value in found.mean.values()))
    table.add_row("pooled", *(_percent(value) for value in found.pooled.values()))
    console.print(table)


def print_targets(console: Console, held: Sequence[Held], count: int) -> None:
    """Whether calibrated targets hold."""
    table = Table(
        "estimates", "target", "calibrated", "violated", "stated", "stays small", "device s", "quality", "on test once",
        title=f"{count} calibrations each; device seconds and quality as shares of the large model's",
    )  # fmt: skip
    for one in held:
        table.add_row(
            one.source,
            one.target,
            str(one.feasible),
            f"{one.violated / count:.1%} (< {one.bound:.1%})",
            f"{one.stated:.0%}",
            *("-" if math.isnan(value) else f"{value:.1%}" for value in (one.small, one.cost, one.quality)),
            "infeasible" if math.isnan(one.test) else f"{one.test:.4f}",
        )
    console.print(table)


def print_costs(console: Console, costs: Sequence[Cost]) -> None:
    """Calibrated rules at the same loss."""
    table = Table(
        "rule", "at most worse", "realised", "asked small", "answered small", "device s", "quality", "first token, p50",
        "p95", title="calibrated rules; device seconds and quality as shares of the large model's; lone requests wait",
    )  # fmt: skip
    for one in costs:
        shares = (one.realised, one.first, one.small, one.seconds, one.quality)
        waits = (f"{1e3 * seconds:.1f} ms" for seconds in (one.median_s, one.p95_s))
        table.add_row(one.rule, f"{one.loss:.0%}", *(f"{share:.1%}" for share in shares), *waits)
    console.print(table)


def print_attacks(console: Console, attacks: Sequence[Attacked]) -> None:
    """What a prefix does to the upgrade rate."""
    table = Table(
        "estimates", "clean", "attacked", "defended, clean", "defended, attacked", "gap closed", "defended",
        title="requests upgraded, and what the defence costs",
    )  # fmt: skip
    for one in attacks:
        rates = [one.clean, one.attacked, one.clean_defended, one.attacked_defended]
        rates += [one.gap_closed, one.gap_closed_defended]
        table.add_row(one.source, *(f"{rate:.1%}" for rate in rates))
    console.print(table)
    for one in attacks:
        console.print(f"{one.source}: prefix {one.prefix!r}; against the defence {one.defended_prefix!r}", markup=False)


def _percent(value: Interval) -> str:
    if math.isnan(value[0]):
        return "-"
    middle, low, high = (100 * part for part in value)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"
