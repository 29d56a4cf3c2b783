"""`/admin/route`: a routing decision on the wire."""

from __future__ import annotations

from msgspec import Struct


class QualityBody(Struct):
    """How likely each tier is to answer well, and from what that was told."""

    small: float
    large: float
    enough: float
    """How likely the small tier's answer is as good as the large one's: what the threshold is on."""
    source: str
    readings: list[float]
    """`enough` of the whole text and of each of its cores, where these are judged; the highest is believed."""
    kept: float
    """`enough` for a request that the small tier would hand over, where it answers that itself; 0 where it hands
    nothing over."""


class PriceBody(Struct):
    """What the request would cost at a destination. Times are seconds."""

    queue_s: float
    prefill_s: float
    decode_s: float
    device_s: float
    others_s: float
    usd: float
    score: float
    computed_tokens: int
    output_tokens: float


class WeighedBody(Struct):
    """One destination as the decision saw it."""

    model: str
    tier: str
    good_enough: bool
    excluded: str
    """Why it could not be chosen; empty where it could."""
    price: PriceBody | None


class RouteReport(Struct):
    """A decision and everything it followed from."""

    requested: str
    model: str
    reason: str
    """As in x-headgate-route."""
    rule: str
    fallbacks: list[str]
    task: str
    confidence: float
    quality: QualityBody | None
    threshold: float | None
    conversation: str
    """The model of its last turn; empty where that is not known."""
    cascade: bool
    """Whether the answer would be checked."""
    destinations: list[WeighedBody]
    otherwise: list[str]
    """What would have led elsewhere."""
    features: str
    """The hash that the log has of what was decided over."""
    config: str
    """Revision of the configuration."""
    decided_ms: float
    lines: list[str]
    """The same for a terminal."""
