"""When an answer serves another text: what is known, and how likely it is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_COMMON = ("similarity", "margin", "alignment")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one candidate before it is served. All finite."""

    similarity: float
    """Cosine of the two texts' embeddings."""
    margin: float
    """Similarity minus that of the next other candidate; the similarity itself where there is no other."""
    alignment: float
    """How well the tokens of either text find a partner in the other, 0 to 1."""
    signals: tuple[tuple[str, float], ...] = ()
    """Name and value of whatever else may tell; a model wants the names it was fitted on, in the same order."""

    def __post_init__(self) -> None:
        values = zip(self.names, self.values, strict=True)
        for name, value in values:
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}; finite numbers are accepted")
        if not -1.0 <= self.similarity <= 1.0:
            raise ValueError(f"similarity is {self.similarity}; -1 to 1 is accepted")
        if not 0.0 <= self.alignment <= 1.0:
            raise ValueError(f"alignment is {self.alignment}; 0 to 1 is accepted")
        if len(set(self.names)) < len(self.names) or "" in self.names:
            raise ValueError(f"the signals are named {self.names[len(_COMMON) :]}; distinct new names are accepted")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values, in their order."""
        return _COMMON + tuple(name for name, _ in self.signals)

    @property
    def values(self) -> tuple[float, ...]:
        """The values, in the order of the names."""
        return (self.similarity, self.margin, self.alignment, *(value for _, value in self.signals))


@dataclass(frozen=True, slots=True)
class HitModel:
    """Logistic model of the probability that a candidate's answer is right: one weight per value of the evidence.

    Weights are those of standardised values: `(value - mean) / scale`. An entry whose labels differ from what the
    weights expect has an offset of its own, drawn to 0 by a normal prior.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    offset_variance: float
    """Variance of the prior of an entry's offset, in squared log odds."""

    def __post_init__(self) -> None:
        for name in ("mean", "scale", "weights"):
            values = getattr(self, name)
            if len(values) != len(self.names):
                raise ValueError(f"{name} has {len(values)} values; {len(self.names)}, one per name, are accepted")
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{name} is {values}; finite numbers are accepted")
        if not all(scale > 0.0 for scale in self.scale):
            raise ValueError(f"scale is {self.scale}; numbers above 0 are accepted")
        if not math.isfinite(self.intercept):
            raise ValueError(f"intercept is {self.intercept}; finite numbers are accepted")
        if not (math.isfinite(self.offset_variance) and self.offset_variance > 0.0):
            raise ValueError(f"offset_variance is {self.offset_variance}; a finite number above 0 is accepted")

    def log_odds(self, evidence: Evidence) -> float:
        """Natural logarithm of the odds of being right, before the entry's offset.

        Raises:
            ValueError: the evidence has other signals than the model was fitted on.
        """
        if evidence.names != self.names:
            raise ValueError(f"the evidence holds {evidence.names}; {self.names} is accepted")
        terms = zip(evidence.values, self.mean, self.scale, self.weights, strict=True)
        return self.intercept + sum(weight * (value - mean) / scale for value, mean, scale, weight in terms)

    def offset(self, labels: Sequence[tuple[float, bool]]) -> float:
        """The likeliest offset of an entry, in log odds; 0.0 without a label.

        Args:
            labels: for each of the entry's labels, the log odds that the model gave and whether the answer was right.
        """
        # The slope of the log posterior falls in the offset, and its root lies within what all labels can move.
        low = high = 0.0
        for _, right in labels:
            high += self.offset_variance * right
            low -= self.offset_variance * (not right)
        for _ in range(60):
            middle = 0.5 * (low + high)
            pull = sum(right - sigmoid(log_odds + middle) for log_odds, right in labels)
            if pull > middle / self.offset_variance:
                low = middle
            else:
                high = middle
        return 0.5 * (low + high)


def sigmoid(log_odds: float) -> float:
    """The probability that has these log odds."""
    if log_odds >= 0.0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    odds = math.exp(log_odds)
    return odds / (1.0 + odds)
