"""Spans and metrics of requests by OpenTelemetry's conventions for generative AI. Needs the extra `headgate[otel]`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headgate import __version__
from headgate.gateway.telemetry.tracing import genai

if TYPE_CHECKING:
    from headgate.gateway.road.request import ChatRequest
    from headgate.gateway.telemetry.record import RequestRecord

_PROPAGATOR = TraceContextTextMapPropagator()
_PROVIDER = "headgate"
Attributes = dict[str, AttributeValue]


class _Instruments:
    """The histograms, with the buckets that the conventions want."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("headgate", __version__, schema_url=genai.SCHEMA_URL)

        def seconds(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=buckets)

        self.tokens = meter.create_histogram(
            genai.CLIENT_TOKENS, "{token}", "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=genai.TOKEN_BUCKETS,
        )  # fmt: skip
        self.duration = seconds(genai.SERVER_DURATION, "Duration of requests.", genai.DURATION_BUCKETS)
        self.first = seconds(genai.SERVER_FIRST_TOKEN, "Time to the first token.", genai.FIRST_BUCKETS)
        self.each = seconds(genai.SERVER_TOKEN, "Time per token after the first.", genai.EACH_BUCKETS)
        self.asked = seconds(genai.CLIENT_DURATION, "Duration of requests to upstreams.", genai.DURATION_BUCKETS)
        self.asked_first = seconds(
            genai.CLIENT_FIRST_CHUNK, "Time to an upstream's first chunk.", genai.DURATION_BUCKETS
        )
        self.asked_each = seconds(genai.CLIENT_CHUNK, "Time between an upstream's chunks.", genai.DURATION_BUCKETS)


class Tracing:
    """Makes a span of every request. Spans and metrics leave in threads of their own."""

    def __init__(
        self, service_name: str, sample_ratio: float, processor: SpanProcessor, readers: Iterable[MetricReader]
    ) -> None:
        """Send nothing yet.

        Args:
            service_name: of the resource.
            sample_ratio: share of the traces that begin here which are kept; those that begin elsewhere are kept as
                was decided there.
            processor: takes ended spans.
            readers: of the metrics.
        """
        resource = Resource.create({"service.name": service_name, "service.version": __version__})
        self._spans = TracerProvider(sampler=ParentBased(TraceIdRatioBased(sample_ratio)), resource=resource)
        self._spans.add_span_processor(processor)
        self._metrics = MeterProvider(metric_readers=list(readers), resource=resource)
        self.instruments = _Instruments(self._metrics)
        self.tracer = self._spans.get_tracer("headgate", __version__, schema_url=genai.SCHEMA_URL)

    def begin(self, endpoint: str, headers: Mapping[str, str]) -> Trace | None:
        """The trace of a request that came now; None for what is no operation. `headers` may name its parent."""
        operation = genai.OPERATIONS.get(endpoint)
        if operation is None:
            return None
        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        parent = _PROPAGATOR.extract(carrier) if carrier else Context()
        return Trace(self, operation, endpoint, parent)

    def close(self) -> None:
        """Send what waits; takes some seconds where nobody takes it."""
        self._spans.shutdown()
        self._metrics.shutdown(timeout_millis=1000)


