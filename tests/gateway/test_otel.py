"""Spans and metrics by OpenTelemetry: what they say, whose children they are, and what a lost collector costs."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from gateway_site import forget_environment, site
from passing_upstream import SOUND, PassingUpstream, answering, passing_upstream, then
from team_files import key, write_team
from upstream_server import FakeUpstream, upstream_server

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from headgate.gateway.parts import StartError
from headgate.gateway.telemetry.tracing import genai
from headgate.gateway.telemetry.tracing.otel import Tracing
from headgate.gateway.telemetry.tracing.span_queue import SpanQueue

CHAT = "/v1/chat/completions"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ASK: dict[str, Any] = {
    "model": "auto",
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "call ann@b.de"}],
    "max_tokens": 4, "temperature": 0.5, "seed": 7, "stop": ["#"],
}  # fmt: skip


class Seen:
    """Spans and metrics of a server, in memory."""

    def __init__(self, ratio: float = 1.0) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracing = Tracing("test", ratio, SimpleSpanProcessor(self.exporter), [self.reader])

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self, name: str) -> dict[str, Any]:
        """Points of a metric by what tells them apart here."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        return {str(p.attributes.get("gen_ai.token.type", "")): p for m in metrics for p in m.data.data_points}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    forget_environment(monkeypatch)
    found = Seen()
    monkeypatch.setattr("headgate.gateway.app.open_tracing", lambda *_: found.tracing)
    return found


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def own(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


async def test_a_request_is_a_span_with_its_stages(
    seen: Seen, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("red", "full"), ("blue", "redacted"), ("grey", "off")):
        monkeypatch.setenv(f"{name.upper()}_KEY", f"secret-of-{name}")
        write_team(tmp_path, name, key(name), logging={"content": content})
    spans: dict[str, dict[str, ReadableSpan]] = {}
    async with site(tiny_checkpoint, teams=tmp_path, logging={"access": "off"}) as client:
        for name in ("red", "blue", "grey"):
            head = {
                "Authorization": f"Bearer secret-of-{name}",
                "traceparent": TRACEPARENT,
                "x-request-id": f"{name}-1",
            }
            reply = await client.post(CHAT, json=ASK, headers=head)
            body = await reply.json()
            spans[name] = seen.spans()
            seen.exporter.clear()
        await client.post(CHAT, json=ASK, headers=head | {"traceparent": TRACEPARENT[:-2] + "00"})
        assert not seen.spans(), "whose parent is not kept is not kept"
        await client.post(CHAT, json={**ASK, "model": "nobody"}, headers=head)
        await client.get("/v1/models", headers=head)
        refused = seen.spans()

    root = spans["grey"][f"chat {reply.headers['x-headgate-model']}"]
    assert (root.kind, parent(root), f"{root.context.trace_id:032x}") == (SpanKind.SERVER, PARENT, TRACE)
    said = told(root)
    expected = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "auto", "gen_ai.request.max_tokens": 4,
        "gen_ai.request.temperature": 0.5, "gen_ai.request.seed": 7, "gen_ai.request.stop_sequences": ("#",),
        "gen_ai.request.stream": False, "gen_ai.output.type": "text", "openai.api.type": "chat_completions",
        "gen_ai.response.id": body["id"],
        "gen_ai.response.model": reply.headers["x-headgate-model"],
        "gen_ai.response.finish_reasons": (body["choices"][0]["finish_reason"],),
        "gen_ai.usage.input_tokens": body["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": body["usage"]["completion_tokens"],
        "openai.response.system_fingerprint": body["system_fingerprint"],
        "http.response.status_code": 200, "headgate.team": "grey", "headgate.request.id": "grey-1",
        "headgate.cache.verdict": "miss", "headgate.route": reply.headers["x-headgate-route"],
    }  # fmt: skip
    assert {name: said.get(name) for name in expected} == expected
    assert "error.type" not in said
    stages = [spans["grey"][name] for name in ("admit", "cache", "route", "generate")]
    assert all(parent(stage) == own(root) for stage in stages)
    ends = [root.start_time, *(t for s in stages for t in (s.start_time, s.end_time)), root.end_time]
    assert ends == sorted(ends, key=lambda at: at or 0), "one after the other, within the request"

    assert not [name for name in said if name.endswith((".messages", ".system_instructions"))]
    full, redacted = (told(spans[team][root.name]) for team in ("red", "blue"))
    assert json.loads(full["gen_ai.system_instructions"]) == [{"type": "text", "content": "be brief"}]
    part = {"type": "text", "content": "call ann@b.de"}
    assert json.loads(full["gen_ai.input.messages"]) == [{"role": "user", "parts": [part]}]
    assert "ann@b.de" not in redacted["gen_ai.input.messages"]
    assert "[email]" in redacted["gen_ai.input.messages"]
    (answer,) = json.loads(full["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", body["choices"][0]["finish_reason"])

    assert set(refused) == {"chat", "admit"}, "a name that nobody knows names no span"
    assert told(refused["chat"])["error.type"] == "model_not_found"
    usage = seen.points("gen_ai.client.token.usage")
    assert usage["input"].explicit_bounds == tuple(4.0**i for i in range(14))
    assert usage["output"].sum >= body["usage"]["completion_tokens"]
    assert seen.points("gen_ai.server.request.duration")[""].explicit_bounds[-1] == 81.92
    for name in ("gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"):
        assert seen.points(name)


@pytest.mark.parametrize("streams", [False, True])
async def test_an_upstream_is_asked_in_a_span_of_its_own(seen: Seen, streams: bool) -> None:
    async with upstream_server() as fake, asking(fake) as client:
        reply = await client.post(CHAT, json={**ASK, "model": "up", "stream": streams})
        await reply.read()
    spans = seen.spans()
    server, asked = spans["chat up"], spans["chat their-model"]
    assert asked.kind is SpanKind.CLIENT
    assert parent(asked) == own(server)
    assert fake.headers[0]["traceparent"][:-2] == f"00-{server.context.trace_id:032x}-{own(asked)}-"
    assert told(asked)["server.address"] == "127.0.0.1"
    assert "error.type" not in told(asked)
    assert seen.points(genai.CLIENT_DURATION)[""].count == 1
    assert seen.points(genai.CLIENT_FIRST_CHUNK)[""].count == 1
    assert ("gen_ai.response.time_to_first_chunk" in told(server)) is streams


async def test_what_is_passed_on_to_an_upstream_is_asked_in_a_span_too(seen: Seen) -> None:
    async with passing_upstream() as fake, asking(fake, serves=["speech"]) as client:
        fake.script = then(answering(503), None)(fake)
        reply = await client.post("/v1/audio/speech", json={"model": "up", "input": "hi"})
        assert await reply.read() == SOUND
    spans = seen.exporter.get_finished_spans()
    failed, asked, server = (span for span in spans if span.name.startswith("speech"))
    assert (asked.kind, parent(asked), parent(failed)) == (SpanKind.CLIENT, own(server), own(server))
    assert fake.asked[1].headers["traceparent"][:-2] == f"00-{server.context.trace_id:032x}-{own(asked)}-"
    assert (told(failed)["error.type"], told(server)["gen_ai.response.model"]) == ("overloaded", "up")
    assert "error.type" not in told(asked)
    assert server.name == "speech up"


async def test_a_response_that_is_made_in_the_background_has_a_span_and_a_line_of_its_own(seen: Seen) -> None:
    body = {"model": "up", "input": "hi", "background": True, "stream": True}
    async with upstream_server() as fake, asking(fake) as client:
        reply = await client.post("/v1/responses", json=body)
        assert b"response.completed" in await reply.read()
        lines = (await (await client.get("/admin/requests")).json())["requests"]
        (made,) = (line for line in lines if line["endpoint"] == "/v1/responses (background)")
        explained = await (await client.get(f"/admin/requests/{made['id']}")).json()
    assert (made["status"], made["model"], made["stream"]) == (200, "up", True)
    assert [stage["name"] for stage in explained["stages"]][:3] == ["admit", "route", "prompt"]
    spans = seen.spans()
    asked, work, attempt = spans["chat"], spans["chat up"], spans["chat their-model"]
    assert (asked.kind, work.kind) == (SpanKind.SERVER, SpanKind.INTERNAL)
    assert (parent(work), parent(attempt)) == (own(asked), own(work))
    said = told(work)
    assert (said["headgate.request.id"], said["gen_ai.request.model"]) == (made["id"], "up")
    assert said["gen_ai.usage.output_tokens"] == explained["request"]["completion_tokens"] > 0
    assert "gen_ai.response.model" not in told(asked)


async def test_what_an_upstream_does_wrong_is_the_error_of_its_span(seen: Seen) -> None:
    async def busy(_: web.Request, __: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "later"}}, status=503)

    async with upstream_server() as fake, asking(fake, retries={"most": 1, "first_wait_s": 0.001}) as client:
        fake.script = busy
        assert (await client.post(CHAT, json={**ASK, "model": "up"})).status == 503
    attempts = [span for span in seen.exporter.get_finished_spans() if span.kind is SpanKind.CLIENT]
    assert [told(span)["error.type"] for span in attempts] == ["overloaded", "overloaded"]
    (server,) = [span for span in seen.exporter.get_finished_spans() if span.kind is SpanKind.SERVER]
    assert told(server)["error.type"] == "upstream_overloaded"
    assert not server.status.is_ok


