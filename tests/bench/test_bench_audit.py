"""The measurement of the audits' labels: thresholds, rates, and the command on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.bench.cache.audit import Pair, rates, thresholds
from headgate.bench.cli import bench
from headgate.cache.audits.labels import KINDS, Calibration, Rate, load_calibration

SENTENCE, OTHER = "one two three four five", "six seven eight nine ten"


def pair(same: bool, logprob: float, *, identical: bool = False, right: bool = True, form: bool | None = None) -> Pair:
    cached, generated = {None: (SENTENCE, OTHER), True: ("1", "1"), False: ("1", "2")}[form]
    return Pair("f", "?", same, right, identical, cached, generated, logprob, 0.1, 0.2)


def test_thresholds_are_the_boldest_that_err_in_one_percent() -> None:
    different = [pair(False, -1.0 - number / 100) for number in range(200)]
    same = [pair(True, -0.01 * number) for number in range(200)]
    # Where form says the same, or the cached answer was wrong from the start, likelihood is not asked.
    noise = [pair(False, -0.001, form=True), pair(True, -50.0, form=True), pair(True, -60.0, right=False)]
    right_from, wrong_below = thresholds([*different, *same, *noise])
    assert sum(p.mean_logprob >= right_from for p in different) == 2
    assert sum(p.mean_logprob < wrong_below for p in same) == 2
    with pytest.raises(ValueError, match="all of one kind"):
        thresholds(same)


def test_rates_count_each_labellers_errors() -> None:
    unknown = {kind: Rate(0, 0, 1.0) for kind in (*KINDS, "any")}
    made = Calibration(1, "m", "d", "c", -0.5, -2.0, unknown, unknown)
    pairs = [
        pair(False, -9.0, identical=True),
        pair(False, -9.0, form=True),
        pair(False, -0.1),
        pair(False, -9.0),
        pair(False, -0.1, identical=True, right=False),
        pair(True, -9.0, form=False),
        pair(True, -1.0, form=False),
        pair(True, -0.1, form=False, right=False),
    ]
    accepted = {kind: (r.errors, r.pairs) for kind, r in rates(pairs, made, same=False).items()}
    assert accepted == {"identical": (1, 4), "canonical": (1, 4), "likelihood": (1, 4), "any": (3, 4)}
    rejected = {kind: (r.errors, r.pairs) for kind, r in rates(pairs, made, same=True).items()}
    assert rejected == {"identical": (0, 2), "canonical": (2, 2), "likelihood": (1, 2), "any": (1, 2)}


def test_the_command_measures_and_writes_what_the_cache_can_load(tmp_path: Path) -> None:
    calibration, figures = tmp_path / "labels.json", tmp_path / "figures.json"
    arguments = ["audit", "--model", "small", "--triples", "12", "--threads", "1"]
    result = CliRunner().invoke(bench, [*arguments, "--write", str(calibration), "--json", str(figures)])
    assert result.exit_code == 0, result.output
    assert "24 pairs" in result.output
    made = load_calibration(calibration)
    assert made.command == "headgate bench audit --model small --triples 12 --seed 0"
    written = json.loads(figures.read_bytes())
    assert [row["label"] for row in written["rows"]] == [*KINDS, "any"]
    assert written["rows"][3]["different"]["right"] == made.false_accept["any"].errors
    assert written["cost"]["score_s"] > 0


def test_a_model_that_is_none_is_refused() -> None:
    assert "neither small nor large" in CliRunner().invoke(bench, ["audit", "--model", "gone"]).output
