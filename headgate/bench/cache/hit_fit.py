"""How the model of hits is fitted on labels, which `headgate bench cache --fit` does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.cache.bound import Evidence, HitModel

# The intercept takes part of the penalty only, so that labels of one kind still have a finite fit.
_INTERCEPT_PENALTY = 0.01
_NEWTON_STEPS = 100
_OFFSET_VARIANCES = tuple(2.0**power for power in range(-6, 5))
_OFFSET_VARIANCE_SPREAD = math.log(4.0)
# A normal law of variance v under a logistic curve flattens it by about 1 / sqrt(1 + _FLATTENING v).
# Source: Zeger, Liang and Albert, Biometrics 44 (1988).
_FLATTENING = (16.0 * math.sqrt(3.0) / (15.0 * math.pi)) ** 2


def fit_model(
    evidence: Sequence[Evidence], right: Sequence[bool], entries: Sequence[str], *, penalty: float = 1.0
) -> HitModel:
    """Fit the weights by Newton's method and the offsets' variance by marginal likelihood (empirical Bayes).

    A weak prior around 1 decides the variance where no entry has two labels.

    Args:
        evidence: what was known about each labelled candidate, all with the same signals.
        right: the labels.
        entries: whose labels they are.
        penalty: of the squared standardised weights; as much as so many labels say against a weight of 1.

    Raises:
        ValueError: nothing is given, the lengths or signals differ, or the penalty is not positive.
    """
    if not evidence or not len(evidence) == len(right) == len(entries):
        lengths = f"{len(evidence)}, {len(right)} and {len(entries)}"
        raise ValueError(f"evidence, right and entries have {lengths} items; as many of each, at least 1, are accepted")
    names = evidence[0].names
    for item in evidence:
        if item.names != names:
            raise ValueError(f"evidence holds {names} and {item.names}; the same names throughout are accepted")
    if not (math.isfinite(penalty) and penalty > 0.0):
        raise ValueError(f"penalty is {penalty}; a finite number above 0 is accepted")
    values = np.array([item.values for item in evidence], dtype=np.float64)
    mean, scale = values.mean(axis=0), values.std(axis=0)
    # A value that never changes says nothing; rounding must not make a scale of it.
    scale[scale < 1e-9 * (1.0 + np.abs(mean))] = 1.0
    design = np.column_stack([np.ones(len(values)), (values - mean) / scale])
    labels = np.array(right, dtype=np.float64)
    ridge = np.full(design.shape[1], penalty)
    ridge[0] *= _INTERCEPT_PENALTY
    weights = _newton(design, labels, ridge)
    return HitModel(
        names=names,
        mean=tuple(mean.tolist()),
        scale=tuple(scale.tolist()),
        weights=tuple(weights[1:].tolist()),
        intercept=float(weights[0]),
        offset_variance=_offset_variance(design @ weights, labels, entries),
    )


def _newton(
    design: NDArray[np.float64], labels: NDArray[np.float64], ridge: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights `[values]` of the ridge logistic regression of labels `[n]` on a design `[n, values]`."""

    def loss(weights: NDArray[np.float64]) -> float:
        log_odds = design @ weights
        return float(np.logaddexp(0.0, log_odds).sum() - labels @ log_odds + 0.5 * ridge @ weights**2)

    weights = np.zeros(design.shape[1])
    now = loss(weights)
    for _ in range(_NEWTON_STEPS):
        expected = _sigmoids(design @ weights)
        slope = design.T @ (expected - labels) + ridge * weights
        curvature = (design * (expected * (1.0 - expected))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, slope)
        # Far from the optimum a full step can lead away from it.
        while (then := loss(weights - step)) > now and np.abs(step).max() > 1e-12:
            step *= 0.5
        if then >= now:
            break
        weights, now = weights - step, then
    return weights


def _offset_variance(log_odds: NDArray[np.float64], labels: NDArray[np.float64], entries: Sequence[str]) -> float:
    """The candidate variance under which the labels of all entries are likeliest, offsets integrated out."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(21)
    shares /= shares.sum()
    row_of = np.unique(np.array(entries), return_inverse=True)[1]
    signs = np.where(labels > 0.0, 1.0, -1.0)[:, None]

    def log_likelihood(variance: float) -> float:
        # Spread out by what the offsets flatten: then only how labels of one entry agree tells variances apart.
        spread = log_odds[:, None] * math.sqrt(1.0 + _FLATTENING * variance)
        of_label = -np.logaddexp(0.0, -signs * (spread + math.sqrt(variance) * nodes))
        of_entry = np.zeros((int(row_of.max()) + 1, len(nodes)))
        np.add.at(of_entry, row_of, of_label)
        peak = of_entry.max(axis=1, keepdims=True)
        likelihood = float((peak[:, 0] + np.log(np.exp(of_entry - peak) @ shares)).sum())
        return likelihood - 0.5 * (math.log(variance) / _OFFSET_VARIANCE_SPREAD) ** 2

    return max(_OFFSET_VARIANCES, key=log_likelihood)


def _sigmoids(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0.0, -log_odds))