@asynccontextmanager
async def asking(fake: FakeUpstream | PassingUpstream, **section: Any) -> AsyncIterator[TestClient[Any, Any]]:
    upstream = {"id": "up", "base_url": fake.url, "model": "their-model", **section}
    async with site(Path("unused"), models=[], upstreams=[upstream], logging={"access": "off"}) as client:
        yield client


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, dict[str, list[Any]]]]:
    """A collector of OTLP over HTTP, and what it was sent."""
    sent: dict[str, list[Any]] = {"spans": [], "metrics": [], "tokens": []}

    async def traces(http: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await http.read())
        sent["tokens"].append(http.headers.get("x-token"))
        sent["spans"] += [s for r in message.resource_spans for scope in r.scope_spans for s in scope.spans]
        return web.Response()

    async def metrics(http: web.Request) -> web.Response:
        message = ExportMetricsServiceRequest.FromString(await http.read())
        sent["metrics"] += [m for r in message.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", traces)
    app.router.add_post("/v1/metrics", metrics)
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}", sent


async def test_a_collector_is_sent_spans_and_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("TOKEN", "of-the-collector")
    async with collector() as (url, sent), upstream_server() as fake:
        otel = {"enabled": True, "endpoint": url, "headers": {"x-token": "env:TOKEN"}}
        upstream = {"id": "up", "base_url": fake.url, "model": "their-model"}
        async with site(Path("unused"), models=[], upstreams=[upstream], telemetry={"otel": otel}) as client:
            assert (await client.post(CHAT, json={**ASK, "model": "up"})).status == 200
            page = await (await client.get("/metrics")).text()
            assert 'headgate_otel_spans_total{result="dropped"} 0.0' in page
    assert {span.name for span in sent["spans"]} == {
        "chat up",
        "chat their-model",
        "admit",
        "cache",
        "route",
        "generate",
    }
    assert {metric.name for metric in sent["metrics"]} >= {genai.CLIENT_TOKENS, genai.SERVER_DURATION}
    assert sent["tokens"] == ["of-the-collector"]


