"""Metrics of routing: decisions, escalations, breakers, and how far prices were off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from headgate.gateway.telemetry.metrics.catalogue import Routing
from headgate.gateway.telemetry.metrics.families import Scraped
from headgate.gateway.telemetry.metrics.tally import Counter, Histogram
from headgate.routing.breaker import Breaker
from headgate.routing.savings import Saving

if TYPE_CHECKING:
    from headgate.gateway.road.plan import Plan

_RATIOS = (0.25, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 4.0)
_DECISIONS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)
_STATES = {"closed": 0, "half_open": 1, "open": 2}


class RouteMetrics:
    """Fed by the road. Reasons are of a fixed list and of the configured task classes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._routes = Counter(Routing.DECIDED, registry)
        self._escalations = Counter(Routing.ESCALATIONS, registry)
        self._decision = Histogram(Routing.DECISION, _DECISIONS, registry)
        self._predicted = Counter(Routing.PREDICTED, registry)
        self._actual = Counter(Routing.ACTUAL, registry)
        self._ratio = Histogram(Routing.PRICE_RATIO, _RATIOS, registry)
        self._saved_s = Routing.SAVED_DEVICE.held(registry)
        self._saved_usd = Routing.SAVED_USD.held(registry)

    def decided(self, plan: Plan, model: str, reason: str) -> None:
        """A request is answered by a model for a reason, which may be another than planned."""
        self._routes.add(model, reason)
        if not plan.features:
            return
        self._decision.of().observe(plan.choose_s)
        if plan.decision.requested == "auto" and plan.tier_of(model) == "large":
            self._escalations.add(model, reason.partition(":")[0])

    def priced(self, model: str, predicted_s: float, actual_s: float) -> None:
        """An answer is whole whose time was predicted."""
        self._predicted.add(model, by=predicted_s)
        self._actual.add(model, by=actual_s)
        if actual_s > 0:
            self._ratio.of(model).observe(predicted_s / actual_s)

    def saved(self, saving: Saving | None, reason: str) -> None:
        """An answer is whole that another model could have given; None: nobody knows for how much."""
        if saving is None:
            return
        self._saved_s.labels(saving.model, reason).inc(saving.device_s)
        self._saved_usd.labels(saving.model, reason).inc(saving.usd)


class BreakerCollector(Scraped):
    """The breakers' states, read at each scrape: one gauge per destination."""

    families = (Routing.BREAKER,)

    def __init__(self, breakers: Callable[[], Mapping[str, Breaker]]) -> None:
        """`breakers`: those that there are."""
        self._breakers = breakers

    def collect(self) -> Iterator[Metric]:
        """0 closed, 1 half open, 2 open."""
        yield Routing.BREAKER.each(([name], _STATES[breaker.state]) for name, breaker in self._breakers().items())
