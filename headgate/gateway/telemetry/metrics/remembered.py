"""What this process remembers of requests that have ended: how much of it, and how near it is to its bound."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import Metric

from headgate.gateway.telemetry.metrics.catalogue import Server
from headgate.gateway.telemetry.metrics.families import Scraped


class Remembers(Protocol):
    """Something that drops the oldest when it is full."""

    @property
    def remembered(self) -> tuple[int, float]:
        """How many things, and what part of the most they take."""
        ...


class RememberedCollector(Scraped):
    """Read at each scrape. Growth that is not in here, and does not end, is a leak."""

    families = (Server.REMEMBERED, Server.REMEMBERED_RATIO, Server.BLOCKS)

    def __init__(self, stores: Callable[[], Mapping[str, Remembers]]) -> None:
        """`stores`: those that there are by now, by name."""
        self._stores = stores

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        stores = {name: store.remembered for name, store in self._stores().items()}
        yield Server.REMEMBERED.each(([name], count) for name, (count, _) in stores.items())
        yield Server.REMEMBERED_RATIO.each(([name], full) for name, (_, full) in stores.items())
        yield Server.BLOCKS.of(sys.getallocatedblocks())
