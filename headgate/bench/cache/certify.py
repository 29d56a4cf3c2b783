"""Which thresholds the calibration streams allow: a bound that knows that errors come in intents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.cache.binomial import at_most, upper_bound
from headgate.cache.judge import LEVELS, Certified, Thresholds

LADDER = tuple(round(float(value), 3) for value in np.arange(9.0, -2.01, -0.1))
"""Thresholds tried, in log odds, from strict to loose; fixed before anything is labelled."""
ALPHA = 0.05
_DRAWS = 4000
_SPARE = 2
_STREAMS_ABOVE = 0.05


@dataclass(frozen=True, slots=True)
class Labelled:
    """The best candidate of a request that no guard forbids: a hit from its score on.

    Attributes:
        score: log odds.
        right: whether its answer is the right one.
        intent: of the request.
    """

    score: float
    right: bool
    intent: str


def certified(streams: Sequence[Sequence[Labelled]], seed: int = 0) -> Thresholds:
    """For each level the loosest threshold that the streams, all of one kind of traffic, allow.

    The ladder is walked from strict to loose, and the first threshold that fails ends the walk (fixed-sequence testing,
    so alpha needs no correction for the number of thresholds). A threshold passes if the larger of two upper bounds on
    the share of wrong hits is at most the level: the exact binomial one (Clopper and Pearson), which takes hits for
    independent, and the 95 % quantile of that share over draws of as many intents with replacement (Efron's bootstrap
    by clusters; Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8), which takes intents
    for independent and hits of one intent as they come. Thresholds with too few labels to survive two errors are not
    tested.

    The bound is on the share in the long run. For that a single stream of this length rarely exceeds the level, the
    threshold that is taken is the loosest passed one at which at most 5 % of these streams do: chosen, not proven.
    """
    intents = {name: row for row, name in enumerate(sorted({one.intent for own in streams for one in own}))}
    # [streams, intents, rungs]: hits from each threshold on, and those of them that are wrong.
    hits = np.zeros((len(streams), max(1, len(intents)), len(LADDER)))
    wrong = np.zeros_like(hits)
    rungs = np.array(LADDER)
    for number, own in enumerate(streams):
        for one in own:
            served = one.score >= rungs
            hits[number, intents[one.intent]] += served
            wrong[number, intents[one.intent]] += served & (not one.right)
    bounds = _bounds(hits.sum(axis=0), wrong.sum(axis=0), seed)
    levels = []
    for level in LEVELS:
        above = np.mean(wrong.sum(axis=1) > level * hits.sum(axis=1), axis=0)
        chosen = None
        for rung, bound in enumerate(bounds):
            total = int(hits[:, :, rung].sum())
            if at_most(min(_SPARE, total), total, level) > ALPHA:
                continue
            if bound > level:
                break
            if above[rung] <= _STREAMS_ABOVE:
                chosen = rung
        if chosen is not None:
            levels.append(Certified(level, LADDER[chosen], round(float(bounds[chosen]), 5)))
    return Thresholds(tuple(levels))


def _bounds(hits: NDArray[np.float64], wrong: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Upper bounds `[rungs]` from hits and wrong hits `[intents, rungs]`."""
    exact = [upper_bound(int(bad), int(all_), ALPHA) for bad, all_ in zip(wrong.sum(0), hits.sum(0), strict=True)]
    drawn = np.random.default_rng(seed).multinomial(len(hits), np.full(len(hits), 1.0 / len(hits)), _DRAWS)
    all_ = drawn @ hits
    shares = np.divide(drawn @ wrong, all_, out=np.ones_like(all_), where=all_ > 0)
    clustered: NDArray[np.float64] = np.quantile(shares, 1.0 - ALPHA, axis=0)
    return np.maximum(clustered, exact)
