"""The last minutes as the page draws them, over a registry of a test's own and its clock."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import Metric

from headgate.gateway.dashboard.history import FIRST_TOKEN, INTER_TOKEN, INTERVAL_S, KEPT, History, counts_of
from headgate.gateway.dashboard.traces import Traces, outcome
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.metrics.snapshot import Buckets, Reading
from headgate.gateway.telemetry.record import RequestRecord

RECORD = RequestRecord("id", "/v1/chat/completions", team="red", model="m", verdict="miss", status=200, total_s=0.5)


class Watched:
    """A history whose clock only goes on by `tick`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.metrics, self.traces = Metrics(), Traces(10, lambda: self.now)
        self.history = History(self.metrics.registry, self.traces, {}, lambda: 3, lambda: self.now, lambda: self.now)

    def ended(self, record: RequestRecord = RECORD, first_token_s: float = 0.02) -> None:
        record = replace(record, first_token_s=first_token_s)
        self.metrics.generated(record.model, 10, 4, 0, 0.0)
        self.metrics.finished(record)
        self.traces.ended(record)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += INTERVAL_S
            self.history.take()


def test_a_point_tells_the_rates_since_the_one_before() -> None:
    watched = Watched()
    for status in (200, 400, 429, 499, 503):
        watched.ended(replace(RECORD, status=status))
    watched.tick(2)
    first, second = watched.history.since(0)
    assert (first.requests_s, first.refused_s, first.failed_s) == (2.5, 1.0, 0.5)
    assert (first.prompt_tokens_s, first.generated_tokens_s, first.in_flight) == (25.0, 10.0, 3)
    assert (second.requests_s, second.generated_tokens_s, second.at) == (0.0, 0.0, 2 * INTERVAL_S)


@pytest.mark.parametrize(
    ("status", "end"), [(0, "running"), (200, "ok"), (400, "refused"), (429, "refused"), (499, "left"), (500, "failed")]
)
def test_a_request_is_listed_as_what_it_counts_as(status: int, end: str) -> None:
    traces, record = Traces(most=1), replace(RECORD, status=status)
    assert outcome(record) == end
    traces.ended(record)
    assert (traces.refused, traces.failed) == (int(end == "refused"), int(end == "failed"))


def test_percentiles_are_of_the_last_minute_and_none_where_nothing_was_observed() -> None:
    watched = Watched()
    watched.tick()
    watched.ended(first_token_s=0.02)
    watched.tick(30)
    none, *with_it = watched.history.since(0)
    assert none.first_token_p50 is None
    assert all(point.first_token_p99 == pytest.approx(0.0199) for point in with_it)
    watched.tick(2)
    assert watched.history.since(0)[-1].first_token_p50 is None


def test_only_points_that_are_new_are_given_and_the_oldest_leave() -> None:
    watched = Watched()
    watched.tick(5)
    assert [point.at for point in watched.history.since(3)] == [4 * INTERVAL_S, 5 * INTERVAL_S]
    assert watched.history.since(5) == []
    assert len(watched.history.since(900)) == 5, "whoever counts further saw a server before this one"
    watched.tick(KEPT)
    assert len(watched.history.since(0)) == len(watched.history.since(2)) == KEPT


class Labels(dict[str, str]):
    """Labels that count how often one of all of them is looked at."""

    looks = 0

    def __getitem__(self, name: str) -> str:
        Labels.looks += 1
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        Labels.looks += 1
        return super().get(name, default)


