"""Which thresholds the calibration streams allow: few wrong hits in the long run, and few streams with too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.cache.judge import LEVELS, Certified, Thresholds
from headgate.training.binomial import at_most, upper_bound

LADDER = (8.0, 7.0, 6.0, 5.5, 5.0, 4.5, 4.0, 3.5, *(0.125 * step for step in range(24, -1, -1)), -1.0, -2.0)
"""Thresholds tried, in log odds, from strict to loose; fixed before anything is labelled."""
ALPHA = 0.05
STREAMS_ABOVE = 0.05
"""Share of streams that may have a larger share of wrong hits than was accepted."""
_DOUBT = 0.2
_DRAWS = 4000
_SPARE = 2

Served = Mapping[float, Mapping[str, tuple[int, int]]]
"""What one stream gave: for each threshold, right and wrong hits by the intent of the request."""


def certified(streams: Sequence[Served], bars: Mapping[float, float] | None = None, *, seed: int = 0) -> Thresholds:
    """For each level the loosest threshold that the streams, all of one kind of traffic, allow.

    `bars`: for levels, the threshold below which none is taken, whatever the streams say.

    The ladder is walked from strict to loose, and the first threshold that fails ends the walk (fixed-sequence testing,
    so alpha needs no correction for the number of thresholds). A threshold passes if it keeps two promises, each at
    95 %. Where none keeps the first, but some the second, the loosest of those is taken that keeps the first at 80 %:
    there it is likely, not proven.

    - Few streams are above the level: the exact binomial upper bound (Clopper and Pearson) on the share of streams in
      which more of the hits were wrong than is accepted is at most 5 %. Streams are taken for independent draws.
    - Few hits are wrong in the long run: of two upper bounds on the share of wrong hits among all hits the larger is at
      most the level. One is the exact binomial one, which takes hits for independent; the other the 95 % quantile of
      that share over draws of as many intents with replacement (Efron's bootstrap by clusters; Davison and Hinkley,
      Bootstrap Methods and their Application, 1997, section 3.8), which takes intents for independent and hits of one
      intent as they come. Thresholds with too few hits to survive two errors are not tested.

    The walk begins where the median stream has hits enough for one wrong one to be within the level, if there is such
    a threshold. Where a stream has few hits, one wrong one breaks the promise, so that stricter
    thresholds are no safer in this sense, and would end the walk before it has begun. Where it begins depends on how
    many hits there are, not on how many of them are right.

    What is counted is what was served: every threshold was played through every stream from an empty cache, so that an
    answer served wrongly again and again counts as often as a user would see it.
    """
    names = {intent for own in streams for served in own.values() for intent in served}
    rows = {name: row for row, name in enumerate(sorted(names))}
    # [streams, intents, rungs]: hits at each threshold, and those of them that are wrong.
    hits = np.zeros((len(streams), max(1, len(rows)), len(LADDER)))
    wrong = np.zeros_like(hits)
    for number, own in enumerate(streams):
        for at, rung in enumerate(LADDER):
            for intent, (good, bad) in own.get(rung, {}).items():
                hits[number, rows[intent], at] = good + bad
                wrong[number, rows[intent], at] = bad
    bounds = _bounds(hits.sum(axis=0), wrong.sum(axis=0), seed)
    levels = []
    for level in LEVELS:
        enough = np.median(hits.sum(axis=1), axis=0) * level >= 1.0
        late = bool(enough.any())
        above = np.sum(wrong.sum(axis=1) > level * hits.sum(axis=1), axis=0)
        chosen = likely = None
        proven = True
        for at, bound in enumerate(bounds):
            total = int(hits[:, :, at].sum())
            if at_most(min(_SPARE, total), total, level) > ALPHA or (
                late and likely is None and chosen is None and not enough[at]
            ):
                continue
            if bound > level or (bars is not None and LADDER[at] < bars.get(level, LADDER[at])):
                break
            proven = proven and upper_bound(int(above[at]), len(streams), ALPHA) <= STREAMS_ABOVE
            if proven:
                chosen = at
            if upper_bound(int(above[at]), len(streams), _DOUBT) <= STREAMS_ABOVE:
                likely = at
        chosen = likely if chosen is None else chosen
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
