"""Plain counts publish, to the byte, what the library's own metrics publish of the same figures."""

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from headgate.gateway.telemetry.metrics.families import CounterFamily, HistogramFamily
from headgate.gateway.telemetry.metrics.tally import Counter, Histogram

BUCKETS = (0.25, 1.0, 4.0)
LABELS = st.tuples(st.sampled_from(["a", "b\n"]), st.sampled_from(["x", 'y"']))
AMOUNTS = st.one_of(st.integers(0, 2**60), st.floats(0, 1e9))
# Bounds themselves and their neighbours among them.
VALUES = st.one_of(st.sampled_from([0.0, 0.25, 1.0, 4.0]), st.floats(0, 8))


@pytest.fixture(autouse=True, scope="module")
def without_creation_times() -> None:
    """As the gateway has the library publish."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


@given(st.lists(st.tuples(LABELS, AMOUNTS)))
def test_counters_say_what_the_library_would(figures: list[tuple[tuple[str, str], float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counter = Counter(CounterFamily("things_total", "Things.", ("one", "two")), ours)
    plain = Counter(CounterFamily("plain_total", "Without labels."), ours)
    library = prometheus_client.Counter("things", "Things.", ["one", "two"], registry=theirs)
    library_plain = prometheus_client.Counter("plain", "Without labels.", registry=theirs)
    for labels, amount in figures:
        counter.add(*labels, by=float(amount))
        plain.of().add()
        library.labels(*labels).inc(amount)
        library_plain.inc()
    assert generate_latest(ours) == generate_latest(theirs)
    assert counter.series().keys() == {labels for labels, _ in figures}


@given(st.lists(st.tuples(LABELS, VALUES)))
def test_histograms_say_what_the_library_would(figures: list[tuple[tuple[str, str], float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram(HistogramFamily("times", "Times.", ("one", "two")), BUCKETS, ours)
    plain = Histogram(HistogramFamily("plain", "Without labels."), BUCKETS, ours)
    library = prometheus_client.Histogram("times", "Times.", ["one", "two"], buckets=BUCKETS, registry=theirs)
    library_plain = prometheus_client.Histogram("plain", "Without labels.", buckets=BUCKETS, registry=theirs)
    for labels, value in figures:
        histogram.of(*labels).observe(value)
        plain.of().observe(value)
        library.labels(*labels).observe(value)
        library_plain.observe(value)
    assert generate_latest(ours) == generate_latest(theirs)
