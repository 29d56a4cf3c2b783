"""Prometheus metrics of one server, in a registry of its own. Base units; labels of few values only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.engine.local import LocalModel
from headgate.gateway.telemetry.cache_metrics import CacheMetrics
from headgate.gateway.telemetry.labelled import Labelled
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.telemetry.route_metrics import RouteMetrics

# Doubling from 10 ms, the buckets of OpenTelemetry's GenAI durations.
DURATION_BUCKETS = tuple(0.01 * 2**i for i in range(14))
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True, slots=True)
class _Series:
    """What takes the figures of one model: looking a label up costs more than counting."""

    prompt: Callable[[float], None]
    generation: Callable[[float], None]
    cached: Callable[[float], None]
    queue: Callable[[float], None]
    duration: Callable[[float], None]
    first_token: Callable[[float], None]
    inter_token: Callable[[float], None]


class Metrics:
    """Counters and histograms fed by the road."""

    def __init__(self, usd_per_device_hour: float = 0.0) -> None:
        self.registry = CollectorRegistry()
        self.cache = CacheMetrics(self.registry, usd_per_device_hour)
        self._requests = Labelled(
            Counter("headgate_requests", "Requests by outcome.", ["endpoint", "model", "code"], registry=self.registry)
        )
        self._duration = self._histogram(
            "headgate_request_duration_seconds", "From the first byte read to the last sent."
        )
        self._first_token = self._histogram("headgate_time_to_first_token_seconds", "From arrival to the first token.")
        self._queue = self._histogram("headgate_request_queue_seconds", "From submission to the first step.")
        self._inter_token = Histogram(
            "headgate_inter_token_latency_seconds", "Between tokens of one choice.", ["model"],
            buckets=TOKEN_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._prompt = self._tokens("headgate_prompt_tokens", "Tokens of prompts the engine answered.")
        self._generation = self._tokens("headgate_generation_tokens", "Tokens the engine generated.")
        self._cached = self._tokens("headgate_cached_prompt_tokens", "Prompt tokens taken from the prefix cache.")
        self._series: dict[str, _Series] = {}
        self.routing = RouteMetrics(self.registry)

    def inter_token(self, model: str) -> Callable[[float], None]:
        """What takes the seconds since the choice's token before; looked up once for all tokens of an answer."""
        return self._of(model).inter_token

    def generated(self, model: str, prompt: int, completion: int, cached: int, queue_s: float) -> None:
        """One generation of the engine, whoever listened to it."""
        series = self._of(model)
        series.prompt(prompt)
        series.generation(completion)
        series.cached(cached)
        series.queue(queue_s)

    def embedded(self, model: str, tokens: int) -> None:
        """Texts were embedded for a client, of so many tokens together."""
        self._of(model).prompt(tokens)

    def finished(self, record: RequestRecord) -> None:
        """One request has ended, well or not."""
        self._requests.count(record.endpoint, record.model, str(record.status))
        if record.model:
            series = self._of(record.model)
            series.duration(record.total_s)
            if record.first_token_s is not None:
                series.first_token(record.first_token_s)

    def watch(self, models: Mapping[str, LocalModel]) -> None:
        """Publish the engine's own counts, read at each scrape from models loaded by then."""
        self.registry.register(EngineCollector(models))

    def render(self) -> bytes:
        """The exposition format, version 0.0.4."""
        return generate_latest(self.registry)

    def _of(self, model: str) -> _Series:
        series = self._series.get(model)
        if series is None:
            series = self._series[model] = _Series(
                self._prompt.labels(model).inc,
                self._generation.labels(model).inc,
                self._cached.labels(model).inc,
                self._queue.labels(model).observe,
                self._duration.labels(model).observe,
                self._first_token.labels(model).observe,
                self._inter_token.labels(model).observe,
            )
        return series

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, ["model"], buckets=DURATION_BUCKETS, registry=self.registry)

    def _tokens(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["model"], registry=self.registry)


class EngineCollector(Collector):
    """Gauges and counters taken from the models at the moment of the scrape."""

    def __init__(self, models: Mapping[str, LocalModel]) -> None:
        self._models = models

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect at registration: the models may not be loaded yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family per figure, one sample per model."""
        running = GaugeMetricFamily("headgate_requests_running", "Sequences being computed.", labels=["model"])
        waiting = GaugeMetricFamily("headgate_requests_waiting", "Sequences waiting for room.", labels=["model"])
        usage = GaugeMetricFamily("headgate_kv_cache_usage_ratio", "Share of KV blocks in use.", labels=["model"])
        queries = CounterMetricFamily("headgate_prefix_cache_queries", "Prompt tokens looked up.", labels=["model"])
        hits = CounterMetricFamily("headgate_prefix_cache_hits", "Prompt tokens found.", labels=["model"])
        preemptions = CounterMetricFamily("headgate_preemptions", "Sequences recomputed for room.", labels=["model"])
        steps = CounterMetricFamily("headgate_steps", "Steps of the engine.", labels=["model"])
        step_time = CounterMetricFamily("headgate_step_seconds", "Time spent in steps.", labels=["model"])
        background = GaugeMetricFamily("headgate_background_requests", "Work nobody waits for.", labels=["model"])
        background_time = CounterMetricFamily(
            "headgate_background_seconds", "Its part of the time spent in steps.", labels=["model"]
        )
        for name, model in self._models.items():
            stats = model.stats()
            running.add_metric([name], stats.running)
            waiting.add_metric([name], stats.waiting)
            usage.add_metric([name], stats.kv_usage)
            queries.add_metric([name], stats.prefix_queries)
            hits.add_metric([name], stats.prefix_hits)
            preemptions.add_metric([name], stats.preemptions)
            steps.add_metric([name], stats.steps)
            step_time.add_metric([name], stats.step_seconds)
            background.add_metric([name], stats.background)
            background_time.add_metric([name], stats.background_seconds)
        yield from (running, waiting, usage, queries, hits, preemptions, steps, step_time, background, background_time)
