"""Logistic regression on plain arrays, applied in microseconds; `headgate.training.regression` fits it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """P(right) = 1 / (1 + exp(-(weights . x + u . form u + bias))), where u = axes' x - origin.

    Attributes:
        weights: float32 `[features]`.
        bias: of the log-odds.
        axes: float32 `[features, paired]`, the components whose squares and products count too; none by default.
        origin: float32 `[paired]`, their means.
        form: float32 `[paired, paired]`, what each product adds to the log-odds; symmetric.
    """

    weights: Rows
    bias: float
    axes: Rows
    origin: Rows
    form: Rows

    def predict(self, rows: Rows) -> Array:
        """Probabilities `[n]` for `rows` `[n, features]`."""
        main = rows @ self.axes - self.origin
        return sigmoid(rows @ self.weights + ((main @ self.form) * main).sum(-1) + self.bias)

    def one(self, row: Rows) -> float:
        """The probability for one row `[features]`."""
        return float(self.predict(row))


def sigmoid(z: NDArray[np.floating]) -> Array:
    """1 / (1 + exp(-z)), which neither overflows nor loses the sign."""
    half: Array = 0.5 * (1.0 + np.tanh(0.5 * np.asarray(z, np.float64)))
    return half
