"""How the server stands: what it is, whether its parts are up, who is on the road. Read at each scrape."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import Metric

from headgate import __version__
from headgate.gateway.lifecycle import State
from headgate.gateway.telemetry.logs.access import LOGGER as ACCESS
from headgate.gateway.telemetry.logs.lines import dropped
from headgate.gateway.telemetry.metrics.catalogue import Requests, Server
from headgate.gateway.telemetry.metrics.families import Scraped

if TYPE_CHECKING:
    from headgate.gateway.lifecycle import Lifecycle
    from headgate.gateway.teams.queues import Queues


class ServerCollector(Scraped):
    """Build, configuration, readiness, requests in flight and queues."""

    families = (
        Server.BUILD, Server.CONFIG, Server.CONFIG_SEEN, Server.READY, Server.PART_STATE, Server.LOG_LINES_DROPPED,
        Requests.IN_FLIGHT, Requests.QUEUED,
    )  # fmt: skip

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

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        yield Server.BUILD.each([([__version__, platform.python_version()], 1)])
        revision, since = self._note_config()
        # One series at a time: the revision that holds.
        yield Server.CONFIG.each([([revision], 1)])
        yield Server.CONFIG_SEEN.of(since)
        lifecycle = self._lifecycle
        yield Server.READY.of(float(lifecycle.ready))
        yield Server.PART_STATE.each(
            ([part, other], float(other == state))
            for part, (state, _) in lifecycle.parts.items()
            for other in get_args(State)
        )
        yield Requests.IN_FLIGHT.of(lifecycle.in_flight)
        yield Requests.QUEUED.each(([model, priority], count) for model, priority, count in self._queues.standing())
        yield Server.LOG_LINES_DROPPED.of(dropped(ACCESS, None))

    def _note_config(self) -> tuple[str, float]:
        revision = self._revision()
        if revision != self._config[0]:
            self._config = revision, self._clock()
        return self._config


class PictureCollector(Scraped):
    """What pictures take."""

    families = (Server.PICTURE_BYTES,)

    def __init__(self, taken: Callable[[], int]) -> None:
        """`taken`: bytes of those that models are shown now."""
        self._taken = taken

    def collect(self) -> Iterator[Metric]:
        """One figure."""
        yield Server.PICTURE_BYTES.of(self._taken())


def watch_process(registry: CollectorRegistry) -> None:
    """CPU, memory, open files and garbage collection of this process, under Prometheus' usual names."""
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
