"""What the audits of the cache's hits have found and what they cost, read at each scrape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client.core import Metric

from headgate.engine.front.local import LocalModel
from headgate.gateway.caching.audits import Audits, State
from headgate.gateway.telemetry.metrics import catalogue
from headgate.gateway.telemetry.metrics.families import Scraped


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
        yield told.ENDED.each(([state], audits.states.get(state, 0)) for state in get_args(State))
        yield told.LABELS.each(
            ([source, kind, "right" if right else "wrong"], count)
            for (source, kind, right), count in sorted(audits.labels.items())
        )
        interval = watch.interval()
        wrong = {"lower": interval.lower, "upper": interval.upper, "labelled": interval.estimate}
        yield told.WRONG_RATIO.each(([bound], share) for bound, share in wrong.items() if share is not None)
        yield told.DEVICE.of(audits.device_s)
        computed = sum(model.stats().step_seconds for model in self._models.values())
        yield told.DEVICE_RATIO.of(audits.device_s / computed if computed else 0.0)
        yield told.QUARANTINED.of(watch.quarantined)
        yield told.THRESHOLD.of(math.inf if watch.threshold is None else watch.threshold)
        yield told.BREACHES.of(watch.breaches)
