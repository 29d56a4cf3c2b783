"""Metrics of what apps say of answers. Only what is said first counts: counters do not go back."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from headgate.gateway.feedback.records import GOOD, Cause
from headgate.gateway.telemetry.metrics.catalogue import Teams
from headgate.gateway.telemetry.metrics.tally import Counter


class FeedbackMetrics:
    """Ratings by model, by where the answer came from, and by what they say."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ratings = Counter(Teams.RATINGS, registry)
        self._score = Counter(Teams.SCORE, registry)

    def rated(self, model: str, cause: Cause, score: float) -> None:
        """An answer was rated for the first time."""
        self._ratings.add(model, cause, "good" if score >= GOOD else "bad")
        self._score.add(model, cause, by=score)
