"""Metric families: the name, type, labels and meaning of figures, apart from where these come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class Family(ABC):
    """A family as it is published: `name` with the ending of its type, `text` in Markdown."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    type: ClassVar[str]

    @abstractmethod
    def new(self) -> Metric:
        """The family without samples."""


class ValueFamily(Family):
    """A family whose samples are one number each."""

    __slots__ = ()

    @abstractmethod
    def new(self) -> CounterMetricFamily | GaugeMetricFamily:
        """The family without samples."""

    def of(self, value: float) -> Metric:
        """The family with its one sample, where it has no labels."""
        return self.each([((), value)])

    def each(self, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """The family with a sample for each of these values of its labels."""
        family = self.new()
        for labels, value in samples:
            family.add_metric(labels, value)
        return family


class CounterFamily(ValueFamily):
    """Names end in `_total`."""

    __slots__ = ()
    type = "counter"

    def new(self) -> CounterMetricFamily:
        """The family without samples."""
        return CounterMetricFamily(self.name, self.text, labels=self.labels)


class GaugeFamily(ValueFamily):
    """Names end in their unit."""

    __slots__ = ()
    type = "gauge"

    def new(self) -> GaugeMetricFamily:
        """The family without samples."""
        return GaugeMetricFamily(self.name, self.text, labels=self.labels)

    def held(self, registry: CollectorRegistry) -> Gauge:
        """A gauge that keeps what it is set to, published by the registry from now on."""
        return Gauge(self.name, self.text, self.labels, registry=registry)


class HistogramFamily(Family):
    """Names end in their unit; what is published adds `_bucket`, `_sum` and `_count`."""

    __slots__ = ()
    type = "histogram"

    def new(self) -> HistogramMetricFamily:
        """The family without samples."""
        return HistogramMetricFamily(self.name, self.text, labels=self.labels)


class Scraped(Collector):
    """A collector of figures that are read at each scrape. What it may publish is known without reading any."""

    families: ClassVar[tuple[Family, ...]]

    def describe(self) -> Iterable[Metric]:
        """Its families without samples: a registry refuses a name that it has already."""
        return [family.new() for family in self.families]
