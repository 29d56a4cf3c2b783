"""How well models answered the prompts nearest to a new one: the baseline that learned estimates must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.routing.regression import Array
from headgate.routing.types import Vector

COUNTS = (5, 10, 20, 50, 100)
"""Numbers of neighbours that `fit_neighbours` tries."""
SHARPNESS = (0.0, 5.0, 15.0)
PRIOR = 2.0
"""Weight of the mean of all prompts, in nearest neighbours."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Known prompts: unit vectors `[n, dim]`, and what is known of each, `[n, outcomes]`.

    An estimate is the mean over the `count` nearest, each weighted by exp(`sharpness` x (its cosine - the
    highest one)), drawn towards the mean of all as a Beta prior of weight `PRIOR` would.
    """

    vectors: Vector
    outcomes: Array
    count: int
    sharpness: float

    def predict(self, vectors: Vector) -> Array:
        """Estimates `[m, outcomes]` for unit vectors `[m, dim]`."""
        cosines = (vectors @ self.vectors.T).astype(np.float64)
        count = min(self.count, len(self.vectors))
        nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        return _mean(np.take_along_axis(cosines, nearest, 1), self.outcomes[nearest], self.outcomes, self.sharpness)


def fit_neighbours(vectors: Vector, outcomes: Array, folds: NDArray[np.int64]) -> Neighbours:
    """The number of neighbours and the sharpness with the least log loss on the folds left out.

    Args:
        vectors: float32 `[n, dim]`, unit norm.
        outcomes: `[n, outcomes]`, each 1.0 or 0.0.
        folds: `[n]`, the fold of each row.
    """
    tried = [(count, sharpness) for count in COUNTS for sharpness in SHARPNESS]
    losses = np.zeros(len(tried))
    for fold in np.unique(folds):
        rest, out = folds != fold, folds == fold
        for place, (count, sharpness) in enumerate(tried):
            said = Neighbours(vectors[rest], outcomes[rest], count, sharpness).predict(vectors[out])
            losses[place] -= np.log(np.where(outcomes[out] > 0, said, 1 - said)).sum()
    return Neighbours(vectors, outcomes, *tried[int(np.argmin(losses))])


def _mean(cosines: Array, near: Array, known: Array, sharpness: float) -> Array:
    weights = np.exp(sharpness * (cosines - cosines.max(axis=1, keepdims=True)))
    # Never quite 0 or 1, where all agree.
    prior = (known.sum(0) + 1) / (len(known) + 2)
    total = weights.sum(1, keepdims=True) + PRIOR
    mean: Array = (np.einsum("mk,mko->mo", weights, near) + PRIOR * prior) / total
    return mean
