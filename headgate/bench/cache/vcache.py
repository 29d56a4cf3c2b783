"""The rule of vCache, as a baseline: explores at random so that few *requests*, not few hits, get a wrong answer.

Its promise is per request: a request that is explored goes to the model and counts as right. With little known of an
entry it still serves about `delta` of its candidates at random, so among the hits most can be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_LEAST_OBSERVATIONS = 6
# Nothing in common was wrong, the same text was right: with them a curve exists from the first observation on.
_SEEDS = ((0.0, False), (1.0, True))
_GRID = 50
_MISS_CHANCES = np.arange(1, _GRID + 1) / (_GRID + 1)
_QUANTILES = np.array([NormalDist().inv_cdf(1.0 - chance) for chance in _MISS_CHANCES])
_NEWTON_STEPS = 100
_CONVERGED = 1e-8


@dataclass(frozen=True, slots=True)
class Curve:
    """What an entry's observations say: the answer is right with probability sigmoid(slope * (similarity - middle))."""

    slope: float
    middle: float
    """The similarity at which right and wrong are equally likely."""
    middle_sd: float
    """Standard deviation of the estimate of the middle."""

    def correctness(self, similarity: float) -> float:
        """Lower bound on the probability that the answer is right, averaged over how sure the curve is.

        For each chance e of the grid the middle is below its upper confidence limit with probability 1 - e, which gives
        `(1 - e) * sigmoid(slope * (similarity - limit))`; this is the best of them. 0.0 where the answer is no more
        likely right the closer the texts are: the rule's model does not hold there.
        """
        if not self.slope > 0.0 or not math.isfinite(self.middle_sd):
            return 0.0
        limits = np.clip(self.middle + _QUANTILES * self.middle_sd, 0.0, 1.0)
        curves = np.exp(-np.logaddexp(0.0, -self.slope * (similarity - limits)))
        return float(((1.0 - _MISS_CHANCES) * curves).max())


@dataclass(frozen=True, slots=True)
class VCacheDecision:
    """Whether to serve the entry, and how likely the rule was to ask the model instead."""

    serve: bool
    explore: float
    """Probability of asking the model, 0 to 1."""


def fit_curve(observations: Sequence[tuple[float, bool]]) -> Curve | None:
    """An entry's curve by maximum likelihood, the middle's variance by the delta method.

    Where one similarity parts right from wrong the likelihood has no maximum, and the rule needs a substitute;
    ours is Firth's penalised likelihood, which is always finite.

    Source: Schroeder et al., vCache, arXiv 2502.03771; Firth, Biometrika 80 (1993).

    Args:
        observations: similarity, 0 to 1, of each text the entry was the nearest to, and whether its answer was right.

    Returns:
        The curve, or None while there are too few observations: 6 with two artificial ones, so 4.

    Raises:
        ValueError: a similarity is not in 0 to 1.
    """
    for similarity, _ in observations:
        if not 0.0 <= similarity <= 1.0:
            raise ValueError(f"an observed similarity is {similarity}; 0 to 1 is accepted")
    known = [*_SEEDS, *observations]
    if len(known) < _LEAST_OBSERVATIONS:
        return None
    parted = max(s for s, right in known if not right) <= min(s for s, right in known if right)
    design = np.array([(1.0, similarity) for similarity, _ in known])
    labels = np.array([right for _, right in known], dtype=np.float64)
    (intercept, slope), covariance = _maximise(design, labels, firth=parted)
    if slope == 0.0:
        return Curve(0.0, 0.0, math.inf)
    gradient = np.array([-1.0 / slope, intercept / slope**2])
    return Curve(float(slope), float(-intercept / slope), math.sqrt(max(0.0, float(gradient @ covariance @ gradient))))


def decide(curve: Curve | None, similarity: float, delta: float, uniform: float) -> VCacheDecision:
    """Serve the nearest entry, or ask the model and observe whether the entry was right.

    The error of a request is (1 - explore) * (1 - P(right)), which is at most `delta` for
    `explore = 1 - delta / (1 - correctness)`.

    Args:
        curve: of the nearest entry; None always asks the model.
        similarity: cosine of the two texts; below 0 counts as 0.
        delta: share of requests that may get a wrong answer.
        uniform: drawn uniformly from 0 to 1 for this request.

    Raises:
        ValueError: `delta` or `uniform` is out of range.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta}; more than 0 and less than 1 is accepted")
    if not 0.0 <= uniform <= 1.0:
        raise ValueError(f"uniform is {uniform}; 0 to 1 is accepted")
    if curve is None:
        return VCacheDecision(serve=False, explore=1.0)
    doubt = 1.0 - curve.correctness(max(0.0, similarity))
    explore = 0.0 if doubt <= delta else 1.0 - delta / doubt
    # Asking the model at equality keeps a draw of 1 from serving what is to be explored with certainty.
    return VCacheDecision(serve=uniform > explore, explore=explore)


def _maximise(
    design: NDArray[np.float64], labels: NDArray[np.float64], *, firth: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights `[2]` of the logistic regression of labels `[n]` on a design `[n, 2]`, and their covariance `[2, 2]`."""
    weights: NDArray[np.float64] = np.zeros(design.shape[1])
    now, expected, information = _fit(design, labels, weights, firth=firth)
    for _ in range(_NEWTON_STEPS):
        covariance = np.linalg.inv(information)
        residuals = labels - expected
        if firth:
            leverages = expected * (1.0 - expected) * ((design @ covariance) * design).sum(axis=1)
            residuals = residuals + leverages * (0.5 - expected)
        step = covariance @ (design.T @ residuals)
        while np.abs(step).max() > _CONVERGED:
            then, expected, information = _fit(design, labels, weights + step, firth=firth)
            if then >= now:
                break
            # Far from the optimum a full step can lead away from it.
            step = 0.5 * step
        else:
            break
        weights, now = weights + step, then
    return weights, np.linalg.inv(_fit(design, labels, weights, firth=firth)[2]).astype(np.float64)


def _fit(
    design: NDArray[np.float64], labels: NDArray[np.float64], weights: NDArray[np.float64], *, firth: bool
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Log likelihood, expected labels `[n]` and Fisher information `[2, 2]` at some weights."""
    log_odds = design @ weights
    softplus = np.logaddexp(0.0, log_odds)
    expected = np.exp(log_odds - softplus)
    information = (design * (expected * (1.0 - expected))[:, None]).T @ design
    likelihood = float(labels @ log_odds - softplus.sum())
    if firth:
        likelihood += 0.5 * float(np.linalg.slogdet(information)[1])
    return likelihood, expected, information
