"""What can be seen of a gateway's memory from outside, and how it goes on with the requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

_KIB = 1024
_FULL = 0.98
_STILL = 1.01
_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Look:
    """The gateway after so many requests."""

    requests: int
    resident: int
    """Bytes in memory."""
    blocks: int
    """Of Python's objects."""
    files: int
    threads: int
    stores: dict[str, tuple[int, float]]
    """What it remembers of ended requests, by store: things, and the part of the bound that they take."""


def look(pid: int, metrics: str, requests: int) -> Look:
    """By what Linux says of the process, and what it says of itself at `/metrics`."""
    process = Path(f"/proc/{pid}")
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    families = {family.name: family for family in text_string_to_metric_families(metrics)}

    def by_store(name: str) -> dict[str, float]:
        return {sample.labels["store"]: sample.value for sample in families[name].samples}

    ratios = by_store("headgate_remembered_ratio")
    items = by_store("headgate_remembered_items")
    return Look(
        requests,
        int(fields["VmRSS"].split()[0]) * _KIB,
        int(families["headgate_python_blocks"].samples[0].value),
        len(list((process / "fd").iterdir())),
        int(fields["Threads"]),
        {name: (int(count), ratios[name]) for name, count in items.items()},
    )


def growing(before: Look, after: Look) -> list[str]:
    """Stores that are neither full nor as they were."""
    return [
        name
        for name, (count, full) in after.stores.items()
        if full < _FULL and count > before.stores.get(name, (0, 0.0))[0] * _STILL
    ]


@dataclass(frozen=True, slots=True)
class Slope:
    """What one request more adds: the estimate, and bounds that hold for 95 of 100 such runs, about."""

    each: float
    low: float
    high: float


def slope(requests: Sequence[int], sizes: Sequence[int]) -> Slope:
    """Of a line through sizes over requests, by least squares.

    Looks that follow one another are alike, so the bounds are those of a moving block bootstrap: the line with its
    residuals in other orders, in pieces as long as the cube root of their number (Künsch 1989).
    """
    x, y = np.asarray(requests, float), np.asarray(sizes, float)
    each, base = np.polyfit(x, y, 1)
    residuals: Any = y - (each * x + base)
    count = len(x)
    length = max(1, round(count ** (1 / 3)))
    draw = np.random.default_rng(0)
    begins = draw.integers(0, count - length + 1, size=(_DRAWS, -(-count // length)))
    order = (begins[:, :, None] + np.arange(length)).reshape(_DRAWS, -1)[:, :count]
    centred = x - x.mean()
    # The slope of a line is a weighted sum of what it goes through.
    drawn = each + residuals[order] @ centred / (centred @ centred)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Slope(float(each), float(low), float(high))
