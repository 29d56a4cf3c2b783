"""The trial of all rules: in the domain they were learned in, and on families they never saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.bench.routing.curves import (
    Curve,
    Measured,
    aiq,
    apgr,
    area,
    calls_for,
    curve,
    ends,
    gap_closed,
    interval,
    oracle,
    resamples,
    rising,
    seconds_for,
)
from headgate.bench.routing.policies import NAMES, compare, families
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import FittedQuality
from headgate.routing.regression import Array

RESAMPLES = 1000
_LEAST_GAP = 0.005
"""Oracle's area over that of random upgrades below which a family says nothing about a rule."""

Interval = tuple[float, float, float]
"""A value and its 95 % interval; not numbers where it cannot be told."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rule in one domain.

    Attributes:
        name: of the rule.
        gap_closed: share of the area between random upgrades and the oracle's.
        apgr: average performance gap recovered.
        cpt50: share of calls to the large model that recovers half of the gap between the models.
        cpt80: that recovers four fifths.
        aiq: mean quality at all costs between the two models', by the hull.
        seconds_at_95: device seconds that reach 95 % of the large model's quality, as a share of its own.
    """

    name: str
    gap_closed: Interval
    apgr: Interval
    cpt50: Interval
    cpt80: Interval
    aiq: Interval
    seconds_at_95: Interval


