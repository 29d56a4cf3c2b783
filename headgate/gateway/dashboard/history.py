"""The last minutes, a point every two seconds, taken from the counters that /metrics publishes.

It goes on whether somebody looks or not, so that a page that is opened shows them at once. A point reads a few series
of each model, which takes a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from prometheus_client import CollectorRegistry

from headgate.engine.front.local import LocalModel
from headgate.gateway.dashboard.traces import Traces
from headgate.gateway.telemetry.metrics.snapshot import NO_BUCKETS, Buckets, Reading

INTERVAL_S = 2.0
KEPT = 450
"""Points: a quarter of an hour."""
WINDOW_S = 60.0
"""Percentiles are of so long before each point, and so are the figures of the present."""

FIRST_TOKEN = "headgate_time_to_first_token_seconds"
INTER_TOKEN = "headgate_inter_token_latency_seconds"
TRAFFIC = (
    "headgate_prompt_tokens_total",
    "headgate_generation_tokens_total",
    "headgate_cache_lookups_total",
    f"{FIRST_TOKEN}_bucket",
    f"{INTER_TOKEN}_bucket",
)
"""Names of the series that a point is made of."""
_HITS = ("exact", "semantic")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of the traffic at one moment."""

    at: float
    """Monotonic seconds."""
    requests: int
    failed: int
    refused: int
    prompt_tokens: Mapping[str, float]
    generated_tokens: Mapping[str, float]
    lookups: float
    hits: float
    first_token: Mapping[str, Buckets]
    """By model; stored answers would hide slow ones, and are left out."""
    inter_token: Mapping[str, Buckets]


def counts_of(reading: Reading, traces: Traces, at: float) -> Counts:
    """What a reading says of the traffic. Requests are those to the API."""
    verdicts = reading.by_one("headgate_cache_lookups_total", "verdict")
    return Counts(
        at,
        traces.requests,
        traces.failed,
        traces.refused,
        reading.by_one("headgate_prompt_tokens_total", "model"),
        reading.by_one("headgate_generation_tokens_total", "model"),
        sum(verdicts.values()),
        sum(verdicts.get(name, 0.0) for name in _HITS),
        reading.buckets_by(FIRST_TOKEN, "model", source="computed"),
        reading.buckets_by(INTER_TOKEN, "model"),
    )


@dataclass(frozen=True, slots=True)
class Point:
    """The server at one moment. Rates are of the time since the point before; None: nothing was observed."""

    at: float
    """Seconds since the epoch."""
    requests_s: float
    failed_s: float
    refused_s: float
    prompt_tokens_s: float
    generated_tokens_s: float
    hit_ratio: float | None
    """Of the window's look-ups; so are the percentiles, in seconds."""
    first_token_p50: float | None
    first_token_p90: float | None
    first_token_p99: float | None
    inter_token_p50: float | None
    inter_token_p90: float | None
    inter_token_p99: float | None
    in_flight: int
    running: int
    waiting: int
    kv_usage: float
    """Of the model whose cache is fullest."""


POINT_NAMES = tuple(field.name for field in fields(Point))


class History:
    """A bounded ring of points. All calls come from one event loop."""

    def __init__(
        self,
        registry: CollectorRegistry,
        traces: Traces,
        models: Mapping[str, LocalModel],
        in_flight: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Empty until `take` is called.

        Args:
            registry: has the traffic's series.
            traces: count the requests: a series for each of their labels would take longer to add up.
            models: whose queues are looked at, each by one of those that share it.
            in_flight: requests on the road.
            clock: monotonic seconds.
            wall: seconds since the epoch.
        """
        self._traffic = registry.restricted_registry(TRAFFIC)
        self._traces = traces
        self._models = models
        self._in_flight = in_flight
        self._clock = clock
        self._wall = wall
        self._points: deque[Point] = deque(maxlen=KEPT)
        self._window: deque[Counts] = deque([self.now()])
        self.taken = 0
        """Points since the start; the latest has this number."""

    def now(self) -> Counts:
        """The counters at this moment."""
        return counts_of(Reading(self._traffic.collect()), self._traces, self._clock())

    def before(self, now: Counts) -> Counts:
        """The counters as they were a window before, or as near to that as is known."""
        return next((old for old in self._window if now.at - old.at <= WINDOW_S + INTERVAL_S / 2), now)

    async def follow(self) -> None:
        """Take points, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.take()

    def take(self) -> None:
        """One point more."""
        now, last = self.now(), self._window[-1]
        old = self.before(now)
        stats = [model.stats() for model in self._models.values()]
        first, inter = latencies(now, old)
        self._points.append(
            Point(
                self._wall(),
                rate(now.requests - last.requests, now, last),
                rate(now.failed - last.failed, now, last),
                rate(now.refused - last.refused, now, last),
                rate(sum(now.prompt_tokens.values()) - sum(last.prompt_tokens.values()), now, last),
                rate(sum(now.generated_tokens.values()) - sum(last.generated_tokens.values()), now, last),
                hit_ratio(now, old),
                first.quantile(0.5),
                first.quantile(0.9),
                first.quantile(0.99),
                inter.quantile(0.5),
                inter.quantile(0.9),
                inter.quantile(0.99),
                self._in_flight(),
                sum(s.running for s in stats),
                sum(s.waiting for s in stats),
                max((s.kv_usage for s in stats), default=0.0),
            )
        )
        self.taken += 1
        self._window.append(now)
        while len(self._window) > 1 and now.at - self._window[0].at > WINDOW_S + INTERVAL_S:
            self._window.popleft()

    def since(self, number: int) -> list[Point]:
        """The points after that of a number, as far as they are kept."""
        new = self.taken - number
        if not 0 <= new <= len(self._points):
            return list(self._points)
        return list(self._points)[len(self._points) - new :]


def latencies(now: Counts, old: Counts, model: str | None = None) -> tuple[Buckets, Buckets]:
    """Until the first token and between tokens, as observed between two moments: by a model, or by all together."""
    return (_added(now.first_token, old.first_token, model), _added(now.inter_token, old.inter_token, model))


def hit_ratio(now: Counts, old: Counts) -> float | None:
    """Hits' share of the look-ups between two moments; None where there were none."""
    looked = now.lookups - old.lookups
    return (now.hits - old.hits) / looked if looked else None


def _added(now: Mapping[str, Buckets], old: Mapping[str, Buckets], model: str | None) -> Buckets:
    found = [b.since(old.get(name, NO_BUCKETS)) for name, b in now.items() if model in (None, name) and b.counts]
    if not found:
        return NO_BUCKETS
    return Buckets(found[0].bounds, tuple(sum(counts) for counts in zip(*(b.counts for b in found), strict=True)))


def rate(count: float, now: Counts, last: Counts) -> float:
    """So many between two moments, by the second."""
    return count / (now.at - last.at) if now.at > last.at else 0.0
