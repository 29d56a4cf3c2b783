"""`headgate bench quality`: its intervals, and that it measures what it says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.bench.cli import bench
from headgate.bench.quality.measure import RANDOM_SHAPES, Format, Losses, change, divergence


def test_change_is_that_of_the_perplexities() -> None:
    baseline = Losses([1.0, 4.0, 2.0], [2, 5, 1])
    worse = Losses([1.2, 4.1, 2.3], [2, 5, 1])
    found = change(worse, baseline)
    assert found.value == pytest.approx(worse.perplexity / baseline.perplexity - 1)
    assert found.value == pytest.approx(math.exp(0.6 / 8) - 1)
    assert found.low < found.value < found.high
    # A resample of one answer alone bounds what can be drawn.
    assert math.expm1(0.1 / 5) - 1e-9 <= found.low
    assert found.high <= math.expm1(0.3 / 1) + 1e-9
    assert change(worse, baseline) == found


def test_equal_losses_have_no_change() -> None:
    same = Losses([1.0, 2.0], [3, 4])
    found = change(same, same)
    assert (found.value, found.low, found.high) == (0, 0, 0)


@pytest.mark.parametrize("other", [Losses([], []), Losses([1.0], [2]), Losses([1.0, 1.0], [3, 5])])
def test_change_wants_the_same_answers(other: Losses) -> None:
    with pytest.raises(ValueError, match="the same answers"):
        change(other, Losses([1.0, 2.0], [3, 4]) if other.tokens else other)


def test_fewer_bits_diverge_further() -> None:
    found = divergence(RANDOM_SHAPES["mixture, hidden 256"], tokens=40)
    native, int8, int4 = (found[Format(fmt)] for fmt in ("native", "int8", "int4"))
    assert 0 < native.kl < int8.kl < int4.kl < 0.5
    assert native.kl < found[Format("native", "int8")].kl < int8.kl
    assert native.agreement > 0.8
    assert all(each.entropy == native.entropy for each in found.values())


def test_the_command_writes_what_it_prints(tmp_path: Path) -> None:
    file = tmp_path / "quality.json"
    result = CliRunner().invoke(bench, ["quality", "--samples", "1", "--answered", "0", "--json", str(file)])
    assert result.exit_code == 0, result.output
    content = json.loads(file.read_text())
    rows = {(row["model"], row["weights"]): row for row in content["demo"]}
    assert len(rows) == 10
    for model in ("student", "teacher"):
        native, int8, int4 = (rows[model, fmt] for fmt in ("native", "int8", "int4"))
        assert f"{int4['perplexity']:.4f}" in result.output
        assert 1 < native["perplexity"] < 2
        assert native["change"]["value"] == 0
        assert abs(int8["change"]["value"]) < 0.02
        assert abs(int4["change"]["value"]) < 0.1
        assert int4["perplexity"] == pytest.approx(native["perplexity"] * (1 + int4["change"]["value"]))
        assert "accuracy" not in native
        parts = content["parts"][model]
        # Nothing but int4's own rounding is in these figures: a part of nothing would be near 0.
        assert parts["attention of the first layer"] > 1e-5
        # Of one text a family the two parts may partly undo each other (0.74 of the larger one was seen).
        assert parts["all"] > 0.5 * max(parts["attention of all layers"], parts["all but attention"])
        assert parts["`weights: int4`"] < 0.8 * parts["all"]
        assert f"{parts['all']:.5f}" in result.output
