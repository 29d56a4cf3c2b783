"""Real gateways on a real Redis, as the command runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.bench.cli import bench


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not on the PATH")
def test_answers_are_shared_and_a_killed_redis_fails_nobody(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = CliRunner().invoke(bench, ["redis", "--pairs", "2", "--seconds", "3", "--clients", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())
    assert len(figures["sharing"]["exact"]) == 2
    assert len(figures["sharing"]["semantic"]) + figures["sharing"]["unserved"] == 2
    phases = figures["faults"]["phases"]
    assert list(phases) == ["before", "killed", "restarted"]
    assert all(phase["failed"] == {} for phase in phases.values()), "no request may fail"
    assert phases["before"]["seconds"]
    assert figures["faults"]["settled_s"] is not None, "the indexes hold what Redis holds"
    assert set(figures["faults"]["indexed"]) == {figures["faults"]["stored"]}
    assert "Redis killed and restarted empty" in done.output


def test_without_redis_the_command_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    done = CliRunner().invoke(bench, ["redis"])
    assert done.exit_code == 1
    assert "redis-server is not on the PATH" in done.output
