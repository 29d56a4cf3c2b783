"""Which model answers a request: its task class decides the tier, the live state of the models the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headgate.routing.lexical import guess, has_code
from headgate.routing.tasks import UNKNOWN, Task
from headgate.routing.types import Destination, NoneReady, NoRoute, Route, RouteFeatures, Tier, Vector

_NEIGHBOURS = 3
_SHARPNESS = 20.0
_LEAST_COSINE = 0.2
_WORD_BONUS = 0.15
_CHARS_PER_TOKEN = 3.0
_LEAST_ANSWER_TOKENS = 16


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

    def classify(self, text: str, vector: Vector | None) -> TaskGuess:
        """The class of a prompt, or `unknown`."""
        found = guess(text)
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


class Router:
    """Chooses a destination. Pure: the same features and destinations give the same route."""

    def __init__(self, tasks: Sequence[Task], classifier: TaskClassifier) -> None:
        self._tiers: dict[str, Tier] = {task.name: task.tier for task in tasks}
        self._classifier = classifier

    def choose(self, features: RouteFeatures, requested: str, destinations: Sequence[Destination]) -> Route:
        """The route of a request.

        Args:
            features: what the request looks like.
            requested: `auto`, `small`, `large` or the name of a destination.
            destinations: every configured model, the preferred first.

        Raises:
            NoRoute: no destination has this name, or none is configured at all.
            NoneReady: the one asked for, or every one, is not ready.
        """
        names = ", ".join(destination.name for destination in destinations) or "none"
        for destination in destinations:
            # A name is served by that model or not at all; who wants another one asks for a tier or for auto.
            if destination.name == requested:
                if not destination.ready:
                    raise NoneReady(f"the model {requested!r} is not ready; configured: {names}")
                return Route(requested, "requested", 1.0, "")
        found, reason = TaskGuess("", 1.0), f"tier:{requested}"
        tier: Tier
        if requested == "auto":
            found = self._classify(features)
            tier, reason = self._tier(features, found)
        elif requested == "small":
            tier = "small"
        elif requested == "large":
            tier = "large"
        else:
            raise NoRoute(f"the model {requested!r} does not exist; auto, small, large or one of: {names}")
        if not destinations:
            raise NoRoute(f"no model is configured to answer {requested!r}")
        ready = [destination for destination in destinations if destination.ready]
        if not ready:
            raise NoneReady(f"no model is ready; configured: {names}")
        return self._place(features, ready, destinations, found, tier, reason)

    def _classify(self, features: RouteFeatures) -> TaskGuess:
        if features.has_tools and "function_calling" in self._tiers:
            return TaskGuess("function_calling", 1.0)
        return self._classifier.classify(features.text, features.vector)

    def _tier(self, features: RouteFeatures, found: TaskGuess) -> tuple[Tier, str]:
        tier = self._tiers.get(found.task, "large")
        if tier == "small" and has_code(features.text):
            return "large", "escalate:code"
        return tier, f"task:{found.task}"

    def _place(
        self,
        features: RouteFeatures,
        ready: Sequence[Destination],
        destinations: Sequence[Destination],
        found: TaskGuess,
        tier: Tier,
        reason: str,
    ) -> Route:
        """Order the models that are ready: those that hold the prompt, then those of the tier, then the idle ones."""
        needed = features.prompt_chars / _CHARS_PER_TOKEN + max(features.max_tokens, _LEAST_ANSWER_TOKENS)
        ranked = sorted(ready, key=lambda d: (d.context_length < needed, d.tier != tier, d.queue_depth))
        first = ranked[0]
        if first.context_length < needed:
            # The count is an estimate: let the roomiest model say exactly what does not fit.
            ranked = sorted(ready, key=lambda d: (-d.context_length, d.tier != tier, d.queue_depth))
            first, reason = ranked[0], "context"
        elif first.tier != tier:
            waiting = [d for d in destinations if d.tier == tier]
            if not waiting:
                reason = f"fallback:no_{tier}"
            elif any(d.context_length >= needed for d in waiting):
                reason = "fallback:not_ready"
            else:
                reason = "context"
        fallbacks = tuple(d.name for d in ranked[1:] if d.context_length >= min(needed, first.context_length))
        return Route(first.name, reason, found.confidence, found.task, fallbacks)
