"""How other servers are asked and how that ends, read from their standings at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from headgate.gateway.upstream.standing import Standing


class UpstreamCollector(Collector):
    """One sample per upstream and way to end; nothing where no upstream is configured."""

    def __init__(self, standings: Mapping[str, Standing]) -> None:
        self._standings = standings

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Attempts by how they ended, what followed them, and whether checks say that the server is well."""
        if not self._standings:
            return
        attempts = CounterMetricFamily(
            "headgate_upstream_attempts", "Requests sent to upstreams, by how they ended.", labels=["model", "end"]
        )
        retries = CounterMetricFamily("headgate_upstream_retries", "Attempts after failed ones.", labels=["model"])
        hedges = CounterMetricFamily(
            "headgate_upstream_hedges", "Second attempts beside slow first ones.", labels=["model", "result"]
        )
        healthy = GaugeMetricFamily("headgate_upstream_healthy", "Whether checks find it well.", labels=["model"])
        for model, standing in self._standings.items():
            for end, count in standing.ends.items():
                attempts.add_metric([model, end], count)
            retries.add_metric([model], standing.retries)
            hedges.add_metric([model, "won"], standing.hedges_won)
            hedges.add_metric([model, "lost"], standing.hedges - standing.hedges_won)
            healthy.add_metric([model], float(standing.well))
        yield from (attempts, retries, hedges, healthy)
