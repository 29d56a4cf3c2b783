"""Metrics of batches."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from headgate.gateway.batches.service import Batches
from headgate.gateway.telemetry.metrics.catalogue import Requests
from headgate.gateway.telemetry.metrics.families import Scraped
from headgate.gateway.telemetry.metrics.tally import Counter
from headgate.gateway.telemetry.record import RequestRecord


class BatchMetrics(Scraped):
    """Lines by what became of them, and the batches that have not ended, read at each scrape."""

    families = (Requests.BATCHES, Requests.BATCH_LINES_IN_FLIGHT)

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lines = Counter(Requests.BATCH_LINES, registry)
        self._batches: Batches | None = None
        registry.register(self)

    def watch(self, batches: Batches) -> None:
        """Publish the counts of these."""
        self._batches = batches

    def line(self, record: RequestRecord) -> None:
        """A line was answered or refused."""
        self._lines.add(record.endpoint, record.model, str(record.status))

    def collect(self) -> Iterator[Metric]:
        """Batches by state; lines on their way."""
        if self._batches is None:
            return
        active = Counts(body.status for body in self._batches.active)
        yield Requests.BATCHES.each(([status], count) for status, count in active.items())
        yield Requests.BATCH_LINES_IN_FLIGHT.of(self._batches.in_flight)
