"""A linear head over embedding, words and marks, fitted in closed form together with its own honest test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.routing.surface import Reading
from headgate.routing.types import Vector

_Labels = NDArray[np.int64]
_COOLEST, _HOTTEST = 0.01, 2.0
# Chosen by leaving examples out one at a time.
_RIDGE = 0.5
"""Penalty of the weights; an example's squared length is about 2.5."""
_MOST_UPWEIGHT = 4.0
"""How many times as much an example of a small class counts at most."""
_FAMILIAR_WEIGHT = 0.4
"""How much it counts what share of a request's words the examples have."""
_REFUSED = 0.003
"""The share of rightly told examples that may be called unknown for want of confidence."""
_SMALL = 64
"""Rows of a triangle that is inverted as any other matrix is."""


class Vocabulary:
    """The words and pairs of words of the examples, weighted by their rarity, each example's to unit length."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._rows: dict[str, int] = {}
        for reading in readings:
            for gram in sorted(reading.grams):
                self._rows.setdefault(gram, len(self._rows))
        rows = [np.array([self._rows[gram] for gram in reading.grams], np.int64) for reading in readings]
        seen = np.bincount(np.concatenate(rows), minlength=len(self._rows))
        self._rarity = np.log(len(readings) / seen).astype(np.float32)
        self._single = np.array([gram.isalpha() for gram in self._rows])
        self._common = seen > 1
        # Of an example itself a word must be in two others to be as common as it is to a new request.
        self.familiar = np.array(
            [self._share(reading, found, seen > 2) for reading, found in zip(readings, rows, strict=True)]
        )
        """The share of each example's words that others have too, `[examples]`."""
        self.bags = [(found, self._weigh(found)) for found in rows]
        """Rows and weights of each example."""
        # A word that only one example has is in no product of two.
        columns = np.cumsum(seen > 1) - 1
        shared = np.zeros((len(readings), int(columns[-1]) + 1), np.float32)
        for at, (found, weights) in enumerate(self.bags):
            kept = seen[found] > 1
            shared[at, columns[found[kept]]] = weights[kept]
        self.kernel: Vector = shared @ shared.T
        """The products of every two examples `[examples, examples]`."""
        np.fill_diagonal(self.kernel, [float(weights @ weights) for _, weights in self.bags])

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, reading: Reading) -> tuple[_Labels, Vector, float]:
        """Rows and weights of the words that some example has, and the share of all its words that two have."""
        found = np.array([row for gram in reading.grams if (row := self._rows.get(gram)) is not None], np.int64)
        return found, self._weigh(found), self._share(reading, found, self._common)

    def _share(self, reading: Reading, rows: _Labels, common: NDArray[np.bool_]) -> float:
        """Key mashing has few words that anybody else has used."""
        return float((common[rows] & self._single[rows]).sum()) / max(1, sum(gram.isalpha() for gram in reading.grams))

    def _weigh(self, rows: _Labels) -> Vector:
        weights = self._rarity[rows]
        norm = float(np.sqrt(weights @ weights))
        scaled: Vector = weights / norm if norm > 0 else weights
        return scaled