class Trace:
    """Of one request, from its arrival to its end."""

    def __init__(
        self, tracing: Tracing, operation: str, endpoint: str, parent: Context, kind: SpanKind = SpanKind.SERVER
    ) -> None:
        self.tracing = tracing
        self.operation = operation
        self._endpoint = endpoint
        self._began_ns = time.time_ns()
        self._span = tracing.tracer.start_span(operation, parent, kind, start_time=self._began_ns)
        self._model = ""

    @property
    def recording(self) -> bool:
        """Whether anybody will see the span."""
        return self._span.is_recording()

    @property
    def context(self) -> Context:
        """For what is done on its behalf."""
        return set_span_in_context(self._span, Context())

    def goes_on(self) -> Trace:
        """The trace of what is done for the request when it has its reply: below its own span, and of its own end."""
        return Trace(self.tracing, self.operation, self._endpoint, self.context, SpanKind.INTERNAL)

    def asked(self, request: ChatRequest) -> None:
        """What was asked, without its content."""
        self._model = request.model
        if not self.recording:
            return
        sampling = request.sampling
        chosen: dict[str, AttributeValue | None] = {
            genai.OUTPUT_TYPE: "text" if request.response_format.type == "text" else "json",
            genai.CONVERSATION: request.session,
            genai.REQUEST_MODEL: request.model,
            genai.REQUEST_STREAM: request.stream,
            genai.REQUEST_MAX_TOKENS: request.max_tokens,
            genai.REQUEST_TEMPERATURE: sampling.temperature,
            genai.REQUEST_TOP_P: sampling.top_p,
            genai.REQUEST_SEED: sampling.seed,
            genai.REQUEST_STOP: request.stop or None,
            genai.REQUEST_CHOICES: request.n if request.n > 1 else None,
            genai.REQUEST_FREQUENCY_PENALTY: sampling.frequency_penalty or None,
            genai.REQUEST_PRESENCE_PENALTY: sampling.presence_penalty or None,
            genai.OPENAI_REQUEST_TIER: "flex" if request.priority == "background" else None,
        }
        self._span.set_attributes({name: value for name, value in chosen.items() if value is not None})

    def answered(self, finishes: Sequence[str]) -> None:
        """Why each choice ended."""
        if finishes and self.recording:
            self._span.set_attribute(genai.RESPONSE_FINISH_REASONS, list(finishes))

    def said(self, content: Mapping[str, object]) -> None:
        """What was asked and answered, by attribute: only for teams that want it."""
        if self.recording:
            self._span.set_attributes({name: msgspec.json.encode(value).decode() for name, value in content.items()})

    def attempt(self, model: str, upstream_model: str, address: str, port: int) -> Attempt:
        """Another server is asked on its behalf from now on."""
        attributes: Attributes = {
            genai.OPERATION: self.operation,
            genai.PROVIDER: "openai",
            genai.REQUEST_MODEL: upstream_model,
            genai.SERVER_ADDRESS: address,
            genai.SERVER_PORT: port,
        }
        span = self.tracing.tracer.start_span(
            f"{self.operation} {upstream_model}",
            self.context,
            SpanKind.CLIENT,
            {**attributes, "headgate.upstream": model},
        )
        return Attempt(self.tracing.instruments, span, attributes)

    def end(self, record: RequestRecord) -> None:
        """The request has ended."""
        self._measure(record)
        if not self.recording:
            return
        span, ended_ns = self._span, self._began_ns + int(record.total_s * 1e9)
        if record.model:
            span.update_name(f"{self.operation} {record.model}")
        span.set_attributes(
            {name: value for name, value in self._told(record).items() if value is not None and value != ""}
        )
        if record.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        for stage in _stages(record):
            child = self.tracing.tracer.start_span(
                stage.name, self.context, start_time=self._began_ns + int(stage.start_s * 1e9)
            )
            child.end(self._began_ns + int(stage.end_s * 1e9))
        span.end(ended_ns)

    def _told(self, record: RequestRecord) -> dict[str, AttributeValue | None]:
        opened = record.opened
        return {
            genai.OPERATION: self.operation,
            genai.PROVIDER: _PROVIDER,
            genai.OPENAI_API: genai.OPENAI_APIS.get(self._endpoint),
            genai.HTTP_ROUTE: self._endpoint,
            genai.HTTP_STATUS: record.status,
            genai.ERROR_TYPE: _error(record),
            genai.RESPONSE_ID: record.reply_id,
            genai.RESPONSE_MODEL: record.model,
            genai.RESPONSE_FIRST_CHUNK: record.first_token_s if record.stream else None,
            genai.OPENAI_RESPONSE_FINGERPRINT: None if opened is None else opened.fingerprint,
            genai.INPUT_TOKENS: record.prompt_tokens or None,
            genai.OUTPUT_TOKENS: record.completion_tokens or None,
            genai.CACHE_READ_TOKENS: record.cached_tokens or None,
            genai.REASONING_TOKENS: record.reasoning_tokens or None,
            "headgate.request.id": record.request_id,
            "headgate.team": record.team,
            "headgate.key": record.key_id,
            "headgate.config": record.config,
            "headgate.route": record.route,
            "headgate.cache.verdict": record.verdict,
            "headgate.cache.similarity": None if opened is None else opened.similarity,
            "headgate.queue_s": record.queue_s or None,
            "headgate.cost_usd": record.cost.nano_usd / 1e9,
        }

    def _measure(self, record: RequestRecord) -> None:
        kinds = self.tracing.instruments
        attributes: Attributes = {genai.OPERATION: self.operation, genai.PROVIDER: _PROVIDER}
        if record.model:
            # What was asked for is a name that is configured then; otherwise it may be anything.
            attributes |= {genai.REQUEST_MODEL: self._model or record.model, genai.RESPONSE_MODEL: record.model}
        # An upstream's own codes are of no fixed list.
        error = str(record.status) if record.status >= 400 else None
        kinds.duration.record(record.total_s, attributes if error is None else {**attributes, genai.ERROR_TYPE: error})
        if error is not None:
            return
        for kind, count in (("input", record.prompt_tokens), ("output", record.completion_tokens)):
            if count:
                kinds.tokens.record(count, {**attributes, genai.TOKEN_TYPE: kind})
        if record.first_token_s is not None:
            kinds.first.record(record.first_token_s, attributes)
            if record.completion_tokens > 1:
                each_s = (record.total_s - record.first_token_s) / (record.completion_tokens - 1)
                kinds.each.record(each_s, attributes)


