"""What load came to, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from headgate.bench.routing.set_ups import SETUPS, Devices, Variant


@dataclass(frozen=True, slots=True)
class LoadFigure:
    """One variant at one load. Times are seconds; `load` is a share of the capacity."""

    devices: Devices
    load: float
    variant: Variant
    requests: int
    p50_s: float
    p95_s: float
    right: float | None
    """Share of right answers, where the models say something."""
    second: float
    """Share of the requests that the second model of the set-up answered."""
    by_price: float
    """Share of the requests that the small model was good enough for and the price sent to the large one."""
    cached: float
    """Mean prompt tokens that were not computed again."""
    others_p95_s: float | None
    """Of the other team's requests, where there is one."""


@dataclass(frozen=True, slots=True)
class LoadTable:
    """All figures. `capacity`: requests a second of each set-up, with all of them there at once. `seconds`: over which
    requests arrived, for each variant and load."""

    capacity: Mapping[Devices, float]
    seconds: Mapping[Devices, float]
    figures: tuple[LoadFigure, ...]

    def gain(self, devices: Devices, load: float, variant: Variant = "neither") -> float:
        """By what share the p95 of all signals is below that of a variant."""
        by = {f.variant: f.p95_s for f in self.figures if (f.devices, f.load) == (devices, load)}
        return 1 - by["both"] / by[variant]

    def overall(self, devices: Devices, variant: Variant = "neither") -> float:
        """The same over all loads: of the geometric means of the p95."""
        loads = dict.fromkeys(f.load for f in self.figures if f.devices == devices)
        return 1 - math.exp(sum(math.log(1 - self.gain(devices, load, variant)) for load in loads) / len(loads))


def print_load(console: Console, table: LoadTable) -> None:
    """One table per set-up."""
    for devices, capacity in table.capacity.items():
        setup = SETUPS[devices]
        title = f"load, {setup.first} and {setup.second}: capacity {capacity:.1f} requests/s"
        shown = Table(title=f"{title}, arrivals over {table.seconds[devices]:g} s")
        columns = ("load", "signals", "requests", "p50 s", "p95 s", "right %", f"{setup.second} %", "by price %")
        for name in (*columns, "cached", "others' p95 s"):
            shown.add_column(name, justify="left" if name == "signals" else "right")
        figures = [f for f in table.figures if f.devices == devices]
        for f in figures:
            shown.add_row(
                f"{f.load:g}",
                f.variant,
                str(f.requests),
                f"{f.p50_s:.3f}",
                f"{f.p95_s:.3f}",
                "" if f.right is None else f"{100 * f.right:.1f}",
                f"{100 * f.second:.0f}",
                f"{100 * f.by_price:.0f}",
                f"{f.cached:.0f}",
                "" if f.others_p95_s is None else f"{f.others_p95_s:.3f}",
                end_section=f.variant == setup.variants[-1],
            )
        console.print(shown)
        loads = dict.fromkeys(f.load for f in figures)
        for variant in setup.variants[1:]:
            told = ", ".join(f"{100 * table.gain(devices, load, variant):+.0f} % at {load:g}" for load in loads)
            over = f"{100 * table.overall(devices, variant):+.0f} %"
            console.print(f"p95 that both signals save against {variant}: {told}; {over} over all loads")
