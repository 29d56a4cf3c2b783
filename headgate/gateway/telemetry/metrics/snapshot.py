"""What a registry publishes at one moment, as numbers: whoever shows them says the same as a scrape of that moment."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: how many observations were at most each bound. The last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def count(self) -> int:
        """All observations."""
        return int(self.counts[-1]) if self.counts else 0

    def since(self, before: Buckets) -> Buckets:
        """What was observed after an earlier reading; one without a series began at nothing."""
        if before.bounds != self.bounds:
            return self
        return Buckets(self.bounds, tuple(a - b for a, b in zip(self.counts, before.counts, strict=True)))

    def quantile(self, share: float) -> float | None:
        """The value that such a share is at most, as Prometheus' `histogram_quantile` has it; None of nothing.

        Within a bucket observations are taken to be spread evenly, the first one beginning at 0. Beyond the last finite
        bound nothing is known, and that bound is what is told.
        """
        if not self.count:
            return None
        rank = share * self.counts[-1]
        at = bisect_left(self.counts, rank)
        if math.isinf(self.bounds[at]):
            return self.bounds[at - 1]
        low, below = (self.bounds[at - 1], self.counts[at - 1]) if at else (0.0, 0.0)
        inside = self.counts[at] - below
        return low + (self.bounds[at] - low) * ((rank - below) / inside if inside else 0.0)


NO_BUCKETS = Buckets((), ())


class Reading:
    """Samples by name."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in families:
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def total(self, name: str, **where: str) -> float:
        """The sum of the samples with these labels; 0 where there is none."""
        return sum(value for _, value in self._of(name, where))

    def by(self, name: str, *labels: str, **where: str) -> dict[tuple[str, ...], float]:
        """Sums by the values of some labels."""
        sums: dict[tuple[str, ...], float] = {}
        for has, value in self._of(name, where):
            key = tuple(has[label] for label in labels)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def by_one(self, name: str, label: str, **where: str) -> dict[str, float]:
        """Sums by the values of one label."""
        return {key: value for (key,), value in self.by(name, label, **where).items()}

    def buckets_by(self, name: str, label: str, **where: str) -> dict[str, Buckets]:
        """A histogram by the values of one label, its series with these others together."""
        counts: dict[str, list[tuple[float, float]]] = {}
        for (value, bound), count in self.by(f"{name}_bucket", label, "le", **where).items():
            counts.setdefault(value, []).append((float(bound), count))
        return {
            value: Buckets(tuple(bound for bound, _ in found), tuple(count for _, count in found))
            for value, found in ((value, sorted(unsorted)) for value, unsorted in counts.items())
        }

    def _of(self, name: str, where: dict[str, str]) -> Sequence[tuple[dict[str, str], float]]:
        found = self._samples.get(name, [])
        if not where:
            return found
        return [(has, v) for has, v in found if all(has.get(label) == value for label, value in where.items())]
