"""Which of the task classes a request belongs to, and how sure that is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headgate.routing.background import BackgroundCalls
from headgate.routing.classes_head import LinearHead, Vocabulary
from headgate.routing.classes_vectors import KnownVectors
from headgate.routing.lexical import Cues
from headgate.routing.surface import Reader
from headgate.routing.tasks import BACKGROUND, UNKNOWN, Example, Task
from headgate.routing.types import RouteFeatures, Vector

_TOOLS_TASK = "function_calling"


class TextEmbedder(Protocol):
    """Gives a text its unit vector."""

    @property
    def name(self) -> str:
        """Which model it is; vectors of different names do not compare."""
        ...

    async def embed(self, text: str) -> Vector:
        """The vector `[dim]`, float32, unit norm."""
        ...


@dataclass(frozen=True, slots=True)
class TaskGuess:
    """A task class and the probability the classifier gives it."""

    task: str
    confidence: float


class TaskClassifier:
    """Tells a request's class by its embedding, its words and its form; without an embedding by the last two.

    Two heads are fitted on the examples, one with vectors and one without, so that a request whose embedding failed is
    told as well as it can be. What clients send on their own account is told by patterns before either is asked, and a
    request that brings tools is `function_calling`.
    """

    def __init__(self, tasks: Sequence[Task], vectors: Sequence[Sequence[Vector]] = ()) -> None:
        """A classifier over the classes. It is fitted by `fit`, or by the first request that needs it.

        Args:
            tasks: the classes, as `load_tasks` gives them.
            vectors: for each class, the unit vectors `[dim]` of its examples; empty leaves words and form only.
        """
        if vectors and [len(group) for group in vectors] != [len(task.examples) for task in tasks]:
            raise ValueError(
                f"vectors are given for {[len(group) for group in vectors]} examples of the classes; "
                f"{[len(task.examples) for task in tasks]} are accepted"
            )
        self.tasks = tuple(tasks)
        """The classes, also those that are not told by examples."""
        self._names = tuple(task.name for task in tasks if task.examples)
        self._known = frozenset(task.name for task in tasks)
        self._vectors = [vector for group in vectors for vector in group]
        self._reader = Reader(Cues.load())
        self._background = BackgroundCalls.load()
        self._read: tuple[Vocabulary, Vector] | None = None
        """Words and marks of the examples."""
        self._plain: LinearHead | None = None
        self._full: LinearHead | None = None

    @classmethod
    async def build(cls, tasks: Sequence[Task], embedder: TextEmbedder | None) -> TaskClassifier:
        """A classifier over the classes that is fitted, with the embedder's vectors where there is one."""
        words = cls(tasks)
        if embedder is not None:
            return await words.understanding(embedder)
        await asyncio.to_thread(words.fit)
        return words

    async def understanding(self, embedder: TextEmbedder) -> TaskClassifier:
        """One over the same classes that knows vectors too. What this one has of words stays as it is.

        Every example is embedded whose vector does not come with the package; it is fitted in a thread.
        """
        known = KnownVectors.load(embedder.name)

        async def embed(example: Example) -> Vector:
            found = known.find(example.text)
            return found if found is not None else await embedder.embed(example.text)

        vectors = [list(await asyncio.gather(*(embed(example) for example in task.examples))) for task in self.tasks]
        made = TaskClassifier(self.tasks, vectors)
        made._plain, made._read = self._plain, self._read
        await asyncio.to_thread(made.fit)
        return made

    def fit(self) -> None:
        """Fit both heads, unless that was done; takes some tenths of a second."""
        self._heads()

    def classify(self, features: RouteFeatures) -> TaskGuess:
        """The class of a request, or `unknown`."""
        if BACKGROUND in self._known and self._background.includes(features):
            return TaskGuess(BACKGROUND, 1.0)
        if features.has_tools and _TOOLS_TASK in self._known:
            return TaskGuess(_TOOLS_TASK, 1.0)
        plain, full = self._heads()
        reading = self._reader.read(features)
        head, dense = plain, reading.marks
        if full is not None and features.vector is not None:
            head, dense = full, np.concatenate([features.vector, reading.marks])
        chances = head.confidences(head.scores(reading, dense))
        best = int(chances.argmax())
        confidence = float(chances[best])
        return TaskGuess(self._names[best] if confidence >= head.least else UNKNOWN, confidence)

    def _heads(self) -> tuple[LinearHead, LinearHead | None]:
        if self._plain is not None and (self._full is not None or not self._vectors):
            return self._plain, self._full
        sizes = [len(task.examples) for task in self.tasks if task.examples]
        labels = [label for label, size in enumerate(sizes) for _ in range(size)]
        if self._read is None:
            readings = [self._reader.read(example.features()) for task in self.tasks for example in task.examples]
            self._read = Vocabulary(readings), np.stack([reading.marks for reading in readings])
        vocabulary, marks = self._read
        if self._vectors:
            dense = np.hstack([np.stack(self._vectors), marks])
            self._full = LinearHead(vocabulary, dense, labels, len(sizes))
        if self._plain is None:
            self._plain = LinearHead(vocabulary, marks, labels, len(sizes))
        return self._plain, self._full
