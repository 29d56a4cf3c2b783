"""Fits estimates of quality on an outcome table, and calibrates their thresholds on prompts they were not fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.engine.request import FORECAST
from headgate.routing.calibration import ALWAYS_LARGE, ALWAYS_SMALL, Calibration
from headgate.routing.cascade import QUANTILES
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import SOURCES, Estimator, FittedQuality, Source, readings
from headgate.routing.quality_features import SURENESS, SURFACE
from headgate.routing.regression import Array, Rows
from headgate.training.binomial import upper_bound
from headgate.training.mean_bound import mean_upper_bound
from headgate.training.regression import FOLDS, fit, folds_of

CONFIDENCE = 0.95
"""That a target holds that was chosen by the bounds."""
_THRESHOLDS = 50
_DEAREST = 2.0
_LEAST_HANDED = 100
"""Prompts that were handed over, and that the large model has right, from which on their own regression is fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What estimates from one source read of a table's prompts.

    Attributes:
        rows: `[readings, columns]`, all of the first prompt, then all of the second...; one each, but for cores.
        prompts: `[readings]`, the prompt that each is of, rising.
        blocks: columns of each block of the regression, in order.
    """

    rows: Rows
    prompts: NDArray[np.int64]
    blocks: tuple[int, ...]

    def estimates(self, pair: Estimator) -> Array:
        """How likely the small model is enough for each prompt, by the reading that says so most, `[prompts]`."""
        return self._highest(pair.enough(self.rows))

    def kept(self, pair: Estimator) -> Array:
        """The same of answers to what it would hand over, `[prompts]`."""
        return self._highest(pair.kept(self.rows))

    def _highest(self, told: Array) -> Array:
        starts = np.flatnonzero(np.diff(self.prompts, prepend=-1))
        made: Array = np.maximum.reduceat(told, starts)
        return made


def design(table: OutcomeTable, source: Source) -> Design | None:
    """What estimates from `source` read; None where the table lacks it."""
    own = (table.states if source == "probe" else table.vectors).shape[1]
    if own == 0 or not len(table):
        return None
    found = [rows for place in range(len(table)) if (rows := readings(table.features(place), source)) is not None]
    prompts = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
    half = (own - FORECAST) // 2
    # Of the last token, of all, and of the next one.
    width = (half, half, FORECAST + SURENESS) if source == "probe" else (own,)
    return Design(np.concatenate(found), prompts, (*width, len(SURFACE)))


def fit_pair(read: Design, small: Array, large: Array, alone: Array | None = None, *, seed: int = 0) -> Estimator:
    """Regressions of both models' rightness, `[prompts]` each, on every reading of the prompts.

    `alone`: of the prompts that the small model hands over, whether its own answer is right; not a number for others.

    The small model's is fitted where the large one is right: what both have wrong says nothing of what is lost, and the
    two models err together. Fitted on whole texts alone, a regression would take a core for an easier text, which it is
    only sometimes. Where a model's rightness is not known, which is told by not a number, its own regression goes
    without the prompt; where the large one's is not, the prompt counts as if that were right.
    """
    folds = folds_of(len(small), FOLDS, seed)[read.prompts]
    found = []
    for right, counts in ((small, large != 0), (large, np.full(len(large), True))):
        known = (counts & ~np.isnan(right))[read.prompts]
        found.append(fit(read.rows[known], right[read.prompts][known], read.blocks, folds=folds[known]))
    small_fit, large_fit = found
    alone_fit = None
    if alone is not None:
        handed = ~np.isnan(alone) & (large != 0)
        known = handed[read.prompts]
        if handed.sum() >= _LEAST_HANDED:
            alone_fit = fit(read.rows[known], alone[read.prompts][known], read.blocks, folds=folds[known])
    return Estimator(small_fit, large_fit, alone=alone_fit)


@dataclass(frozen=True, slots=True, eq=False)
class Keeping:
    """Requests that the small model hands over unless it may not, `[requests]` each.

    Attributes:
        handed: which they are; the rest is of no account elsewhere.
        right: whether its own answer is right, 1.0 or 0.0.
        seconds: device seconds of its own answer.
        estimates: of that answer's losing nothing.
    """

    handed: NDArray[np.bool_]
    right: Array
    seconds: Array
    estimates: Array

    def take(self, places: NDArray[np.int64]) -> Keeping:
        """The requests at these places."""
        return Keeping(self.handed[places], self.right[places], self.seconds[places], self.estimates[places])

    def under(self, thresholds: Array) -> NDArray[np.bool_]:
        """`[thresholds, requests]`: what it answers itself, because that is likely enough to lose nothing."""
        return self.handed & (self.estimates > thresholds[:, None])


def fit_quality(table: OutcomeTable, *, seed: int = 0) -> FittedQuality:
    """Estimates from every source that the table has, fitted on its part `train` and calibrated on `calibration`.

    Raises:
        ValueError: one of the parts has no prompts.
    """
    train, held = table.take(table.rows("train")), table.take(table.rows("calibration"))
    for name, part in (("train", train), ("calibration", held)):
        if not len(part):
            raise ValueError(
                f"the table has no prompts in its part {name!r}; at least one is needed, more prompts help"
            )
    estimators, cascades = fit_evidence(_evidence(train), _evidence(held), seed=seed)
    means = shares(train.right("small"), train.right("large"))
    named = table.small, table.large, table.embedder
    return FittedQuality(*named, *means, estimators, cascades, table.hand_over)


def shares(small: Array, large: Array) -> tuple[float, float]:
    """What share the small model has right of what the large one has, and that one of all, from `[prompts]` each."""
    return float(small @ large / max(1.0, large.sum())), float(large.mean())


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is known of requests, `[requests]` each. To calibrate on, both models must have answered all of them.

    Attributes:
        small: whether the small model was right, 1.0 or 0.0; not a number where nobody knows.
        large: whether the large one was, likewise.
        given: whether the answer is right where the small one is asked first, which may hand over; likewise.
        alone: whether the small one's own answer is right where it would hand over; not a number where it would not.
        designs: what estimates read, by source.
        seconds: device seconds where the small model answers and where the large one does, by source.
        alone_s: device seconds where the small model answers what it would hand over, by source.
        sureness: how sure the small model was of its answer, by quantile, where that is known.
        cascade_s: device seconds where its answer stands, and where the large model takes over.
    """

    small: Array
    large: Array
    given: Array
    alone: Array
    designs: Mapping[Source, Design]
    seconds: Mapping[Source, tuple[Array, Array]]
    alone_s: Mapping[Source, Array]
    sureness: Mapping[float, Array]
    cascade_s: tuple[Array, Array]


