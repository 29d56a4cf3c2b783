"""How other servers are asked and how that ends, read from their standings at each scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from headgate.gateway.telemetry.metrics import catalogue
from headgate.gateway.telemetry.metrics.families import Scraped

if TYPE_CHECKING:
    from headgate.gateway.upstream.health import Standing


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
        stands = self._standings.items()
        yield told.ATTEMPTS.each(([model, end], count) for model, its in stands for end, count in its.ends.items())
        yield told.RETRIES.each(([model], its.retries) for model, its in stands)
        yield told.HEDGES.each(
            ([model, result], count)
            for model, its in stands
            for result, count in (("won", its.hedges_won), ("lost", its.hedges - its.hedges_won))
        )
        yield told.HEALTHY.each(([model], float(its.well)) for model, its in stands)
