"""The written groups of questions that the rule is fitted on."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from headgate.bench.cache.fit import draw, of_groups, ranked, written
from headgate.bench.cache.pairs import later_pairs
from headgate.bench.cache.written import LATER, Group, written_groups


def test_a_file_of_groups_is_read(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text(
        "q\tHow big is Mars?\np\tsize of Mars\nn:aspect\tHow old is Mars?\n\nq\tIs it on?\np\tIs it running?\n"
    )
    assert written_groups(tmp_path) == [
        Group("two 0", ("How big is Mars?", "size of Mars"), (("aspect", "How old is Mars?"),)),
        Group("two 1", ("Is it on?", "Is it running?"), ()),
    ]


@pytest.mark.parametrize("line", ["How big is Mars?", "q How big is Mars?", "x\tHow big is Mars?", "n:\t", "q\t"])
def test_a_line_without_its_mark_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "one.txt").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"one\.txt: .* a tab and a text are accepted"):
        written_groups(tmp_path)


def test_every_shipped_group_says_something() -> None:
    groups = written_groups()
    assert len(groups) > 2000
    for group in groups:
        texts = [*group.same, *(text for _, text in group.near)]
        assert len(group.same) > 1, group.name
        assert group.near, group.name
        assert len(set(texts)) == len(texts), group.name


def test_what_was_written_later_is_in_no_group_that_the_rule_was_fitted_on() -> None:
    fitted = {text for group in written_groups() for text in (*group.same, *(text for _, text in group.near))}
    pairs = later_pairs()
    assert len({stored for _, stored, _ in pairs}) == len(written_groups(LATER)) > 1500
    assert fitted.isdisjoint(text for _, *both in pairs for text in both)
    assert sum(kind == "paraphrase" for kind, *_ in pairs) == len(pairs) // 2


def test_one_answer_serves_a_question_and_its_wordings_only() -> None:
    texts = of_groups([Group("a 0", ("q", "p"), (("x", "n"), ("y", "m")))], 7)
    assert {text.group for text in texts} == {7}
    keys = {text.text: text.key for text in texts}
    assert keys["q"] == keys["p"]
    assert all(keys[one] != keys[other] for one, other in combinations("qnm", 2))
    pairs, right = draw(texts, 200, 0)
    for (one, other), label in zip(pairs.tolist(), right.tolist(), strict=True):
        assert label == (not texts[one].edit and not texts[other].edit)


def test_a_ranking_counts_the_draws_in_which_the_right_one_is_above() -> None:
    right = np.array([True, False, True, False, False])
    scores = np.array([0.9, 0.5, 0.2, 0.1, 0.3], np.float32)
    assert ranked(scores, right) == pytest.approx(4 / 6)


def test_pairs_of_one_written_group_are_told_from_others() -> None:
    texts = of_groups([Group("a 0", ("q", "p"), (("x", "n"),)), Group("a 1", ("r", "s"), ())], 7)
    assert written(texts, np.array([[0, 1], [0, 2], [0, 3], [3, 4]])).tolist() == [True, True, False, True]