def fit_evidence(
    known: Evidence, new: Evidence, *, seed: int = 0
) -> tuple[dict[Source, Estimator], dict[float, Calibration]]:
    """Estimators and cascades, fitted on `known` and calibrated on `new`."""
    estimators: dict[Source, Estimator] = {}
    for source in SOURCES:
        if source not in known.designs or source not in new.designs:
            continue
        read = known.designs[source]
        pair = fit_pair(read, known.small, known.large, known.alone, seed=seed)
        told, estimates = new.designs[source].estimates(pair), read.estimates(pair)
        keeping = None
        if pair.alone is not None:
            keeping = Keeping(~np.isnan(new.alone), new.alone, new.alone_s[source], new.designs[source].kept(pair))
            estimates = np.concatenate([estimates, read.kept(pair)[~np.isnan(known.alone)]])
        most_s = dearest(*known.seconds[source])
        calibration = calibrate(
            told, new.given, new.large, *new.seconds[source], grid(estimates), most_s, keeping=keeping
        )
        estimators[source] = Estimator(pair.small, pair.large, calibration, pair.alone)
    most_s = dearest(*known.cascade_s)
    cascades = {
        quantile: calibrate(new.sureness[quantile], new.given, new.large, *new.cascade_s, grid(sure), most_s)
        for quantile, sure in known.sureness.items()
    }
    return estimators, cascades


def _evidence(table: OutcomeTable) -> Evidence:
    designs = {source: read for source in SOURCES if (read := design(table, source)) is not None}
    return Evidence(
        table.right("small"),
        table.right("large"),
        table.given,
        table.handed_right,
        designs,
        {source: costs(table, source) for source in designs},
        {source: alone_costs(table, source) for source in designs},
        {quantile: sureness_of(table, quantile) for quantile in QUANTILES},
        cascade_costs(table),
    )


def sureness_of(table: OutcomeTable, quantile: float) -> Array:
    """How sure the small model was of each answer: the probability of its token at the quantile, `[prompts]`."""
    return np.exp([one.confidence.quantiles[quantile] for one in table.outcomes])


