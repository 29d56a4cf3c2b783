"""The count of task classes: its intervals, its files, and what it says of the classifier that ships."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from headgate.bench.routing.classes import ClassReport, Prompt, measure_classes, print_classes, read_prompts


def test_shares_have_exact_intervals() -> None:
    confusion = {("math", "math"): 9, ("math", "code"): 1, ("code", "code"): 10}
    report = ClassReport("c", "p", confusion, (), 1.0, 2.0)
    assert report.share("code") == (10, 10, pytest.approx(0.6915, abs=1e-4), 1.0)
    right, total, low, high = report.share()
    assert (right, total) == (19, 20)
    assert low == pytest.approx(0.7513, abs=1e-4)
    assert high == pytest.approx(0.9987, abs=1e-4)


def test_a_damaged_file_of_prompts_says_where(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("math\\t\\twhat is 2 + 2\\n".replace("\\t", "\t").replace("\\n", "\n") + "sums\t\t3 + 3\n")
    with pytest.raises(ValueError, match=r"own\.tsv:2: "):
        read_prompts(path)


async def test_the_classifier_that_ships_beats_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("chit_chat\tYou are a parrot.\thello\\nyou\n")
    assert read_prompts(path) == [Prompt("chit_chat", "You are a parrot.", "hello\nyou")]
    reports = await measure_classes([path])
    assert len(reports) == 15
    for set_of_three in (reports[:3], reports[3:6], reports[6:9]):
        head, words, nearest = (report.share()[0] / report.share()[1] for report in set_of_three)
        assert head >= max(words, nearest)
        assert head >= 0.9
    out = io.StringIO()
    print_classes(reports, Console(file=out, width=200))
    assert "prompts_third.tsv" in out.getvalue()
    assert reports[0].figures()["accuracy"]["of"] == 192