def test_a_point_takes_no_longer_for_each_model_where_there_are_many() -> None:
    def looks(models: int) -> int:
        family = Metric("all", "", "untyped")
        for number in range(models):
            labels = {"model": f"m-{number}", "source": "computed"}
            family.add_sample("headgate_generation_tokens_total", Labels(labels), 4.0)
            for bound in ("0.1", "+Inf"):
                for name in (FIRST_TOKEN, INTER_TOKEN):
                    family.add_sample(f"{name}_bucket", Labels({**labels, "le": bound}), 1.0)
        Labels.looks = 0
        counts = counts_of(Reading([family]), Traces(1), 0.0)
        assert len(counts.generated_tokens) == len(counts.first_token) == len(counts.inter_token) == models
        assert counts.inter_token["m-0"] == Buckets((0.1, math.inf), (1.0, 1.0))
        return Labels.looks

    assert looks(40) == 40 * looks(1)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_quantiles_lie_in_the_bucket_of_the_value_they_are_of(values: list[float], share: float) -> None:
    registry = CollectorRegistry()
    histogram = Histogram("h", "", ("of",), buckets=(0.1, 0.5, 1.0, 2.0), registry=registry)
    for value in values:
        histogram.labels("a").observe(value)
    histogram.labels("b").observe(0.2)
    found = Reading(registry.collect()).buckets_by("h", "of")["a"].quantile(share)
    exact = sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]
    low = max((bound for bound in (0.0, 0.1, 0.5, 1.0, 2.0) if bound < exact), default=0.0)
    high = min((bound for bound in (0.1, 0.5, 1.0, 2.0) if bound >= exact), default=2.0)
    assert found is not None
    assert low <= found + 1e-9
    assert found <= high + 1e-9


def test_a_quantile_is_what_prometheus_says() -> None:
    # histogram_quantile(0.5, …) and (0.9, …) of these buckets, by promtool's test of rules.
    buckets = Buckets((0.1, 0.5, 1.0, math.inf), (2.0, 6.0, 8.0, 10.0))
    assert buckets.quantile(0.5) == pytest.approx(0.4)
    assert buckets.quantile(0.9) == 1.0
    assert Buckets((1.0, math.inf), (0.0, 0.0)).quantile(0.5) is None
    assert buckets.since(Buckets((0.1, 0.5, 1.0, math.inf), (2.0, 2.0, 2.0, 2.0))).counts == (0.0, 4.0, 6.0, 8.0)


def test_requests_that_run_come_first_and_show_where_they_are() -> None:
    now = 100.0
    traces = Traces(10, lambda: now, lambda: now)
    done = replace(RECORD, request_id="done", arrived=90.0)
    running = replace(RECORD, request_id="running", arrived=99.0, status=0, total_s=0.0, admitted_s=0.25)
    for record in (done, running):
        traces.begun(record)
    traces.ended(done)
    lines = list(traces.lines(lambda _: True, 10))
    assert [(line.id, line.status, line.total_s, line.at) for line in lines] == [
        ("running", None, 1.0, 99.0), ("done", 200, 0.5, 99.5),
    ]  # fmt: skip
    found = traces.find("running")
    assert found is not None
    assert [(s.name, s.begin_s, s.end_s) for s in found.stages] == [("admit", 0.0, 0.25), ("deciding", 0.25, 1.0)]
    assert (len(traces), traces.requests) == (1, 1)


def test_the_oldest_requests_leave_when_there_is_no_room() -> None:
    traces = Traces(3, lambda: 100.0, lambda: 100.0)
    for number in range(5):
        record = replace(RECORD, request_id=str(number))
        traces.begun(record)
        traces.ended(record)
    assert [line.id for line in traces.lines(lambda _: True, 10)] == ["4", "3", "2"]
    assert (len(traces), traces.requests, traces.find("1")) == (3, 5, None)


@pytest.mark.parametrize(
    ("status", "admitted_s", "stages"),
    [
        (200, None, ["reply"]),
        (429, None, ["admit"]),
        (0, None, ["admit"]),
        (200, 0.1, ["admit", "answer"]),
        (503, 0.1, ["admit", "failed"]),
    ],
)
def test_what_no_model_was_chosen_for_shows_how_far_it_came(
    status: int, admitted_s: float | None, stages: list[str]
) -> None:
    traces = Traces(10, lambda: 100.0, lambda: 100.0)
    record = replace(RECORD, arrived=99.5, status=status, admitted_s=admitted_s)
    (traces.ended if status else traces.begun)(record)
    found = traces.find(record.request_id)
    assert found is not None
    assert [stage.name for stage in found.stages] == stages
    assert (found.stages[0].begin_s, found.stages[-1].end_s) == (0.0, 0.5)