@dataclass(slots=True)
class Attempt:
    """One request to another server."""

    instruments: _Instruments
    span: Span
    attributes: Attributes
    began_s: float = 0.0
    last_s: float | None = None

    def __post_init__(self) -> None:
        self.began_s = time.monotonic()

    @property
    def headers(self) -> dict[str, str]:
        """Which tell the server whose child its own span is."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(self.span, Context()))
        return carrier

    def heard(self) -> None:
        """A piece of the answer came."""
        now, before = time.monotonic(), self.last_s
        self.last_s = now
        if before is None:
            self.instruments.asked_first.record(now - self.began_s, self.attributes)
        else:
            self.instruments.asked_each.record(now - before, self.attributes)

    def end(self, error: str | None) -> None:
        """It has ended: None where the answer is whole, else what kind of failure it was."""
        attributes = self.attributes
        if error is not None:
            attributes = {**attributes, genai.ERROR_TYPE: error}
            self.span.set_attribute(genai.ERROR_TYPE, error)
            self.span.set_status(Status(StatusCode.ERROR))
        self.instruments.asked.record(time.monotonic() - self.began_s, attributes)
        self.span.end()


def _error(record: RequestRecord) -> str | None:
    """What went wrong, in few words: the error's code, else the status."""
    if record.status < 400:
        return None
    return str(record.status) if record.error is None else record.error


@dataclass(frozen=True, slots=True)
class _Stage:
    """From when to when, in seconds since the request came."""

    name: str
    start_s: float
    end_s: float


def _stages(record: RequestRecord) -> Iterator[_Stage]:
    """Those that the request came to: admit, cache, route, generate. What others did for it is not among them."""
    total, opened = record.total_s, record.opened
    admitted = total if record.admitted_s is None else record.admitted_s
    yield _Stage("admit", 0.0, admitted)
    if record.admitted_s is None or opened is None:
        return
    at = admitted
    for name, took_s in (("cache", opened.looked_s), ("route", opened.planned_s)):
        if took_s is not None:
            end = min(at + took_s, total)
            yield _Stage(name, at, end)
            at = end
    if opened.age_s is None:
        yield _Stage("generate", at, total)
