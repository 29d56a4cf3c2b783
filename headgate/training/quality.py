"""Fits estimates of quality on an outcome table, and calibrates their thresholds on prompts they were not fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.cache.binomial import upper_bound
from headgate.engine.request import FORECAST
from headgate.routing.calibration import ALWAYS_LARGE, ALWAYS_SMALL, Calibration
from headgate.routing.cascade import QUANTILES
from headgate.routing.outcomes import OutcomeTable
from headgate.routing.quality import SOURCES, Estimator, FittedQuality, Source, readings
from headgate.routing.quality_features import SURENESS, SURFACE
from headgate.routing.regression import FOLDS, Array, Rows, fit, folds_of
from headgate.training.mean_bound import mean_upper_bound

CONFIDENCE = 0.95
"""That a target holds that was chosen by the bounds."""
_THRESHOLDS = 50
_DEAREST = 2.0


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
        starts = np.flatnonzero(np.diff(self.prompts, prepend=-1))
        made: Array = np.maximum.reduceat(pair.enough(self.rows), starts)
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


def fit_pair(read: Design, small: Array, large: Array, *, seed: int = 0) -> Estimator:
    """Regressions of both models' rightness, `[prompts]` each, on every reading of the prompts.

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
    return Estimator(small_fit, large_fit)


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
        designs: what estimates read, by source.
        seconds: device seconds where the small model answers and where the large one does, by source.
        sureness: how sure the small model was of its answer, by quantile, where that is known.
        cascade_s: device seconds where its answer stands, and where the large model takes over.
    """

    small: Array
    large: Array
    given: Array
    designs: Mapping[Source, Design]
    seconds: Mapping[Source, tuple[Array, Array]]
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
        pair = fit_pair(read, known.small, known.large, seed=seed)
        told = new.designs[source].estimates(pair)
        thresholds = grid(read.estimates(pair))
        most_s = dearest(*known.seconds[source])
        calibration = calibrate(told, new.given, new.large, *new.seconds[source], thresholds, most_s)
        estimators[source] = Estimator(pair.small, pair.large, calibration)
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
        designs,
        {source: costs(table, source) for source in designs},
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
        confidence: of each bound, 0 to 1.
    """
    stays: NDArray[np.bool_] = estimates[None, :] > thresholds[:, None]
    lost = (stays & (large > small)[None, :]).sum(1)
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
