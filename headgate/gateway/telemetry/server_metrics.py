"""How the server stands: what it is, whether its parts are up, who is on the road. Read at each scrape."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate import __version__
from headgate.gateway.lifecycle import State
from headgate.gateway.telemetry.access_log import LOGGER as ACCESS
from headgate.gateway.telemetry.log_lines import dropped

if TYPE_CHECKING:
    from headgate.gateway.lifecycle import Lifecycle
    from headgate.gateway.teams.queues import Queues


class ServerCollector(Collector):
    """Build, configuration, readiness, requests in flight and queues."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        queues: Queues,
        revision: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`revision`: of the configuration that holds; `clock`: Unix time."""
        self._lifecycle = lifecycle
        self._queues = queues
        self._revision = revision
        self._clock = clock
        self._config = ("", 0.0)
        self._note_config()

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        build = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("headgate_build", "What is running.", value=build)
        revision, since = self._note_config()
        # One series at a time: the revision that holds.
        yield InfoMetricFamily("headgate_config", "The configuration that holds.", value={"revision": revision})
        yield GaugeMetricFamily(
            "headgate_config_seen_timestamp_seconds", "When a scrape first found that configuration.", value=since
        )
        lifecycle = self._lifecycle
        yield GaugeMetricFamily("headgate_ready", "Whether requests are answered.", value=float(lifecycle.ready))
        parts = GaugeMetricFamily("headgate_part_state", "1 for the state a part is in.", labels=["part", "state"])
        for part, (state, _) in lifecycle.parts.items():
            for other in get_args(State):
                parts.add_metric([part, other], float(other == state))
        yield parts
        yield GaugeMetricFamily("headgate_requests_in_flight", "Requests on the road.", value=lifecycle.in_flight)
        queued = GaugeMetricFamily(
            "headgate_requests_queued", "Requests whose answer has not begun.", labels=["model", "priority"]
        )
        for model, priority, count in self._queues.standing():
            queued.add_metric([model, priority], count)
        yield queued
        yield CounterMetricFamily(
            "headgate_log_lines_dropped", "Lines of the access log that could not be written.", value=dropped(ACCESS)
        )

    def _note_config(self) -> tuple[str, float]:
        revision = self._revision()
        if revision != self._config[0]:
            self._config = revision, self._clock()
        return self._config


def watch_process(registry: CollectorRegistry) -> None:
    """CPU, memory, open files and garbage collection of this process, under Prometheus' usual names."""
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
