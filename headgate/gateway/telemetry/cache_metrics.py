"""What the answer cache saves, and how it stands. Labels take a few values that the code knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.gateway.telemetry.tally import Counter, Histogram

# From a second to a week: a stored answer lives as long as its TTL.
AGE_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0, 7 * 86400.0)

Kept = Literal["kept", "lost", "share", "filtered"]
Waited = Literal["served", "other", "timeout"]


@dataclass(frozen=True, slots=True)
class CacheState:
    """The cache at one moment. None is what this server has not or cannot know: Redis counts its own bytes."""

    entries: int | None = None
    bytes: int | None = None
    max_bytes: int | None = None
    evictions: int | None = None
    indexed: int | None = None
    lag_s: float | None = None
    """From the writing of the latest change in Redis to its being in the index here."""
    staleness_s: float | None = None
    """What was written longer ago is in the index here."""
    rebuilt: int | None = None
    copying: int | None = None
    """Vectors that the copy under way has taken from Redis so far; None where none is under way."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Failed calls by part; no request failed by them."""


class CacheMetrics:
    """Counters of the answer cache, fed by the road, and gauges of its state."""

    def __init__(self, registry: CollectorRegistry, usd_per_device_hour: float) -> None:
        self._usd_per_s = usd_per_device_hour / 3600.0
        self._registry = registry
        self._lookups = Counter(
            "headgate_cache_lookups", "What the answer cache said.", ["verdict", "reason"], registry=registry
        )
        self._age = Histogram(
            "headgate_cache_hit_age_seconds", "Age of the answers served from the cache.", ["kind"],
            buckets=AGE_BUCKETS, registry=registry,
        )  # fmt: skip
        self._tokens = Counter(
            "headgate_cache_saved_tokens", "Tokens that were not computed.", ["kind"], registry=registry
        )
        self._seconds = Counter(
            "headgate_cache_saved_device_seconds", "Device time that hits would have taken.", registry=registry
        )
        self._usd = Counter(
            "headgate_cache_saved_usd", "The same at engine.usd_per_device_hour.", registry=registry
        )  # fmt: skip
        self._stores = Counter(
            "headgate_cache_stores", "Finished answers, and whether they were kept.", ["result"], registry=registry
        )
        self._waits = Counter(
            "headgate_cache_waits", "Waits for a similar question being answered.", ["result"], registry=registry
        )

    def lookup(self, verdict: str, reason: str) -> None:
        """One look into the cache: exact, semantic, near, miss or bypass, and one of a few reasons."""
        self._lookups.add(verdict, reason)

    def hit(self, kind: str, age_s: float) -> None:
        """An answer of that age was served."""
        self._age.of(kind).observe(age_s)

    def saved(self, prompt_tokens: int, completion_tokens: int, device_s: float) -> None:
        """A generation that somebody did not need."""
        self._tokens.add("prompt", by=prompt_tokens)
        self._tokens.add("completion", by=completion_tokens)
        self._seconds.add(by=device_s)
        self._usd.add(by=device_s * self._usd_per_s)

    def stored(self, result: Kept) -> None:
        """A finished answer was kept, lost (the store is full or away, or was purged), beyond a share, or filtered."""
        self._stores.add(result)

    def waited(self, result: Waited) -> None:
        """A request waited for another's answer, and was served it, was not, or went on by itself after the bound."""
        self._waits.add(result)

    def watch(self, state: Callable[[], CacheState]) -> None:
        """Publish the cache's state, read at each scrape."""
        self._registry.register(CacheCollector(state))

    def counts(self) -> dict[str, float]:
        """Look-ups by verdict and what was saved, since the start."""
        counts: dict[str, float] = {"saved_device_seconds": self._seconds.of().value, "saved_usd": self._usd.of().value}
        for (verdict, _), count in self._lookups.series().items():
            counts[verdict] = counts.get(verdict, 0.0) + count
        for (kind,), count in self._tokens.series().items():
            counts[f"saved_tokens_{kind}"] = count
        return counts


class CacheCollector(Collector):
    """Gauges taken from the cache at the moment of the scrape; what is not known is left out."""

    def __init__(self, state: Callable[[], CacheState]) -> None:
        self._state = state

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration: the cache may not be there yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        state = self._state()
        gauges = (
            ("headgate_cache_store_entries", "Answers held in this process.", state.entries),
            ("headgate_cache_store_bytes", "Bytes of the answers held in this process.", state.bytes),
            ("headgate_cache_store_max_bytes", "The bound on them.", state.max_bytes),
            ("headgate_cache_index_entries", "Texts that can be found by meaning.", state.indexed),
            ("headgate_cache_feed_lag_seconds", "Age of the latest change when it came from Redis.", state.lag_s),
            ("headgate_cache_feed_copying", "Vectors copied so far, while Redis is copied.", state.copying),
            (
                "headgate_cache_feed_staleness_seconds",
                "What was written to Redis longer ago is indexed here.",
                state.staleness_s,
            ),
        )
        for name, text, value in gauges:
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)
        counters = (
            ("headgate_cache_store_evictions", "Answers that left for want of room.", state.evictions),
            ("headgate_cache_feed_rebuilds", "Copies made of all that Redis holds.", state.rebuilt),
        )
        for name, text, value in counters:
            if value is not None:
                yield CounterMetricFamily(name, text, value=value)
        faults = CounterMetricFamily(
            "headgate_cache_faults", "Calls that failed and counted as a miss.", labels=["part"]
        )
        for part, count in state.faults.items():
            faults.add_metric([part], count)
        yield faults
