"""Fits calibrated logistic regressions, small enough to fit in seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.routing.regression import Array, Logistic, Rows, sigmoid

PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1)
"""Tried from the strongest on, each from where the one before ended."""
FOLDS = 5
COMPONENTS = 64
PAIRED = 12
_MOST_STEPS = 25
_SHORTEST = 1e-4
_SMALL_STEP = 1e-6
_LEAST_SPREAD = 1e-6


def folds_of(n: int, count: int, seed: int) -> NDArray[np.int64]:
    """The fold, 0 to `count` - 1, of each of `n` rows, by chance."""
    return np.random.default_rng(seed).permutation(n) % count


def fit(rows: Rows, right: Array, blocks: Sequence[int], *, folds: NDArray[np.int64]) -> Logistic:
    """Fit a regression whose penalty is chosen on held-out folds and whose probabilities are set right there.

    A block of more than `COMPONENTS` columns is first reduced to that many principal components. Columns are then
    standardised and each block scaled to the same total variance, so that one penalty suits all. Squares and products
    of the `PAIRED` main directions of all of it are one more block: what makes a task hard differs from task to task,
    which a sum of columns cannot say. The penalty is the one
    with the least log loss on the folds left out; the same predictions give Platt's slope and intercept, which go into
    the weights with everything else.
    Sources: Newton's method on the penalised likelihood (IRLS); Platt (1999), "Probabilistic outputs for support vector
    machines", with his targets (n + 1) / (n + 2) and 1 / (n + 2).

    Args:
        rows: float32 `[n, features]`.
        right: `[n]`, 1.0 or 0.0; where all are the same, or there are none, the result is a constant.
        blocks: columns of each block, in order; they sum to `features`.
        folds: `[n]`, the fold of each row.
    """
    if not 0.0 < right.sum() < len(right):
        share = (right.sum() + 1) / (len(right) + 2)
        return _plain(np.zeros(rows.shape[1], np.float32), float(np.log(share / (1 - share))))
    centre = rows.mean(0, dtype=np.float64)
    basis = _basis(rows - centre.astype(np.float32), blocks)
    components = (rows - centre.astype(np.float32)) @ basis
    axes = _main_axes(components)
    products, means, spread = _products(components @ axes)
    x = np.hstack([components, products, np.ones((len(rows), 1))]).astype(np.float32)
    left_out = np.zeros((len(PENALTIES), len(right)))
    for fold in np.unique(folds):
        rest, out = folds != fold, folds == fold
        for place, solution in enumerate(_path(x[rest], right[rest], PENALTIES)):
            left_out[place, out] = x[out] @ solution
    losses = [np.logaddexp(0.0, np.where(right > 0, -z, z)).sum() for z in left_out]
    best = int(np.argmin(losses))
    slope, intercept = platt(left_out[best], right)
    solution = _path(x, right, PENALTIES[: best + 1])[-1]
    linear, of_products = slope * solution[: basis.shape[1]], slope * solution[basis.shape[1] : -1] * spread
    own, main = basis @ linear, basis @ axes
    bias = slope * solution[-1] + intercept - own @ centre - of_products @ means
    return Logistic(
        own.astype(np.float32), float(bias), main, (centre @ main).astype(np.float32), _symmetric(of_products)
    )


def _plain(weights: Rows, bias: float) -> Logistic:
    """A regression without products."""
    return Logistic(
        weights, bias, np.zeros((len(weights), 0), np.float32), np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
    )


def _basis(centred: Rows, blocks: Sequence[int]) -> Rows:
    """`[features, components]`: from columns to components of unit spread, each block's scaled by its number."""
    done = begin = 0
    basis = np.zeros((centred.shape[1], sum(min(width, COMPONENTS) for width in blocks)), np.float32)
    for width in blocks:
        block = centred[:, begin : begin + width]
        if width > COMPONENTS:
            axes = np.linalg.svd(block, full_matrices=False)[2][:COMPONENTS].T
        else:
            axes = np.eye(width, dtype=np.float32)
        spread = (block @ axes).std(0)
        # What never varies says nothing, and what hardly does must not be blown up.
        axes = axes / np.where(spread > _LEAST_SPREAD, spread, np.inf) / np.sqrt(min(width, COMPONENTS))
        basis[begin : begin + width, done : done + axes.shape[1]] = axes
        done, begin = done + axes.shape[1], begin + width
    return basis


