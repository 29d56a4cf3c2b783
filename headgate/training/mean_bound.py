"""An upper bound on a mean of numbers that may be very uneven, which holds for any number of them.

Of device seconds a few requests make up much of the mean, and a sample that happens to lack them has a small spread as
well, so that bounds from the normal distribution fail more often than they say. This one is a bet: whoever claims that
the mean is above `m` pays for every number below it and wins what is above. Were the claim true, the capital of who
bets against it would grow 1 / alpha times over with a probability of at most alpha, however he bets on what he has
seen (Ville). So every `m` against which it did is ruled out.

Source: Waudby-Smith and Ramdas, Journal of the Royal Statistical Society B 86 (2024), the predictable plug-in bets of
their empirical Bernstein type, one-sided.
"""

from __future__ import annotations

import numpy as np

from headgate.routing.regression import Array

_BISECTIONS = 18
_MOST_STAKED = 0.9
"""Of the capital, so that no single number ruins who bets."""


def mean_upper_bound(values: Array, most: float, alpha: float) -> Array:
    """Of each row the bound that the mean of what its numbers are drawn from exceeds with probability alpha at most.

    Args:
        values: `[rows, n]`, each row in the order in which its numbers were drawn; 0 or more.
        most: what no number is above, known beforehand; one that is counts as that much.
        alpha: more than 0 and less than 1.

    Returns:
        `[rows]`, at most `most`.
    """
    # What is left of `most`: of its mean a lower bound is sought.
    left = 1.0 - np.minimum(values, most) / most
    count = left.shape[1]
    if not count:
        return np.full(len(left), most)
    seen = np.arange(1, count + 1)
    mean = (0.5 + np.cumsum(left, axis=1)) / (seen + 1)
    spread = (0.25 + np.cumsum((left - mean) ** 2, axis=1)) / (seen + 1)
    # A stake depends on what was seen before.
    before = np.hstack([np.full((len(left), 1), 0.25), spread[:, :-1]])
    stakes = np.sqrt(2.0 * np.log(1.0 / alpha) / (count * before))
    low, high = np.zeros(len(left)), np.ones(len(left))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        staked = np.minimum(stakes, _MOST_STAKED / np.maximum(middle, 1e-12)[:, None])
        capital = np.cumsum(np.log1p(staked * (left - middle[:, None])), axis=1).max(1)
        ruled_out = capital >= np.log(1.0 / alpha)
        low, high = np.where(ruled_out, middle, low), np.where(ruled_out, high, middle)
    bound: Array = most * (1.0 - low)
    return bound
