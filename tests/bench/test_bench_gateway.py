"""The figures of `headgate bench gateway`, of runs that are made up."""

from __future__ import annotations

import pytest

from headgate.bench.serving.gateway import figures_of
from headgate.bench.serving.http_load import Load


def test_figures_are_medians_of_runs() -> None:
    latencies = tuple(ms / 1e3 for ms in range(1, 101))
    runs = [Load(1000, seconds, latencies, cpu) for seconds, cpu in ((1.0, 0.2), (2.0, 0.4), (4.0, 0.3))]
    figures = figures_of(runs)
    assert (figures.per_second, figures.least, figures.most) == (500.0, 250.0, 1000.0)
    assert (figures.p50_ms, figures.p99_ms) == (51.0, 100.0)
    assert figures.cpu_ms == pytest.approx(0.3)
