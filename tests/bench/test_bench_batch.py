"""A batch beside a user, as the command runs it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from headgate.bench.cli import bench


def test_a_user_is_timed_with_and_without_a_batch(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ["--model", "small", "--rounds", "1", "--requests", "2", "--new", "4", "--pause", "0"]
    done = CliRunner().invoke(bench, ["batch", *options, "--json", str(file)])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text())
    assert (len(figures["without"]), len(figures["beside"])) == (2, 2)
    assert figures["idle_tokens_s"][0] > 0
    assert "while nobody asks" in done.output
