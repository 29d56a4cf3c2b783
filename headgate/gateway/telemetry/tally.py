"""Counters and histograms that are plain numbers until a scrape reads them.

Those of the library take a lock and look at themselves for each figure, which costs several times what adding does.
Here one event loop adds, and whoever scrapes reads what is there by then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headgate.gateway.telemetry.families import CounterFamily, HistogramFamily


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, by: float = 1) -> None:
        """So many more, which is never less than none."""
        self.value += by


class Spread:
    """One series of a histogram: how many values fell between its bounds, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        """One more. A value that is a bound is within it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class Counter(Collector):
    """A counter. Without labels it begins at 0; with labels, of few values, each series begins when it is added to."""

    def __init__(self, family: CounterFamily, registry: CollectorRegistry) -> None:
        """Published by the registry from now on."""
        self._family = family
        self._series: dict[tuple[str, ...], Count] = {} if family.labels else {(): Count()}
        registry.register(self)

    def of(self, *labels: str) -> Count:
        """The series with these labels, given in the counter's order."""
        found = self._series.get(labels)
        if found is None:
            assert len(labels) == len(self._family.labels), "a value for each label"
            found = self._series[labels] = Count()
        return found

    def add(self, *labels: str, by: float = 1) -> None:
        """So many more under these labels."""
        self.of(*labels).value += by

    def series(self) -> dict[tuple[str, ...], float]:
        """What was counted under all labels so far."""
        return {labels: count.value for labels, count in list(self._series.items())}

    def describe(self) -> Iterable[Metric]:
        """The family without its series."""
        yield self._family.new()

    def collect(self) -> Iterator[Metric]:
        """The family as it is now."""
        family = self._family.new()
        for values, count in self.series().items():
            family.add_metric(values, count)
        yield family


class Histogram(Collector):
    """A histogram. Its series begin as those of counters do."""

    def __init__(self, family: HistogramFamily, buckets: Sequence[float], registry: CollectorRegistry) -> None:
        """`buckets`: finite upper bounds, rising."""
        self._family = family
        self._bounds = tuple(buckets)
        self._series: dict[tuple[str, ...], Spread] = {} if family.labels else {(): Spread(self._bounds)}
        registry.register(self)

    def of(self, *labels: str) -> Spread:
        """The series with these labels, given in the histogram's order."""
        found = self._series.get(labels)
        if found is None:
            assert len(labels) == len(self._family.labels), "a value for each label"
            found = self._series[labels] = Spread(self._bounds)
        return found

    def describe(self) -> Iterable[Metric]:
        """The family without its series."""
        yield self._family.new()

    def collect(self) -> Iterator[Metric]:
        """The family as it is now."""
        family = self._family.new()
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, spread in list(self._series.items()):
            counts = accumulate(list(spread.counts))
            family.add_metric(values, list(zip(bounds, counts, strict=True)), spread.sum)
        yield family
