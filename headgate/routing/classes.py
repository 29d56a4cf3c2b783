"""Which of the task classes a request belongs to, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headgate.routing.lexical import guess
from headgate.routing.tasks import UNKNOWN, Task
from headgate.routing.types import RouteFeatures, Vector

_NEIGHBOURS = 3
_SHARPNESS = 20.0
_LEAST_COSINE = 0.2
_WORD_BONUS = 0.15


class TextEmbedder(Protocol):
    """Gives a text its unit vector."""

    async def embed(self, text: str) -> Vector:
        """The vector `[dim]`, float32, unit norm."""
        ...


@dataclass(frozen=True, slots=True)
class TaskGuess:
    """A task class and the probability the classifier gives it."""

    task: str
    confidence: float


class TaskClassifier:
    """Compares a prompt's embedding with example prompts; without an embedding it looks at words.

    Score of a class: the mean cosine with its three nearest examples and the cosine with its centroid, half each, and
    a small bonus where its words occur. A softmax over the classes gives the confidence.
    """

    def __init__(self, tasks: Sequence[Task], vectors: Sequence[Sequence[Vector]] = (), *, least: float = 0.35) -> None:
        """A classifier over the classes.

        Args:
            tasks: the classes.
            vectors: for each class, the unit vectors `[dim]` of its examples; empty leaves the words only.
            least: confidence below which a prompt is `unknown`, 0 to 1.
        """
        if not 0.0 <= least <= 1.0:
            raise ValueError(f"least is {least}; 0 to 1 is accepted")
        if vectors and len(vectors) != len(tasks):
            raise ValueError(f"vectors are given for {len(vectors)} classes; {len(tasks)} are accepted")
        self._names = tuple(task.name for task in tasks)
        self._least = least
        self._examples: Vector | None = None
        if vectors:
            self._examples = np.stack([vector for group in vectors for vector in group])
            ends = np.cumsum([len(group) for group in vectors])
            self._spans = [(int(end) - len(group), int(end)) for end, group in zip(ends, vectors, strict=True)]
            centroids = np.stack([self._examples[start:end].mean(axis=0) for start, end in self._spans])
            self._centroids = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)

    @classmethod
    async def build(cls, tasks: Sequence[Task], embedder: TextEmbedder | None) -> TaskClassifier:
        """Embed every example once."""
        if embedder is None:
            return cls(tasks)
        return cls(tasks, [[await embedder.embed(example) for example in task.examples] for task in tasks])

    def classify(self, features: RouteFeatures) -> TaskGuess:
        """The class of a request, or `unknown`."""
        if features.has_tools and "function_calling" in self._names:
            return TaskGuess("function_calling", 1.0)
        vector = features.vector
        found = guess(features.text)
        if found is not None and found[0] not in self._names:
            found = None
        if vector is None or self._examples is None:
            if found is None:
                return TaskGuess(UNKNOWN, 0.0)
            return TaskGuess(*found)
        cosines = self._examples @ vector
        nearest = np.array([np.sort(cosines[start:end])[-_NEIGHBOURS:].mean() for start, end in self._spans])
        scores = 0.5 * nearest + 0.5 * (self._centroids @ vector)
        if found is not None:
            scores[self._names.index(found[0])] += _WORD_BONUS * found[1]
        weights = np.exp(_SHARPNESS * (scores - scores.max()))
        best = int(scores.argmax())
        confidence = float(weights[best] / weights.sum())
        # A prompt far from everything can still be closer to one class than to the others.
        known = confidence >= self._least and float(nearest[best]) >= _LEAST_COSINE
        return TaskGuess(self._names[best] if known else UNKNOWN, confidence)
