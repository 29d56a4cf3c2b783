"""The engine's own figures, read from its models at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.engine.lane import ModelStats
from headgate.engine.local import LocalModel

Figure = tuple[str, str, Callable[[ModelStats], float]]

_GAUGES: tuple[Figure, ...] = (
    ("headgate_requests_running", "Sequences being computed.", lambda s: s.running),
    ("headgate_requests_waiting", "Sequences waiting for room.", lambda s: s.waiting),
    ("headgate_pending_prompt_tokens", "Prompt tokens that those sequences still lack.", lambda s: s.pending_tokens),
    ("headgate_kv_cache_usage_ratio", "Share of KV blocks in use.", lambda s: s.kv_usage),
    ("headgate_kv_cache_blocks", "KV blocks that there are.", lambda s: s.kv_blocks_total),
    ("headgate_background_requests", "Work nobody waits for.", lambda s: s.background),
)
_COUNTERS: tuple[Figure, ...] = (
    ("headgate_prefix_cache_queries", "Prompt tokens looked up.", lambda s: s.prefix_queries),
    ("headgate_prefix_cache_hits", "Prompt tokens found.", lambda s: s.prefix_hits),
    ("headgate_preemptions", "Sequences recomputed for room.", lambda s: s.preemptions),
    ("headgate_steps", "Steps of the engine.", lambda s: s.steps),
    ("headgate_failed_steps", "Steps that failed the requests in them.", lambda s: s.failed_steps),
    ("headgate_step_seconds", "Time spent in steps.", lambda s: s.step_seconds),
    (
        "headgate_background_seconds",
        "Background work's part of the time spent in steps.",
        lambda s: s.background_seconds,
    ),
)


class EngineCollector(Collector):
    """One family per figure, one sample per model loaded by then."""

    def __init__(self, models: Mapping[str, LocalModel]) -> None:
        self._models = models

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration: the models may not be loaded yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Gauges, then counters."""
        stats = {name: model.stats() for name, model in self._models.items()}
        for make, figures in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text, of in figures:
                family = make(name, text, labels=["model"])
                for model, stood in stats.items():
                    family.add_metric([model], of(stood))
                yield family
