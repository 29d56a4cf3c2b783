"""Which model answers a request: its task class decides the tier, the live state of the models the rest."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.routing.classes import TaskClassifier, TaskGuess
from headgate.routing.lexical import has_code
from headgate.routing.tasks import Task
from headgate.routing.types import Destination, NoneReady, NoRoute, Route, RouteFeatures, Tier

_CHARS_PER_TOKEN = 3.0
_LEAST_ANSWER_TOKENS = 16


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
            found = self._classifier.classify(features)
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
