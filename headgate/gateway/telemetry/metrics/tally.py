"""Counters and histograms that are plain numbers until a scrape reads them.

Those of the library take a lock and look at themselves for each figure, which costs several times what adding does.
Here one event loop adds, and whoever scrapes reads what is there by then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headgate.gateway.telemetry.metrics.families import CounterFamily, Family, HistogramFamily

F = TypeVar("F", bound=Family)
S = TypeVar("S")


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


class _Tally(Collector, Generic[F, S]):
    """A family's series. Without labels there is one; with labels, of few values, each begins when it is asked for."""

    def __init__(self, family: F, begin: Callable[[], S], registry: CollectorRegistry) -> None:
        self._family = family
        self._begin = begin
        self._series: dict[tuple[str, ...], S] = {} if family.labels else {(): begin()}
        registry.register(self)

    def of(self, *labels: str) -> S:
        """The series with these labels, given in the family's order."""
        found = self._series.get(labels)
        if found is None:
            assert len(labels) == len(self._family.labels), "a value for each label"
            found = self._series[labels] = self._begin()
        return found

    def describe(self) -> Iterable[Metric]:
        """The family without its series."""
        yield self._family.new()


class Counter(_Tally[CounterFamily, Count]):
    """A counter."""

    def __init__(self, family: CounterFamily, registry: CollectorRegistry) -> None:
        """Published by the registry from now on."""
        super().__init__(family, Count, registry)

    def add(self, *labels: str, by: float = 1) -> None:
        """So many more under these labels."""
        self.of(*labels).value += by

    def series(self) -> dict[tuple[str, ...], float]:
        """What was counted under all labels so far."""
        return {labels: count.value for labels, count in list(self._series.items())}

    def collect(self) -> Iterator[Metric]:
        """The family as it is now."""
        yield self._family.each(self.series().items())


class Histogram(_Tally[HistogramFamily, Spread]):
    """A histogram."""

    def __init__(self, family: HistogramFamily, buckets: Sequence[float], registry: CollectorRegistry) -> None:
        """`buckets`: finite upper bounds, rising."""
        self._bounds = tuple(buckets)
        super().__init__(family, partial(Spread, self._bounds), registry)

    def collect(self) -> Iterator[Metric]:
        """The family as it is now."""
        family = self._family.new()
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, spread in list(self._series.items()):
            counts = accumulate(list(spread.counts))
            family.add_metric(values, list(zip(bounds, counts, strict=True)), spread.sum)
        yield family
