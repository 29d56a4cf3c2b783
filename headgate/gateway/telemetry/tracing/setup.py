"""Opening what sends spans and metrics to a collector, where the configuration wants that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from headgate.gateway.parts import StartError, otel_headers
from headgate.gateway.telemetry.metrics.catalogue import Server
from headgate.gateway.telemetry.metrics.families import Scraped
from headgate.gateway.telemetry.sections import OtelSection

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Tracing

_EVERY_MS = 30_000
"""How often metrics are sent."""
_TAKES_S = 5
"""How long a collector may take for a batch."""


def open_tracing(section: OtelSection, environ: Mapping[str, str], registry: CollectorRegistry) -> Tracing | None:
    """What makes and sends spans; None where it is off, for which nothing is imported.

    StartError where it cannot be had. `environ` holds what headers refer to, `registry` learns what was dropped.
    """
    if not section.enabled:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        from headgate.gateway.telemetry.tracing.otel import Tracing
        from headgate.gateway.telemetry.tracing.span_queue import SpanQueue
    except ImportError as error:
        message = f"telemetry.otel.enabled is true, but {error.name} is not installed; pip install 'headgate[otel]'"
        raise StartError(message) from None
    headers = otel_headers(section, environ)
    # The queue says once that a collector is away; its exporter would say it of every batch.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    base = section.endpoint.rstrip("/")
    queue = SpanQueue(OTLPSpanExporter(f"{base}/v1/traces", headers=headers, timeout=_TAKES_S))
    metrics = OTLPMetricExporter(f"{base}/v1/metrics", headers=headers, timeout=_TAKES_S)
    registry.register(SpanCollector(lambda: (queue.sent, queue.dropped)))
    reader = PeriodicExportingMetricReader(metrics, export_interval_millis=_EVERY_MS)
    return Tracing(section.service_name, section.sample_ratio, queue, [reader])


class SpanCollector(Scraped):
    """What became of spans, read at each scrape."""

    families = (Server.SPANS,)

    def __init__(self, counts: Callable[[], tuple[int, int]]) -> None:
        """`counts`: sent and dropped, since the start."""
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """One family."""
        sent, dropped = self._counts()
        yield Server.SPANS.each([(["sent"], sent), (["dropped"], dropped)])
