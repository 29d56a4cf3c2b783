"""Prometheus metrics of one server, in a registry of its own. Base units; labels of few values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from headgate.gateway.road.request import Usage
from headgate.gateway.telemetry.metrics.cache import CacheMetrics
from headgate.gateway.telemetry.metrics.catalogue import Requests
from headgate.gateway.telemetry.metrics.routes import RouteMetrics
from headgate.gateway.telemetry.metrics.tally import Counter, Histogram
from headgate.gateway.telemetry.record import RequestRecord

# Doubling from 10 ms, the buckets of OpenTelemetry's GenAI durations.
DURATION_BUCKETS = tuple(0.01 * 2**i for i in range(14))
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5)


@dataclass(frozen=True, slots=True)
class _Series:
    """What takes the figures of one model: looking a label up costs more than counting."""

    prompt: Callable[[float], None]
    generation: Callable[[float], None]
    cached: Callable[[float], None]
    queue: Callable[[float], None]
    inter_token: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class _Ended:
    """What takes a request of one outcome."""

    count: Callable[[], None]
    duration: Callable[[float], None] | None = None
    """None where no model had a part in it, as of the next two."""
    first_token: Callable[[float], None] | None = None
    overhead: Callable[[float], None] | None = None


class Metrics:
    """Counters and histograms fed by the road."""

    def __init__(self, usd_per_device_hour: float = 0.0) -> None:
        # When a series began says nothing here, and would be a series more for each.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation for it
        self.registry = CollectorRegistry()
        self.cache = CacheMetrics(self.registry, usd_per_device_hour)
        registry = self.registry
        self._requests = Counter(Requests.ENDED, registry)
        self._duration = Histogram(Requests.DURATION, DURATION_BUCKETS, registry)
        self._first_token = Histogram(Requests.FIRST_TOKEN, DURATION_BUCKETS, registry)
        self._overhead = Histogram(Requests.OVERHEAD, OVERHEAD_BUCKETS, registry)
        self._queue = Histogram(Requests.QUEUE, DURATION_BUCKETS, registry)
        self._inter_token = Histogram(Requests.INTER_TOKEN, TOKEN_BUCKETS, registry)
        self._prompt = Counter(Requests.PROMPT_TOKENS, registry)
        self._generation = Counter(Requests.GENERATION_TOKENS, registry)
        self._cached = Counter(Requests.CACHED_TOKENS, registry)
        self._drafted = Counter(Requests.DRAFTED, registry)
        self._series: dict[str, _Series] = {}
        self._ended: dict[tuple[str, str, str, str, int, str], _Ended] = {}
        self.routing = RouteMetrics(self.registry)

    def inter_token(self, model: str) -> Callable[[float], None]:
        """What takes the seconds since the choice's token before; looked up once for all tokens of an answer."""
        return self._of(model).inter_token

    def generated(self, model: str, prompt: int, completion: int, cached: int, queue_s: float) -> None:
        """One generation of the engine, whoever listened to it."""
        self._of(model).queue(queue_s)
        self.cut(model, Usage(prompt, completion, cached))

    def cut(self, model: str, usage: Usage) -> None:
        """One generation was left before its end, with so much of it computed."""
        series = self._of(model)
        series.prompt(usage.prompt_tokens)
        series.generation(usage.completion_tokens)
        series.cached(usage.cached_tokens)

    def drafted(self, model: str, source: str, accepted: int, rejected: int) -> None:
        """One generation had a draft."""
        self._drafted.add(model, source, "accepted", by=accepted)
        self._drafted.add(model, source, "rejected", by=rejected)

    def embedded(self, model: str, tokens: int) -> None:
        """Texts were embedded for a client, of so many tokens together."""
        self._of(model).prompt(tokens)

    def finished(self, record: RequestRecord) -> None:
        """One request has ended, well or not."""
        outcome = (record.endpoint, record.team, record.model, record.route, record.status, record.verdict)
        ended = self._ended.get(outcome)
        if ended is None:
            ended = self._ended[outcome] = self._of_outcome(record)
        ended.count()
        if ended.duration is None or ended.first_token is None or ended.overhead is None:
            return
        ended.duration(record.total_s)
        if record.first_token_s is not None:
            ended.first_token(record.first_token_s)
        if record.opened_s is not None:
            ended.overhead(record.opened_s)

    def render(self) -> bytes:
        """The exposition format, version 0.0.4."""
        return generate_latest(self.registry)

    def _of_outcome(self, record: RequestRecord) -> _Ended:
        route, model = record.route.partition(":")[0], record.model
        requests = self._requests.of(record.endpoint, record.team, model, route, str(record.status))
        if not model:
            return _Ended(requests.add)
        source = "cache" if record.verdict in ("exact", "semantic") else "computed"
        return _Ended(
            requests.add,
            self._duration.of(model, source).observe,
            self._first_token.of(model, source).observe,
            self._overhead.of(source).observe,
        )

    def _of(self, model: str) -> _Series:
        series = self._series.get(model)
        if series is None:
            series = self._series[model] = _Series(
                self._prompt.of(model).add,
                self._generation.of(model).add,
                self._cached.of(model).add,
                self._queue.of(model).observe,
                self._inter_token.of(model).observe,
            )
        return series
