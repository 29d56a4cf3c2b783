"""Metrics of batches."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.gateway.batches.service import Batches
from headgate.gateway.telemetry.record import RequestRecord


class BatchMetrics(Collector):
    """Lines by what became of them, and the batches that have not ended, read at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lines = Counter(
            "headgate_batch_lines", "Lines of batches by outcome.", ["endpoint", "model", "code"], registry=registry
        )
        self._batches: Batches | None = None
        registry.register(self)

    def watch(self, batches: Batches) -> None:
        """Publish the counts of these."""
        self._batches = batches

    def line(self, record: RequestRecord) -> None:
        """A line was answered or refused."""
        self._lines.labels(record.endpoint, record.model, str(record.status)).inc()

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Batches by state; lines on their way."""
        if self._batches is None:
            return
        active = GaugeMetricFamily("headgate_batches", "Batches that have not ended.", labels=["status"])
        for status, count in Counts(body.status for body in self._batches.active).items():
            active.add_metric([status], count)
        yield active
        yield GaugeMetricFamily(
            "headgate_batch_lines_in_flight", "Lines that are being answered.", self._batches.in_flight
        )
