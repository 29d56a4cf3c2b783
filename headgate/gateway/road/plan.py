"""What was decided of a request: where it goes, why, and where else it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.gateway.road.destinations import Prepared
from headgate.gateway.routing.policies import InForce
from headgate.gateway.wire.errors import ApiError
from headgate.routing.policy import Decision
from headgate.routing.types import Route, RouteFeatures, Tier


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a request goes, and what is needed to send it there or elsewhere."""

    decision: Decision
    in_force: InForce
    prepared: Mapping[str, Prepared] = field(default_factory=dict)
    """The request as each destination that takes it would run it; none where it names its model."""
    refusals: Mapping[str, ApiError] = field(default_factory=dict)
    session: str = ""
    features: str = ""
    """A keyed hash of what was decided over."""
    choose_s: float = 0.0
    """What deciding took, but for embedding the text."""
    read: RouteFeatures | None = None
    """What was decided over; None where the request names its model."""

    @property
    def route(self) -> Route:
        """The decision's."""
        return self.decision.route

    def because(self, reason: str) -> Plan:
        """The same for another reason."""
        return replace(self, decision=replace(self.decision, route=replace(self.route, reason=reason)))

    def tier_of(self, model: str) -> Tier | None:
        """The tier of a model that was weighed."""
        return next((w.destination.tier for w in self.decision.weighed if w.destination.name == model), None)

    @property
    def predicted_s(self) -> float | None:
        """Seconds until the last token, by the price at which the model was chosen."""
        for weighed in self.decision.weighed:
            if weighed.destination.name == self.route.model and weighed.destination.price is not None:
                return weighed.destination.price.seconds
        return None