class Away(SpanExporter):
    """Nobody takes what it sends."""

    def __init__(self, fails: Callable[[], SpanExportResult]) -> None:
        self.fails = fails

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002  the SDK names it
        return self.fails()


def raising() -> SpanExportResult:
    raise ConnectionError("nobody there")


@pytest.mark.parametrize("fails", [raising, lambda: SpanExportResult.FAILURE])
def test_a_lost_collector_costs_spans_and_one_line(
    fails: Callable[[], SpanExportResult], caplog: pytest.LogCaptureFixture
) -> None:
    queue = SpanQueue(Away(fails), most=3)
    tracing = Tracing("test", 1.0, queue, [])
    for _ in range(5):
        tracing.tracer.start_span("one").end()
    assert queue.dropped == 2, "three may wait"
    queue.force_flush()
    tracing.tracer.start_span("one").end()
    tracing.close()
    assert (queue.sent, queue.dropped) == (0, 6)
    assert len(caplog.messages) == 1


async def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartError, match=r"pip install 'headgate\[otel\]'"):
        async with site(Path("unused"), telemetry={"otel": {"enabled": True}}):
            raise AssertionError("not reached")


async def test_a_header_that_refers_to_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    otel = {"enabled": True, "headers": {"authorization": "env:NOT_SET"}}
    with pytest.raises(StartError, match=r"telemetry\.otel\.headers: the variable NOT_SET is not set"):
        async with site(Path("unused"), telemetry={"otel": otel}):
            raise AssertionError("not reached")


def test_names_are_those_of_the_conventions() -> None:
    """As far as the SDK's own list of them still has them."""
    attributes = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    metrics = pytest.importorskip("opentelemetry.semconv._incubating.metrics.gen_ai_metrics")
    openai = pytest.importorskip("opentelemetry.semconv._incubating.attributes.openai_attributes")
    known = {
        value for module in (attributes, metrics, openai) for value in vars(module).values() if isinstance(value, str)
    }
    ours = {
        value for value in vars(genai).values() if isinstance(value, str) and value.startswith(("gen_ai.", "openai."))
    }
    assert ours <= known
