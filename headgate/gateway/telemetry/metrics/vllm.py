"""The engine's figures under vLLM's metric names, for dashboards and routers that read those.

Types, labels and buckets are vLLM's. What this engine has no figure for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric

from headgate.engine.front.local import LocalModel
from headgate.engine.lanes.stats import ModelStats
from headgate.engine.lanes.tally import Spread, Tally
from headgate.engine.request import FinishReason
from headgate.gateway.telemetry.metrics import catalogue
from headgate.gateway.telemetry.metrics.families import HistogramFamily, Scraped, ValueFamily
from headgate.gateway.telemetry.metrics.vllm_catalogue import Vllm

_ENGINE = "0"

_FIGURES: tuple[tuple[ValueFamily, Callable[[ModelStats, Tally], float]], ...] = (
    (Vllm.RUNNING, lambda s, _: s.running),
    (Vllm.WAITING, lambda s, _: s.waiting),
    (Vllm.KV_USAGE, lambda s, _: s.kv_usage),
    (Vllm.PREFIX_QUERIES, lambda s, _: s.prefix_queries),
    (Vllm.PREFIX_HITS, lambda s, _: s.prefix_hits),
    (Vllm.PREEMPTIONS, lambda s, _: s.preemptions),
    (Vllm.PROMPT_TOKENS, lambda _, t: t.prompt_tokens),
    (Vllm.GENERATION_TOKENS, lambda s, _: s.generated_tokens),
)
_SPREADS: tuple[tuple[HistogramFamily, Callable[[Tally], Spread]], ...] = (
    (Vllm.FIRST_TOKEN, lambda t: t.first_token),
    (Vllm.INTER_TOKEN, lambda t: t.between_tokens),
    (Vllm.WHOLE, lambda t: t.whole),
    (Vllm.QUEUE, lambda t: t.queue),
    (Vllm.INFERENCE, lambda t: t.inference),
    (Vllm.PREFILL, lambda t: t.prefill),
    (Vllm.DECODE, lambda t: t.decode),
    (Vllm.STEP_TOKENS, lambda t: t.step_tokens),
    (Vllm.CHOICES, lambda t: t.choices),
    (Vllm.MAX_TOKENS, lambda t: t.asked_tokens),
)
_REASONS: Mapping[FinishReason, str] = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}


class VllmCollector(Scraped):
    """Read at each scrape, one series per model of the engine; upstreams have their own servers' figures."""

    families = catalogue.families(Vllm)

    def __init__(self, models: Mapping[str, LocalModel], cache_config: Mapping[str, str]) -> None:
        """`cache_config`: what is said of every KV cache but its number of blocks."""
        self._models = models
        self._cache_config = [cache_config[label] for label in Vllm.CACHE_CONFIG.labels[3:]]

    def collect(self) -> Iterator[Metric]:
        """Gauges and counters, histograms, and what the KV caches are."""
        seen = [(name, model.stats(), model.tally()) for name, model in self._models.items()]
        for family, of in _FIGURES:
            yield family.each(([model, _ENGINE], of(stats, tally)) for model, stats, tally in seen)
        yield Vllm.SUCCESS.each(
            ([model, _ENGINE, theirs], tally.ends[reason])
            for model, _, tally in seen
            for reason, theirs in _REASONS.items()
        )
        for spread, taken in _SPREADS:
            histogram = spread.new()
            for model, _, tally in seen:
                histogram.add_metric([model, _ENGINE], *_sample(taken(tally)))
            yield histogram
        yield Vllm.CACHE_CONFIG.each(
            ([model, _ENGINE, str(stats.kv_blocks_total), *self._cache_config], 1.0) for model, stats, _ in seen
        )


def _sample(spread: Spread) -> tuple[list[tuple[str, float]], float]:
    bounds = [*map(str, spread.bounds), "+Inf"]
    return list(zip(bounds, map(float, spread.cumulative), strict=True)), spread.sum