class LinearHead:
    """Scores every class for a request: kernel ridge regression in its dual form, kept as weights.

    The targets are 1 for the class and -1/(k-1) for the others. Leaving example i out changes its prediction to
    y_i - a_i / (A^-1)_ii with A = K + ridge and a = A^-1 y (the closed form of leave-one-out, e.g. Rasmussen and
    Williams 2006, 5.4.2). These predictions set the temperature of the confidence (the likeliest on them) and the
    confidence below which a request is of no class.
    """

    def __init__(self, vocabulary: Vocabulary, dense: Vector, labels: Sequence[int], classes: int) -> None:
        """Fit on examples.

        Args:
            vocabulary: the words of each example.
            dense: what else there is of it, `[examples, width]`: its marks, after its unit vector where there is one.
            labels: the class of each, from 0; every class has at least one example.
            classes: how many there are.
        """
        truth = np.asarray(labels, np.int64)
        dense = np.hstack([dense, _FAMILIAR_WEIGHT * vocabulary.familiar[:, None]]).astype(np.float32)
        counts = np.bincount(truth, minlength=classes)
        targets = np.full((len(truth), classes), -1.0 / max(classes - 1, 1), np.float32)
        targets[np.arange(len(truth)), truth] = 1.0
        # Else a class of a dozen examples would never win over one of a hundred.
        upweight = np.clip(np.median(counts) / counts, 1.0, _MOST_UPWEIGHT)[truth]
        kernel = dense @ dense.T + vocabulary.kernel + 1.0
        kernel[np.diag_indices(len(truth))] += _RIDGE / upweight
        # Of the factor, as the inverse itself takes longer and is not needed: A^-1 = F'F with F = L^-1, A = LL'.
        factor = _inverted(np.linalg.cholesky(kernel.astype(np.float64)))
        duals = (factor.T @ (factor @ targets)).astype(np.float32)
        diagonal = np.einsum("ij,ij->j", factor, factor).astype(np.float32)
        self.left_out: Vector = targets - duals / diagonal[:, None]
        """Scores `[examples, classes]` of each example by a head that has not seen it."""

        self._vocabulary = vocabulary
        self._dense = dense[:, :-1].T @ duals
        self._familiar = _FAMILIAR_WEIGHT * dense[:, -1] @ duals
        self._bias = duals.sum(axis=0)
        self._words = np.zeros((len(vocabulary), classes), np.float32)
        for (rows, weights), dual in zip(vocabulary.bags, duals, strict=True):
            self._words[rows] += weights[:, None] * dual
        self._temperature = _temperature(self.left_out, truth)
        chances = self.confidences(self.left_out)
        right = chances[chances.argmax(axis=1) == truth].max(axis=1)
        self.least: float = float(np.quantile(right, _REFUSED)) if len(right) else 0.0
        """The confidence below which a request is of no class."""

    def scores(self, reading: Reading, dense: Vector) -> Vector:
        """The score of each class `[classes]`; `dense` is made as it was for the examples."""
        rows, weights, familiar = self._vocabulary.find(reading)
        scores: Vector = self._bias + dense @ self._dense + weights @ self._words[rows] + familiar * self._familiar
        return scores

    def confidences(self, scores: Vector) -> Vector:
        """Scores `[..., classes]` as probabilities."""
        powers = scores / self._temperature
        weights = np.exp(powers - powers.max(axis=-1, keepdims=True))
        chances: Vector = weights / weights.sum(axis=-1, keepdims=True)
        return chances


def _inverted(lower: NDArray[np.floating]) -> NDArray[np.floating]:
    """The inverse of a lower triangle `[n, n]`: of its halves on the diagonal, and of those what is below them."""
    n = len(lower)
    if n <= _SMALL:
        inverse: NDArray[np.floating] = np.linalg.inv(lower)
        return inverse
    half = n // 2
    found = np.zeros_like(lower)
    first, second = found[:half, :half], found[half:, half:]
    first[:], second[:] = _inverted(lower[:half, :half]), _inverted(lower[half:, half:])
    found[half:, :half] = -second @ (lower[half:, :half] @ first)
    return found


def _temperature(scores: Vector, truth: _Labels) -> float:
    """The temperature at which the left-out examples' own classes are likeliest: a coarse search, then a fine one."""
    own = scores[np.arange(len(truth)), truth]

    def loss(temperature: float) -> float:
        powers = (scores - own[:, None]) / np.float32(temperature)
        top = powers.max(axis=1)
        return float((np.log(np.exp(powers - top[:, None]).sum(axis=1)) + top).mean())

    coarse = np.geomspace(_COOLEST, _HOTTEST, 24)
    best = int(np.argmin([loss(t) for t in coarse]))
    fine = np.geomspace(coarse[max(best - 1, 0)], coarse[min(best + 1, len(coarse) - 1)], 24)
    return float(fine[int(np.argmin([loss(t) for t in fine]))])
