"""The engine's figures under vLLM's metric names, for dashboards and routers that read those.

Types, labels and buckets are vLLM's. What this engine has no figure for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.engine.lane import ModelStats
from headgate.engine.local import LocalModel
from headgate.engine.request import FinishReason
from headgate.engine.tally import Spread, Tally

LABELS = ("model_name", "engine")
_ENGINE = "0"

_GAUGES: tuple[tuple[str, str, Callable[[ModelStats], float]], ...] = (
    ("num_requests_running", "Sequences being computed.", lambda s: s.running),
    ("num_requests_waiting", "Sequences waiting for room.", lambda s: s.waiting),
    ("kv_cache_usage_perc", "Share of KV blocks in use; 1 is all of them.", lambda s: s.kv_usage),
)
_COUNTERS: tuple[tuple[str, str, Callable[[ModelStats, Tally], float]], ...] = (
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", lambda s, _: s.prefix_queries),
    ("prefix_cache_hits", "Prompt tokens found in it.", lambda s, _: s.prefix_hits),
    ("num_preemptions", "Sequences recomputed for room.", lambda s, _: s.preemptions),
    ("prompt_tokens", "Tokens of prompts, cached ones included.", lambda _, t: t.prompt_tokens),
    ("generation_tokens", "Tokens generated.", lambda s, _: s.generated_tokens),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Tally], Spread]], ...] = (
    ("time_to_first_token_seconds", "From submission to the first token.", lambda t: t.first_token),
    ("inter_token_latency_seconds", "Between the tokens of a sequence.", lambda t: t.between_tokens),
    ("e2e_request_latency_seconds", "From submission to the last token.", lambda t: t.whole),
    ("request_queue_time_seconds", "From submission to the first step.", lambda t: t.queue),
    ("request_inference_time_seconds", "From the first step to the last token.", lambda t: t.inference),
    ("request_prefill_time_seconds", "From the first step to the first token.", lambda t: t.prefill),
    ("request_decode_time_seconds", "From the first token to the last.", lambda t: t.decode),
    ("iteration_tokens_total", "Tokens computed in a step.", lambda t: t.step_tokens),
    ("request_params_n", "Choices that requests ask for.", lambda t: t.choices),
    ("request_params_max_tokens", "Tokens that requests ask for at most.", lambda t: t.asked_tokens),
)
_REASONS: Mapping[FinishReason, str] = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}


class VllmCollector(Collector):
    """Read at each scrape, one series per model of the engine; upstreams have their own servers' figures."""

    def __init__(self, models: Mapping[str, LocalModel], cache_config: Mapping[str, str]) -> None:
        """`cache_config`: what is said of every KV cache but its number of blocks."""
        self._models = models
        self._cache_config = dict(cache_config)

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration: the models may not be loaded yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Gauges, counters, histograms, and what the KV caches are."""
        seen = [(name, model.stats(), model.tally()) for name, model in self._models.items()]
        for name, text, gauge in _GAUGES:
            family = GaugeMetricFamily(f"vllm:{name}", text, labels=LABELS)
            for model, stats, _ in seen:
                family.add_metric([model, _ENGINE], gauge(stats))
            yield family
        for name, text, counter in _COUNTERS:
            counts = CounterMetricFamily(f"vllm:{name}", text, labels=LABELS)
            for model, stats, tally in seen:
                counts.add_metric([model, _ENGINE], counter(stats, tally))
            yield counts
        success = CounterMetricFamily(
            "vllm:request_success", "Sequences by why they ended.", labels=[*LABELS, "finished_reason"]
        )
        for model, _, tally in seen:
            for reason, theirs in _REASONS.items():
                success.add_metric([model, _ENGINE, theirs], tally.ends[reason])
        yield success
        for name, text, spread in _HISTOGRAMS:
            histogram = HistogramMetricFamily(f"vllm:{name}", text, labels=LABELS)
            for model, _, tally in seen:
                histogram.add_metric([model, _ENGINE], *_sample(spread(tally)))
            yield histogram
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The KV cache of a model.",
            labels=[*LABELS, "num_gpu_blocks", *self._cache_config],
        )
        for model, stats, _ in seen:
            info.add_metric([model, _ENGINE, str(stats.kv_blocks_total), *self._cache_config.values()], 1.0)
        yield info


def _sample(spread: Spread) -> tuple[list[tuple[str, float]], float]:
    bounds = [*map(str, spread.bounds), "+Inf"]
    return list(zip(bounds, map(float, spread.cumulative), strict=True)), spread.sum