def cascade_costs(table: OutcomeTable) -> tuple[Array, Array]:
    """Device seconds of each request where the small answer stands, and where both models answer."""
    small_s = np.array([one.small.device_s for one in table.outcomes])
    both_s = small_s + np.array([one.large.device_s for one in table.outcomes])
    return np.where(table.handed_over, both_s, small_s), both_s


def grid(estimates: Array) -> Array:
    """Thresholds at quantiles of estimates `[n]` on prompts that nothing is calibrated on, between the two extremes."""
    inner = np.unique(np.quantile(estimates, np.linspace(0, 1, _THRESHOLDS + 1)))
    inner = inner[(inner > ALWAYS_SMALL) & (inner < ALWAYS_LARGE)]
    return np.concatenate([[ALWAYS_SMALL], inner, [ALWAYS_LARGE]])


def costs(table: OutcomeTable, source: Source) -> tuple[Array, Array]:
    """Device seconds of each request where the small model is asked first and where it goes to the large one.

    A probe costs the small model's pass over the prompt, which its own answer starts from and the large one's does not.
    What the small model hands over costs both.
    """
    passed = np.array([one.probe_s if source == "probe" else 0.0 for one in table.outcomes])
    after = [one.after_probe_s if source == "probe" else one.small.device_s for one in table.outcomes]
    large_s = np.array([one.large.device_s for one in table.outcomes])
    return passed + np.array(after) + np.where(table.handed_over, large_s, 0.0), passed + large_s


def alone_costs(table: OutcomeTable, source: Source) -> Array:
    """Device seconds of each request where the small model is asked first and may not hand over, `[prompts]`.

    After a probe the answer costs less than without one by what the handing over does: the prompt's pass.
    """
    own = np.array([(one.own or one.small).device_s for one in table.outcomes])
    if source != "probe":
        return own
    saved = np.array([one.small.device_s - one.after_probe_s for one in table.outcomes])
    whole: Array = np.array([one.probe_s for one in table.outcomes]) + np.maximum(0.0, own - saved)
    return whole


def dearest(kept_s: Array, upgraded_s: Array) -> float:
    """What no request is taken to cost, in device seconds: twice the dearest one that was fitted on."""
    return _DEAREST * float(np.nanmax([kept_s, upgraded_s]))


def calibrate(
    estimates: Array,
    small: Array,
    large: Array,
    kept_s: Array,
    upgraded_s: Array,
    thresholds: Array,
    most_s: float,
    *,
    keeping: Keeping | None = None,
    confidence: float = CONFIDENCE,
) -> Calibration:
    """Bounds for each threshold, from prompts that neither the estimates nor the thresholds know.

    The loss is bounded by Clopper and Pearson's interval on the prompts that the large model has right, the mean of the
    seconds by `mean_upper_bound`. Both hold for any number of prompts.

    Args:
        estimates: `[n]`, of the small model's being enough.
        small: `[n]`, whether the answer is right where the small model is asked first, 1.0 or 0.0.
        large: `[n]`, whether the large one's is.
        kept_s: `[n]`, device seconds where the small model is asked first.
        upgraded_s: `[n]`, where the large one does.
        thresholds: rising, from `ALWAYS_SMALL` to `ALWAYS_LARGE`.
        most_s: more than any request costs; one that does cost more counts as that.
        keeping: what the small model hands over only where its own answer is not above the threshold; None: all of it.
        confidence: of each bound, 0 to 1.
    """
    stays: NDArray[np.bool_] = estimates[None, :] > thresholds[:, None]
    right, kept_s = small[None, :], kept_s[None, :]
    if keeping is not None:
        keeps = keeping.under(thresholds)
        right, kept_s = np.where(keeps, keeping.right, right), np.where(keeps, keeping.seconds, kept_s)
    lost = (stays & (large > right)).sum(1)
    trials = int(large.sum())
    known = {int(errors): upper_bound(int(errors), trials, 1 - confidence) for errors in np.unique(lost)}
    bounds = [known[int(errors)] for errors in lost]
    # Prompts may be sorted, as by their difficulty; the bound on seconds takes them as they are drawn.
    drawn = np.random.default_rng(0).permutation(len(estimates))
    spent = np.where(stays, kept_s, upgraded_s)[:, drawn]
    # The large model loses nothing against itself, which no count has to show.
    loss = np.where(thresholds >= ALWAYS_LARGE, 0.0, bounds)
    return Calibration(
        thresholds, loss, mean_upper_bound(spent, most_s, 1 - confidence), stays.mean(1), confidence, len(estimates)
    )
