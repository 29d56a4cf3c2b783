"""Metrics of what apps say of answers. Only what is said first counts: counters do not go back."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from headgate.gateway.feedback.records import GOOD, Cause
from headgate.gateway.telemetry.tally import Counter


class FeedbackMetrics:
    """Ratings by model, by where the answer came from, and by what they say."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["model", "cause"]
        self._ratings = Counter("headgate_feedback_ratings", "Answers rated.", [*labels, "verdict"], registry=registry)
        self._score = Counter(
            "headgate_feedback_score", "Sum of the scores they were given.", labels, registry=registry
        )

    def rated(self, model: str, cause: Cause, score: float) -> None:
        """An answer was rated for the first time."""
        self._ratings.add(model, cause, "good" if score >= GOOD else "bad")
        self._score.add(model, cause, by=score)
