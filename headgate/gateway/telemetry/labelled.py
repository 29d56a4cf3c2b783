"""Counters whose labels are looked up once: that costs several times what counting does."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter


class Labelled:
    """A counter with labels of few values. Belongs to one thread."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._counts: dict[tuple[str, ...], Callable[[float], None]] = {}

    def count(self, *labels: str, by: float = 1) -> None:
        """So many more under these labels, given in the counter's order."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = self._counter.labels(*labels).inc
        counts(by)
