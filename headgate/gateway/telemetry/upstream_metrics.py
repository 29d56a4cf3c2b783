"""How other servers are asked and how that ends, read from their standings at each scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from headgate.gateway.telemetry import catalogue
from headgate.gateway.telemetry.families import Scraped

if TYPE_CHECKING:
    from headgate.gateway.upstream.standing import Standing


class UpstreamCollector(Scraped):
    """One sample per upstream and way to end; nothing where no upstream is configured."""

    families = catalogue.families(catalogue.Upstreams)

    def __init__(self, standings: Mapping[str, Standing]) -> None:
        self._standings = standings

    def collect(self) -> Iterator[Metric]:
        """Attempts by how they ended, what followed them, and whether checks say that the server is well."""
        if not self._standings:
            return
        told = catalogue.Upstreams
        attempts, retries, hedges = told.ATTEMPTS.new(), told.RETRIES.new(), told.HEDGES.new()
        healthy = told.HEALTHY.new()
        for model, standing in self._standings.items():
            for end, count in standing.ends.items():
                attempts.add_metric([model, end], count)
            retries.add_metric([model], standing.retries)
            hedges.add_metric([model, "won"], standing.hedges_won)
            hedges.add_metric([model, "lost"], standing.hedges - standing.hedges_won)
            healthy.add_metric([model], float(standing.well))
        yield from (attempts, retries, hedges, healthy)
