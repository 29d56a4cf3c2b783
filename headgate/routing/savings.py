"""What a decision saved: an answer's cost beside what the large model would have cost, at the decision's own prices.

A price is made for an expected answer. How much more or less the real one took is known at its end, and both prices are
taken that much higher or lower.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.routing.policy import Decision
from headgate.routing.types import Price


@dataclass(frozen=True, slots=True)
class Saving:
    """By a model. Negative where it cost more than it spared."""

    model: str
    device_s: float
    usd: float


def saving(decision: Decision, model: str, device_s: float) -> Saving | None:
    """What an answer saved that took `device_s` of the device, against the cheapest large model that could be chosen.

    None where the request left no choice or a price is missing; nothing where a large model answered.
    """
    own = _priced(decision).get(model)
    large = [
        w.destination
        for w in decision.weighed
        if w.destination.tier == "large" and not w.excluded and w.destination.price is not None
    ]
    if own is None or own.device_s <= 0 or not large:
        return None
    if any(destination.name == model for destination in large):
        return Saving(model, 0.0, 0.0)
    other = min((d.price for d in large if d.price is not None), key=lambda price: price.score)
    scale = device_s / own.device_s
    return Saving(model, scale * (other.device_s - own.device_s), scale * (other.usd - own.usd))


def spent(decision: Decision, model: str, device_s: float) -> Saving | None:
    """The loss by an answer of a model that was computed, in part, and not given; None where its price is missing."""
    own = _priced(decision).get(model)
    if own is None or own.device_s <= 0:
        return None
    return Saving(model, -device_s, -own.usd * device_s / own.device_s)


def _priced(decision: Decision) -> dict[str, Price]:
    return {w.destination.name: w.destination.price for w in decision.weighed if w.destination.price is not None}
