"""What `headgate bench proxy` counts: whole replies, events of streams in whatever pieces, medians."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.bench.cli import bench
from headgate.bench.proxy.command import DIRECT, OURS, Figures, figures_of, table_of
from headgate.bench.proxy.entrants import INSTALL
from headgate.bench.proxy.mock import FLOOD_EVENTS
from headgate.bench.serving.http_load import Load, Request, cores, load
from headgate.bench.serving.servers import announced


def test_every_event_of_a_stream_is_counted(tmp_path: Path) -> None:
    _, core = cores()
    with announced([sys.executable, "-m", "headgate.bench.proxy.mock"], tmp_path / "log", core) as server:
        for model, events in (("fixed", 4), ("flood", FLOOD_EVENTS + 3)):
            body = json.dumps({"model": model, "stream": True}).encode()
            run = load(server, core, 2, 0.01, Request("/v1/chat/completions", {}, body))
            assert run.requests >= 2
            assert run.events == run.requests * events
            assert len(run.firsts) == run.requests
        whole = load(server, core, 2, 0.01, Request("/v1/chat/completions", {}, b'{"model": "fixed"}'))
        assert (whole.events, whole.firsts) == (0, ())


def test_figures_are_medians_and_what_failed_is_said() -> None:
    runs = [Load(100, seconds, (0.001, 0.002, 0.003), 0.05, 400, (0.02, 0.03, 0.04)) for seconds in (1.0, 2.0, 4.0)]
    figures = figures_of({"whole": runs, "single": runs, "flood": runs})
    assert (figures.per_second, figures.p50_ms, figures.chunks_per_second) == (50.0, 2.0, 200.0)
    assert figures.cpu_ms == pytest.approx(0.5)
    assert figures.chunk_cpu_us == pytest.approx(125.0)
    assert figures.first_ms is None
    table = table_of({DIRECT: Figures(p50_ms=0.5), OURS: figures})
    assert [list(column.cells) for column in table.columns] == [
        [OURS], ["50"], ["0.500 ms"], ["1.50 ms"], ["200"], ["125.0 µs"], ["failed"],
    ]  # fmt: skip


def test_who_is_not_there_is_told_with_the_whole_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Load(1, 1.0, (0.001,), 0.001, 1, (0.001,))
    monkeypatch.setattr("headgate.bench.proxy.command.load", lambda *_: run)
    done = CliRunner().invoke(bench, ["proxy", "--rounds", "1", "--peers", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    for _, command in INSTALL.values():
        assert f"  cd {tmp_path} && {command}\n" in done.output
