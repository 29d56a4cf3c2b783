"""What the audits of the cache's hits have found and what they cost, read at each scrape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client.core import Metric

from headgate.engine.local import LocalModel
from headgate.gateway.audits import Audits, State
from headgate.gateway.telemetry import catalogue
from headgate.gateway.telemetry.families import Scraped


class AuditCollector(Scraped):
    """Gauges and counters of the audits at the moment of the scrape."""

    families = catalogue.families(catalogue.Audits)

    def __init__(self, audits: Audits, models: Mapping[str, LocalModel]) -> None:
        self._audits = audits
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        audits, watch = self._audits, self._audits.watch
        told = catalogue.Audits
        states = told.ENDED.new()
        for state in get_args(State):
            states.add_metric([state], audits.states.get(state, 0))
        yield states
        labels = told.LABELS.new()
        for (source, kind, right), count in sorted(audits.labels.items()):
            labels.add_metric([source, kind, "right" if right else "wrong"], count)
        yield labels
        interval = watch.interval()
        wrong = told.WRONG_RATIO.new()
        wrong.add_metric(["lower"], interval.lower)
        wrong.add_metric(["upper"], interval.upper)
        if interval.estimate is not None:
            wrong.add_metric(["labelled"], interval.estimate)
        yield wrong
        yield told.DEVICE.of(audits.device_s)
        computed = sum(model.stats().step_seconds for model in self._models.values())
        yield told.DEVICE_RATIO.of(audits.device_s / computed if computed else 0.0)
        yield told.QUARANTINED.of(watch.quarantined)
        yield told.THRESHOLD.of(math.inf if watch.threshold is None else watch.threshold)
        yield told.BREACHES.of(watch.breaches)
