"""What the audits of the cache's hits have found and what they cost, read at each scrape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.engine.local import LocalModel
from headgate.gateway.audits import Audits, State


class AuditCollector(Collector):
    """Gauges and counters of the audits at the moment of the scrape."""

    def __init__(self, audits: Audits, models: Mapping[str, LocalModel]) -> None:
        self._audits = audits
        self._models = models

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        audits, watch = self._audits, self._audits.watch
        states = CounterMetricFamily("headgate_cache_audits", "Audits of semantic hits.", labels=["state"])
        for state in get_args(State):
            states.add_metric([state], audits.states.get(state, 0))
        yield states
        labels = CounterMetricFamily(
            "headgate_cache_audit_labels", "Labels of stored answers.", labels=["source", "kind", "verdict"]
        )
        for (source, kind, right), count in sorted(audits.labels.items()):
            labels.add_metric([source, kind, "right" if right else "wrong"], count)
        yield labels
        interval = watch.interval()
        wrong = GaugeMetricFamily(
            "headgate_cache_wrong_hit_ratio",
            "Wrong share of semantic hits since the threshold rose last: anytime-valid bounds, and what labels said.",
            labels=["bound"],
        )
        wrong.add_metric(["lower"], interval.lower)
        wrong.add_metric(["upper"], interval.upper)
        if interval.estimate is not None:
            wrong.add_metric(["labelled"], interval.estimate)
        yield wrong
        yield CounterMetricFamily(
            "headgate_cache_audit_device_seconds", "Device time audits took.", value=audits.device_s
        )
        computed = sum(model.stats().step_seconds for model in self._models.values())
        share = GaugeMetricFamily(
            "headgate_cache_audit_device_ratio", "Audits' part of all device time since the start."
        )
        share.add_metric([], audits.device_s / computed if computed else 0.0)
        yield share
        yield GaugeMetricFamily(
            "headgate_cache_quarantined_entries", "Stored answers found wrong.", value=watch.quarantined
        )
        yield GaugeMetricFamily(
            "headgate_cache_audit_threshold",
            "Score from which on audits let hits be served; +Inf: none.",
            value=math.inf if watch.threshold is None else watch.threshold,
        )
        yield CounterMetricFamily(
            "headgate_cache_audit_breaches", "Times the threshold had to rise.", value=watch.breaches
        )