@dataclass(frozen=True, slots=True)
class Line:
    """A rule's curve for the plot: mean device milliseconds, quality and its 95 % interval, at some shares of calls."""

    name: str
    milliseconds: tuple[float, ...]
    quality: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """All rules on the same prompts.

    Attributes:
        small: quality of the small model alone; what it hands over counts as wrong.
        large: of the large one.
        handed: share of the prompts that the small model hands over.
        alone: quality of the small model where it may not.
        own: share of the gap closed by estimates where the answers that it then gives count as the small model's; empty
            where it hands nothing over.
    """

    prompts: int
    small: Interval
    large: Interval
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    handed: float
    alone: Interval
    own: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rules on families left out of what they were learned on.

    `by_family`: rule to family to share of the gap closed; `mean`: over the families with a gap; `pooled`: all
    families' areas added up before dividing, which a family with a small gap cannot upset.
    """

    families: tuple[str, ...]
    by_family: dict[str, dict[str, float]]
    mean: dict[str, Interval]
    pooled: dict[str, Interval]


def in_domain(known: OutcomeTable, new: OutcomeTable, *, seed: int = 0) -> Trial:
    """Rules learned on `known` and tried on `new`, with paired bootstrap intervals over the prompts of `new`."""
    compared = compare(known, new, seed=seed)
    times = resamples(RESAMPLES, len(new), seed)
    best = curve(compared.measured, oracle(compared.measured), times)
    rows, lines = [_random(compared.measured, times)], []
    for policy in (*compared.policies, oracle(compared.measured)):
        made = curve(compared.measured, policy, times, seed=seed)
        frugal = None if policy.frugal is None else rising(policy.frugal, times)
        rows.append(_row(policy.name, made, best, compared.measured, times, frugal))
        lines.append(_line(policy.name, made))
    small, large = (interval(values) for values in ends(compared.measured, times))
    alone = replace(compared.measured, small=new.alone)
    furthest = curve(alone, oracle(alone), times)
    own = {
        policy.name: interval(gap_closed(curve(alone, policy, times, seed=seed), furthest, alone, times))
        for policy in compared.policies
        if policy.name in NAMES.values() and new.handed_over.any()
    }
    handed = float(new.handed_over.mean())
    return Trial(len(new), small, large, tuple(rows), tuple(lines), handed, interval(ends(alone, times)[0]), own)


def held_out(table: OutcomeTable, *, tell: Callable[[str], None] = lambda _: None, seed: int = 0) -> HeldOut:
    """Each family in turn is left out of the part `train`, and all of its prompts are tried on."""
    names = families(table)
    closed: dict[str, list[Array]] = {}
    gained: dict[str, list[Array]] = {}
    gaps: list[Array] = []
    kept: list[str] = []
    for name in names:
        mine = [place for place, one in enumerate(table.outcomes) if one.family == name]
        rest = [place for place in table.rows("train") if table.outcomes[place].family != name]
        new = table.take(mine)
        compared = compare(table.take(rest), new, few=True, seed=seed)
        times = resamples(RESAMPLES, len(new), seed)
        best = curve(compared.measured, oracle(compared.measured), times)
        chance = 0.5 * sum(ends(compared.measured, times))
        gap = area(best) - chance
        if gap[0] < _LEAST_GAP:
            tell(f"{name}: no gap")
            continue
        kept.append(name)
        gaps.append(gap)
        for policy in compared.policies:
            made = curve(compared.measured, policy, times, seed=seed)
            gained.setdefault(policy.name, []).append(area(made) - chance)
            closed.setdefault(policy.name, []).append(gap_closed(made, best, compared.measured, times))
        tell(f"{name}: held out")
    by_family = {
        rule: dict(zip(kept, (float(values[0]) for values in found), strict=True)) for rule, found in closed.items()
    }
    mean = {rule: interval(np.nanmean(found, axis=0)) for rule, found in closed.items()}
    pooled = {rule: interval(np.sum(found, axis=0) / np.sum(gaps, axis=0)) for rule, found in gained.items()}
    return HeldOut(tuple(kept), by_family, mean, pooled)


def decision_seconds(fitted: FittedQuality, table: OutcomeTable, *, most: int = 500) -> float:
    """Median seconds of one estimate, from features to both probabilities."""
    asked = [table.features(place) for place in range(min(most, len(table)))]
    spent = []
    for features in asked:
        started = time.perf_counter()
        fitted.estimate(features, "")
        spent.append(time.perf_counter() - started)
    return float(np.median(spent))


def _row(name: str, made: Curve, best: Curve, measured: Measured, times: Array, frugal: Curve | None = None) -> Row:
    seconds = seconds_for(made, measured, times, 0.95)
    if frugal is not None:
        seconds = np.minimum(seconds, seconds_for(frugal, measured, times, 0.95))
    return Row(
        name,
        interval(gap_closed(made, best, measured, times)),
        interval(apgr(made, measured, times)),
        interval(calls_for(made, measured, times, 0.5)),
        interval(calls_for(made, measured, times, 0.8)),
        interval(aiq(made, measured, times)),
        interval(seconds),
    )


def _random(measured: Measured, times: Array) -> Row:
    """Each request is upgraded with the same probability: what is expected of that, not one draw of it."""
    small, large = ends(measured, times)
    low, high = (times @ spent / times.sum(1) for spent in (measured.small_s, measured.large_s))
    level, better = np.full(len(small), np.nan), large > small
    needed = np.divide(0.95 * large - small, large - small, out=np.where(small >= 0.95 * large, 0.0, 1.0), where=better)
    at_95 = (low + np.clip(needed, 0, 1) * (high - low)) / high
    return Row(
        "random mix",
        interval(np.zeros(len(small))),
        interval(np.where(better, 0.5, level)),
        interval(np.where(better, 0.5, level)),
        interval(np.where(better, 0.8, level)),
        interval(np.where(better, 0.5 * (small + large), small)),
        interval(at_95),
    )


def _line(name: str, made: Curve) -> Line:
    places: Sequence[int] = np.unique(np.linspace(0, made.calls.shape[1] - 1, 41).astype(int)).tolist()
    quality = made.quality[:, places]
    low, high = np.quantile(quality[1:], (0.025, 0.975), axis=0)
    spent = 1e3 * made.seconds[0, places]
    return Line(name, *(tuple(float(value) for value in values) for values in (spent, quality[0], low, high)))