def _main_axes(components: Rows) -> Rows:
    """`[components, up to PAIRED]`: the directions of the greatest variance, of unit spread along each."""
    axes = np.linalg.svd(components, full_matrices=False)[2][:PAIRED].T
    spread = (components @ axes).std(0)
    # What never varies has no products.
    kept: Rows = (axes[:, spread > _LEAST_SPREAD] / spread[spread > _LEAST_SPREAD]).astype(np.float32)
    return kept


def _products(main: Rows) -> tuple[Rows, Array, Array]:
    """Squares and products of the columns of `main` `[n, paired]`, scaled as a block is; their means and scales."""
    first, second = np.triu_indices(main.shape[1])
    made = main[:, first] * main[:, second]
    means = made.mean(0, dtype=np.float64)
    scale = 1 / np.maximum(made.std(0), _LEAST_SPREAD) / np.sqrt(max(1, len(first)))
    return ((made - means) * scale).astype(np.float32), means, scale.astype(np.float64)


def _symmetric(of_products: Array) -> Rows:
    """The matrix whose form is the sum of the products, weighted."""
    size = int(np.sqrt(2 * len(of_products)))
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = of_products
    return ((upper + upper.T) / 2).astype(np.float32)


def platt(scores: Array, right: Array) -> tuple[float, float]:
    """Slope and intercept that make log-odds of `scores` `[n]`; a slope below 0 becomes 0, which says nothing."""
    yes, no = right.sum(), (1 - right).sum()
    target = np.where(right > 0, (yes + 1) / (yes + 2), 1 / (no + 2))
    x = np.stack([scores, np.ones(len(scores))], axis=1)
    slope, intercept = _newton(x, target, np.zeros(2), np.full(2, 1e-9))
    if slope < 0:
        return 0.0, float(np.log((yes + 1) / (no + 1)))
    return float(slope), float(intercept)


def _path(x: Rows, right: Array, penalties: Sequence[float]) -> list[Array]:
    """Solutions for falling penalties; the last column of `x` is the constant, which is not penalised."""
    found, solution = [], np.zeros(x.shape[1])
    for penalty in penalties:
        # Per row, so that a penalty means the same for any number of them.
        ridge = np.full(x.shape[1], penalty * len(x) / 1000.0)
        ridge[-1] = 1e-9
        solution = _newton(x, right, solution, ridge)
        found.append(solution)
    return found


def _newton(x: NDArray[np.floating], target: Array, start: Array, ridge: Array) -> Array:
    """Where the log loss plus half of `ridge` times the squares is least; steps are halved where they overshoot."""

    def loss(at: Array) -> float:
        z = x @ at
        return float((np.logaddexp(0.0, z) - target * z).sum() + 0.5 * (ridge * at) @ at)

    solution, value = start, loss(start)
    for _ in range(_MOST_STEPS):
        p = sigmoid(x @ solution)
        gradient = x.T @ (p - target) + ridge * solution
        weighted = x * np.sqrt(np.maximum(p * (1 - p), _LEAST_SPREAD))[:, None].astype(x.dtype)
        step = np.linalg.solve((weighted.T @ weighted).astype(np.float64) + np.diag(ridge), gradient)
        length = 1.0
        while length > _SHORTEST and loss(solution - length * step) > value:
            length *= 0.5
        solution = solution - length * step
        before, value = value, loss(solution)
        if before - value < _SMALL_STEP * max(1.0, abs(value)):
            break
    return solution
