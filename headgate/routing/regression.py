"""Calibrated logistic regression on plain arrays, small enough to fit in seconds and to apply in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.float32]

PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""Tried from the strongest on, each from where the one before ended."""
FOLDS = 5
_MOST_STEPS = 25
_SMALL_STEP = 1e-6
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """P(right) = 1 / (1 + exp(-(weights . x + bias))); `weights` float32 `[features]`."""

    weights: Rows
    bias: float

    def predict(self, rows: Rows) -> Array:
        """Probabilities `[n]` for `rows` `[n, features]`."""
        return sigmoid(rows @ self.weights + self.bias)

    def one(self, row: Rows) -> float:
        """The probability for one row `[features]`."""
        return float(sigmoid(np.asarray(row @ self.weights + self.bias)))


def sigmoid(z: NDArray[np.floating]) -> Array:
    """1 / (1 + exp(-z)), which neither overflows nor loses the sign."""
    half: Array = 0.5 * (1.0 + np.tanh(0.5 * np.asarray(z, np.float64)))
    return half


def folds_of(groups: Sequence[str] | None, n: int, count: int, seed: int) -> NDArray[np.int64]:
    """The fold, 0 to `count` - 1, of each of `n` rows: by chance, or whole groups at a time where groups are given."""
    drawn = np.random.default_rng(seed)
    if groups is None:
        return drawn.permutation(n) % count
    names = sorted(set(groups))
    fold = dict(zip((names[place] for place in drawn.permutation(len(names))), range(len(names)), strict=True))
    return np.array([fold[name] % count for name in groups], np.int64)


def fit(
    rows: Rows, right: Array, blocks: Sequence[int], *, folds: NDArray[np.int64], weights: Array | None = None
) -> Logistic:
    """Fit a regression whose penalty is chosen on held-out folds and whose probabilities are set right there.

    Columns are standardised, and each block of columns (an embedding, the counts) is scaled to the same total variance,
    so that one penalty suits all. The penalty is the one with the least log loss on the folds left out; the same
    predictions give Platt's slope and intercept, which go into the weights.
    Sources: Newton's method on the penalised likelihood (IRLS); Platt (1999), "Probabilistic outputs for support vector
    machines", with his targets (n + 1) / (n + 2) and 1 / (n + 2).

    Args:
        rows: float32 `[n, features]`.
        right: `[n]`, 1.0 or 0.0; where all are the same the result is a constant.
        blocks: columns of each block, in order; they sum to `features`.
        folds: `[n]`, the fold of each row.
        weights: `[n]`, how often each row counts; once each by default.
    """
    times = np.ones(len(right)) if weights is None else weights
    mean = float(times @ right / times.sum())
    if not 0.0 < mean < 1.0:
        share = (times @ right + 1) / (times.sum() + 2)
        return Logistic(np.zeros(rows.shape[1], np.float32), float(np.log(share / (1 - share))))
    centre, scale = rows.mean(0), rows.std(0)
    scale = np.where(scale > _LEAST_SPREAD, scale, np.inf) * np.repeat(np.sqrt(blocks), blocks)
    x = np.hstack([((rows - centre) / scale).astype(np.float32), np.ones((len(rows), 1), np.float32)])
    left_out = np.zeros((len(PENALTIES), len(right)))
    for fold in np.unique(folds):
        rest, out = folds != fold, folds == fold
        for place, solution in enumerate(_path(x[rest], right[rest], times[rest], PENALTIES)):
            left_out[place, out] = x[out] @ solution
    losses = [times @ np.logaddexp(0.0, np.where(right > 0, -z, z)) for z in left_out]
    best = int(np.argmin(losses))
    slope, intercept = platt(left_out[best], right, times)
    solution = list(_path(x, right, times, PENALTIES[: best + 1]))[-1]
    own = slope * solution[:-1] / scale
    return Logistic(own.astype(np.float32), float(slope * solution[-1] + intercept - own @ centre))


def platt(scores: Array, right: Array, times: Array | None = None) -> tuple[float, float]:
    """Slope and intercept that make log-odds of `scores` `[n]`; a slope below 0 becomes 0, which says nothing."""
    times = np.ones(len(right)) if times is None else times
    yes, no = times @ right, times @ (1 - right)
    target = np.where(right > 0, (yes + 1) / (yes + 2), 1 / (no + 2))
    x = np.stack([scores, np.ones(len(scores))], axis=1)
    slope, intercept = _newton(x, target, times, np.zeros(2), np.full(2, 1e-9))
    if slope < 0:
        share = (yes + 1) / (yes + no + 2)
        return 0.0, float(np.log(share / (1 - share)))
    return float(slope), float(intercept)


def _path(x: Rows, right: Array, times: Array, penalties: Sequence[float]) -> list[Array]:
    """Solutions for falling penalties; the last column of `x` is the constant, which is not penalised."""
    found, solution = [], np.zeros(x.shape[1])
    # Per row, so that a penalty means the same for any number of them.
    for penalty in penalties:
        ridge = np.full(x.shape[1], penalty * times.sum() / 1000.0)
        ridge[-1] = 1e-9
        solution = _newton(x, right, times, solution, ridge)
        found.append(solution)
    return found


def _newton(x: NDArray[np.floating], target: Array, times: Array, start: Array, ridge: Array) -> Array:
    """Where the log loss plus half of `ridge` times the squares is least; steps are halved where they overshoot."""

    def loss(at: Array) -> float:
        z = x @ at
        return float(times @ (np.logaddexp(0.0, z) - target * z) + 0.5 * (ridge * at) @ at)

    solution, value = start, loss(start)
    for _ in range(_MOST_STEPS):
        p = sigmoid(x @ solution)
        gradient = x.T @ (times * (p - target)) + ridge * solution
        spread = np.sqrt(np.maximum(times * p * (1 - p), 1e-12)).astype(x.dtype)
        weighted = x * spread[:, None]
        step = np.linalg.solve((weighted.T @ weighted).astype(np.float64) + np.diag(ridge), gradient)
        length = 1.0
        while length > 1e-4 and loss(solution - length * step) > value:
            length *= 0.5
        solution = solution - length * step
        before, value = value, loss(solution)
        if before - value < _SMALL_STEP * max(1.0, abs(value)):
            break
    return solution
