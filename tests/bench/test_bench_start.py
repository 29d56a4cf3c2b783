"""`headgate bench start`: a start in a process of its own, timed and weighed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.bench.cli import bench
from headgate.bench.engine.start import Start, start
from headgate.engine.demo import checkpoint


def test_share_leaves_the_libraries_out() -> None:
    assert Start(1.0, 0.5, weights=100, imported=40, resident=150, peak=170).share == 1.3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_starts_are_measured(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("student"), tmp_path / "model"))
    file = tmp_path / "start.json"
    arguments = ["start", "--model", str(folder), "--weights", "int8", "--starts", "1", "--json", str(file)]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(file.read_text())["starts"]
    assert 0 < found["load_s"] < found["first_token_s"]
    assert 0 < found["imported"] < found["resident"] <= found["peak"]
    assert found["weights"] > 1.5e6


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"the engine did not start: (.|\n)*tokenizer\.json: the file is missing"):
        start(tmp_path, "native", None)
