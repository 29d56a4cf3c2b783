"""The engine's own figures, read from its models at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric

from headgate.engine.front.local import LocalModel
from headgate.engine.kv.tiers import TierStats
from headgate.engine.lanes.sleeper import SleepStats
from headgate.engine.lanes.stats import ModelStats
from headgate.gateway.telemetry.metrics.catalogue import Engine
from headgate.gateway.telemetry.metrics.families import Scraped, ValueFamily

_FIGURES: tuple[tuple[ValueFamily, Callable[[ModelStats], float]], ...] = (
    (Engine.RUNNING, lambda s: s.running),
    (Engine.WAITING, lambda s: s.waiting),
    (Engine.PENDING, lambda s: s.pending_tokens),
    (Engine.KV_USAGE, lambda s: s.kv_usage),
    (Engine.KV_BLOCKS, lambda s: s.kv_blocks_total),
    (Engine.KV_BYTES, lambda s: s.kv_bytes),
    (Engine.BACKGROUND, lambda s: s.background),
    (Engine.PREFIX_QUERIES, lambda s: s.prefix_queries),
    (Engine.PREFIX_HITS, lambda s: s.prefix_hits),
    (Engine.PREEMPTIONS, lambda s: s.preemptions),
    (Engine.STEPS, lambda s: s.steps),
    (Engine.SHORT_STEPS, lambda s: s.short_steps),
    (Engine.FAILED_STEPS, lambda s: s.failed_steps),
    (Engine.STEP_SECONDS, lambda s: s.step_seconds),
    (Engine.PICTURES, lambda s: s.pictures),
    (Engine.PICTURE_SECONDS, lambda s: s.picture_seconds),
    (Engine.BACKGROUND_SECONDS, lambda s: s.background_seconds),
)


_SLEEP: tuple[tuple[ValueFamily, Callable[[SleepStats], float]], ...] = (
    (Engine.ASLEEP, lambda s: s.state != "awake"),
    (Engine.SLEEPS, lambda s: s.sleeps),
    (Engine.WAKES, lambda s: s.wakes),
    (Engine.WAKE_SECONDS, lambda s: s.wake_seconds),
)


_TIERS: tuple[tuple[ValueFamily, Callable[[TierStats], Mapping[str, float]]], ...] = (
    (Engine.TIER_BLOCKS, lambda s: {"host": s.host_blocks, "disk": s.disk_blocks}),
    (Engine.TIER_BYTES, lambda s: {"host": s.host_bytes, "disk": s.disk_bytes}),
    (Engine.TIER_TOKENS, lambda s: {"host": s.host_tokens, "disk": s.disk_tokens}),
)
_LOADS: tuple[tuple[ValueFamily, Callable[[TierStats], float]], ...] = (
    (Engine.TIER_LOADS, lambda s: s.loads),
    (Engine.TIER_SHORT, lambda s: s.short_loads),
    (Engine.TIER_SECONDS, lambda s: s.load_seconds),
    (Engine.TIER_WRITTEN, lambda s: s.written_blocks),
    (Engine.TIER_DROPPED, lambda s: s.dropped_blocks),
)


class EngineCollector(Scraped):
    """One family per figure, one sample per model loaded by then."""

    families = (Engine.GUESSED, *(family for family, _ in (*_FIGURES, *_TIERS, *_LOADS, *_SLEEP)))

    def __init__(self, models: Mapping[str, LocalModel]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """One family per figure."""
        stats = {name: model.stats() for name, model in self._models.items()}
        for family, of in _FIGURES:
            yield family.each(([model], of(stood)) for model, stood in stats.items())
        yield Engine.GUESSED.each(
            ([model, source, end], count)
            for model, stood in stats.items()
            for source, counts in stood.guessed.items()
            for end, count in zip(("accepted", "rejected"), counts, strict=True)
        )
        tiers = {name: stood.tiers or TierStats() for name, stood in stats.items()}
        for family, by_tier in _TIERS:
            yield family.each(([model, tier], v) for model, kept in tiers.items() for tier, v in by_tier(kept).items())
        for family, counted in _LOADS:
            yield family.each(([model], counted(kept)) for model, kept in tiers.items())
        sleepers = {name: model.sleeper for name, model in self._models.items()}
        slept = {name: SleepStats() if sleeper is None else sleeper.stats for name, sleeper in sleepers.items()}
        for family, told in _SLEEP:
            yield family.each(([model], told(stood)) for model, stood in slept.items())
