"""Metrics of routing: decisions, escalations, breakers, and how far prices were off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.gateway.telemetry.tally import Counter, Histogram
from headgate.routing.breaker import Breaker
from headgate.routing.savings import Saving

if TYPE_CHECKING:
    from headgate.gateway.routes import Plan

_RATIOS = (0.25, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 4.0)
_DECISIONS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)
_STATES = {"closed": 0, "half_open": 1, "open": 2}


class RouteMetrics:
    """Fed by the road. Reasons are of a fixed list and of the configured task classes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._routes = Counter("headgate_routes", "Routing decisions.", ["model", "reason"], registry=registry)
        self._escalations = Counter(
            "headgate_route_escalations",
            "Requests left to the router that a large model answered.",
            ["model", "kind"],
            registry=registry,
        )
        self._decision = Histogram(
            "headgate_route_decision_seconds", "Deciding, but for the embedding.", buckets=_DECISIONS, registry=registry
        )
        self._predicted = Counter(
            "headgate_route_predicted_seconds", "What prices said answers would take.", ["model"], registry=registry
        )
        self._actual = Counter(
            "headgate_route_actual_seconds", "What the same answers took.", ["model"], registry=registry
        )
        self._ratio = Histogram(
            "headgate_route_price_ratio",
            "Predicted seconds of an answer to those it took.",
            ["model"],
            buckets=_RATIOS,
            registry=registry,
        )

        saved = (
            "of the cheapest large model's price not spent, at the prices of the decision; falls with checks in vain."
        )
        self._saved_s = Gauge(
            "headgate_route_saved_device_seconds", f"Device time {saved}", ["model", "reason"], registry=registry
        )
        self._saved_usd = Gauge("headgate_route_saved_usd", f"Money {saved}", ["model", "reason"], registry=registry)

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

    def watch(self, breakers: Mapping[str, Breaker]) -> None:
        """Publish the breakers' states, read at each scrape."""
        self._registry.register(BreakerCollector(breakers))


class BreakerCollector(Collector):
    """One gauge per destination."""

    def __init__(self, breakers: Mapping[str, Breaker]) -> None:
        self._breakers = breakers

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """0 closed, 1 half open, 2 open."""
        states = GaugeMetricFamily(
            "headgate_route_breaker_state", "0: asked, 1: tried by one request, 2: left alone.", labels=["model"]
        )
        for name, breaker in self._breakers.items():
            states.add_metric([name], _STATES[breaker.state])
        yield states
