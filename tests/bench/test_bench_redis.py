"""Real gateways on a real Redis, as the command runs them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.bench.cli import bench
from headgate.bench.redis.measure import Site, shown


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not on the PATH")
def test_answers_are_shared_and_a_killed_redis_fails_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SERVER__PORT", "of the user's own gateway")
    file = tmp_path / "figures.json"
    done = CliRunner().invoke(bench, ["redis", "--pairs", "2", "--seconds", "3", "--clients", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())
    assert len(figures["sharing"]["exact"]) + figures["sharing"]["unserved_exact"] == 2
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


class Forgetful(Site):
    """Gateways of which one serves nothing that the other stored."""

    def __init__(self, status: int) -> None:
        self.urls = ("first", "second")
        self._status = status

    async def ask(self, url: str, text: str, **headers: str) -> tuple[int, str]:  # noqa: ARG002
        """Stored by the first, missed by the second."""
        return (self._status, "miss") if url == "first" else (504, "miss")


def test_what_is_not_served_has_no_time() -> None:
    found = asyncio.run(shown(Forgetful(200), 1))
    assert (found.exact, found.semantic) == ((), ())
    assert (found.unserved_exact, found.unserved) == (1, 1)


def test_a_gateway_that_does_not_answer_ends_it() -> None:
    with pytest.raises(RuntimeError, match=r"capital of France.* with 503"):
        asyncio.run(shown(Forgetful(503), 1))
