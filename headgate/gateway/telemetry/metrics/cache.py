"""What the answer cache saves, and how it stands. Labels take a few values that the code knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from headgate.gateway.telemetry.metrics.catalogue import Cache
from headgate.gateway.telemetry.metrics.families import Scraped
from headgate.gateway.telemetry.metrics.tally import Counter, Histogram

# From a second to a week: a stored answer lives as long as its TTL.
AGE_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0, 7 * 86400.0)

Kept = Literal["kept", "lost", "share", "filtered", "fallback"]
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
    """Counters of the answer cache, fed by the road."""

    def __init__(self, registry: CollectorRegistry, usd_per_device_hour: float) -> None:
        self._usd_per_s = usd_per_device_hour / 3600.0
        self._lookups = Counter(Cache.LOOKUPS, registry)
        self._age = Histogram(Cache.HIT_AGE, AGE_BUCKETS, registry)
        self._tokens = Counter(Cache.SAVED_TOKENS, registry)
        self._seconds = Counter(Cache.SAVED_DEVICE, registry)
        self._usd = Counter(Cache.SAVED_USD, registry)
        self._stores = Counter(Cache.STORES, registry)
        self._waits = Counter(Cache.WAITS, registry)

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
        """A finished answer was kept, or not: see `Cache.STORES`."""
        self._stores.add(result)

    def waited(self, result: Waited) -> None:
        """A request waited for another's answer, and was served it, was not, or went on by itself after the bound."""
        self._waits.add(result)

    def counts(self) -> dict[str, float]:
        """Look-ups by verdict and what was saved, since the start."""
        counts: dict[str, float] = {"saved_device_seconds": self._seconds.of().value, "saved_usd": self._usd.of().value}
        for (verdict, _), count in self._lookups.series().items():
            counts[verdict] = counts.get(verdict, 0.0) + count
        for (kind,), count in self._tokens.series().items():
            counts[f"saved_tokens_{kind}"] = count
        return counts


class CacheCollector(Scraped):
    """Gauges taken from the cache at the moment of the scrape; what is not known is left out."""

    families = (
        Cache.STORE_ENTRIES, Cache.STORE_BYTES, Cache.STORE_MAX_BYTES, Cache.STORE_EVICTIONS, Cache.INDEX_ENTRIES,
        Cache.FEED_LAG, Cache.FEED_COPYING, Cache.FEED_STALENESS, Cache.FEED_REBUILDS, Cache.FAULTS,
    )  # fmt: skip

    def __init__(self, state: Callable[[], CacheState]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        state = self._state()
        figures = (
            (Cache.STORE_ENTRIES, state.entries),
            (Cache.STORE_BYTES, state.bytes),
            (Cache.STORE_MAX_BYTES, state.max_bytes),
            (Cache.STORE_EVICTIONS, state.evictions),
            (Cache.INDEX_ENTRIES, state.indexed),
            (Cache.FEED_LAG, state.lag_s),
            (Cache.FEED_COPYING, state.copying),
            (Cache.FEED_STALENESS, state.staleness_s),
            (Cache.FEED_REBUILDS, state.rebuilt),
        )
        for family, value in figures:
            if value is not None:
                yield family.of(value)
        yield Cache.FAULTS.each(([part], count) for part, count in state.faults.items())
