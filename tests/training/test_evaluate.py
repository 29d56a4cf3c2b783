"""Scores and intervals against published values; answers through the engine."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import MakeCheckpoint, write_tokenizer

from headgate.engine.demo.tasks import Message, Sample, each_beyond, each_cell
from headgate.engine.errors import PromptTooLong
from headgate.engine.text.chat_template import NoChatTemplate
from headgate.engine.text.folder import TokenizerError
from headgate.training.evaluate import (
    LONGEST_ANSWER,
    Answer,
    Score,
    beyond_table,
    distinct,
    evaluate,
    main,
    paired_difference,
    scores,
    table,
)


@pytest.fixture(scope="session")
def long_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """A random model whose context holds every question of the generator, read byte by byte, and an answer."""
    folder = make_checkpoint("qwen3", max_position_embeddings=2048, num_hidden_layers=1)
    write_tokenizer(folder)
    return folder


def _sample(family: str, level: int, prompt: str = "?") -> Sample:
    return Sample((Message("user", prompt),), "yes", family, level, "c", "test")


def _answer(family: str, level: int, right: bool) -> Answer:
    return Answer(_sample(family, level), "yes" if right else "no", right, True, 2)


GIVEN = [_answer("facts", 1, True), _answer("facts", 1, False), _answer("facts", 3, True), _answer("topic", 2, False)]


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        # binom.confint(methods = "wilson") of R's package binom, and the worked examples of its documentation.
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 20, 0.0089, 0.2361),
        (81, 263, 0.2553, 0.3662),  # Newcombe (1998), Statistics in Medicine 17, 857-872, table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_has_the_published_values(right: int, count: int, low: float, high: float) -> None:
    assert Score(right, count).interval == pytest.approx((low, high), abs=5e-5)


def _pair(only_first: int, only_second: int, both: int, neither: int) -> tuple[list[Answer], list[Answer]]:
    outcomes = (
        [(True, False)] * only_first
        + [(False, True)] * only_second
        + [(True, True)] * both
        + [(False, False)] * neither
    )
    return [_answer("facts", 1, a) for a, _ in outcomes], [_answer("facts", 1, b) for _, b in outcomes]


def test_paired_interval_has_the_published_values() -> None:
    # The documented example of ci.prop.ps in R's package statpsych, by the authors of the interval.
    found = paired_difference(*_pair(26, 4, 6, 12))
    assert (found.low, found.high) == pytest.approx((0.2548067, 0.6251933), abs=1e-6)
    assert found.value == pytest.approx(22 / 48)
    assert found.count == 48


def test_paired_interval_is_antisymmetric_and_never_empty() -> None:
    first, second = _pair(5, 1, 10, 4)
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))
    same = paired_difference(first, first)
    assert same.value == 0
    assert same.low < 0 < same.high
    assert paired_difference(*_pair(0, 1, 0, 0)).low >= -1


def test_paired_difference_needs_the_same_samples() -> None:
    for first, second in ([], []), (GIVEN, GIVEN[:3]), (GIVEN, GIVEN[::-1]):
        with pytest.raises(ValueError, match="same samples in the same order"):
            paired_difference(first, second)


def test_scores_count_by_family_and_level_in_the_order_of_families() -> None:
    counted = scores(GIVEN)
    assert counted.overall == Score(2, 4)
    assert list(counted.by_level.items()) == [(1, Score(1, 2)), (2, Score(0, 1)), (3, Score(1, 1))]
    assert list(counted.by_family.items()) == [("topic", Score(0, 1)), ("facts", Score(2, 3))]
    assert list(counted.by_cell.items()) == [
        (("topic", 2), Score(0, 1)),
        (("facts", 1), Score(1, 2)),
        (("facts", 3), Score(1, 1)),
    ]
    with pytest.raises(ValueError, match="no answers to score"):
        scores([])


def test_table_has_a_row_per_family_and_a_dash_where_nothing_was_asked() -> None:
    assert table(GIVEN).splitlines() == [
        "| family | samples | level 1 | level 2 | level 3 | all |",
        "|---|---:|---:|---:|---:|---:|",
        "| topic | 1 | - | 0 (0–79) | - | 0 (0–79) |",
        "| facts | 3 | 50 (9–91) | - | 100 (21–100) | 67 (21–94) |",
        "| all | 4 | 50 (9–91) | 0 (0–79) | 100 (21–100) | 50 (15–85) |",
    ]


def test_the_level_beyond_training_stands_beside_the_level_below_of_the_same_families() -> None:
    # The two answers of facts and topic are of families that have no such level, or were not asked on it.
    given = [*GIVEN, _answer("lists", 3, True), _answer("lists", 1, False), _answer("tables", 3, False)]
    beyond = [_answer("lists", 4, False), _answer("tables", 4, True), _answer("lists", 4, True)]
    assert beyond_table(given, beyond).splitlines() == [
        "| family | samples | level 4 | level 3 |",
        "|---|---:|---:|---:|",
        "| tables | 1 | 100 (21–100) | 0 (0–79) |",
        "| lists | 2 | 50 (9–91) | 100 (21–100) |",
        "| all | 3 | 67 (21–94) | 50 (9–91) |",
    ]


def test_distinct_drops_questions_that_were_asked_word_for_word() -> None:
    one, other = _sample("facts", 1, "a"), _sample("facts", 1, "b")
    # A question with another tool is another question.
    called = dataclasses.replace(one, tools=({"type": "function", "function": {"name": "f"}},))
    assert distinct([one, other, one, called, called]) == [one, other, called]


def test_answers_come_in_the_order_of_the_samples_and_do_not_depend_on_company(long_checkpoint: Path) -> None:
    samples = each_cell(1, seed=0, split="test")[:6]
    given = evaluate(long_checkpoint, samples, concurrency=4)
    assert [answer.sample for answer in given] == samples
    for answer in given:
        assert not answer.right
        assert 1 <= answer.tokens <= LONGEST_ANSWER
        assert answer.ended or answer.tokens == LONGEST_ANSWER
        assert 0 < answer.device_s <= answer.seconds
    alone = evaluate(long_checkpoint, samples, concurrency=1)
    assert [(a.text, a.tokens, a.ended) for a in alone] == [(a.text, a.tokens, a.ended) for a in given]


def test_what_cannot_be_asked_is_said_plainly(tmp_path: Path, make_checkpoint: MakeCheckpoint) -> None:
    samples = [_sample("facts", 1, "word " * 300)] * 3
    with pytest.raises(TokenizerError, match="no such folder"):
        evaluate(tmp_path / "nothing", samples)
    folder = tmp_path / "short"
    shutil.copytree(make_checkpoint("qwen3", max_position_embeddings=64), folder)
    write_tokenizer(folder)
    with pytest.raises(PromptTooLong, match="the model takes at most 64"):
        evaluate(folder, samples)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    with pytest.raises(NoChatTemplate):
        evaluate(folder, samples)


def test_command_prints_the_table_and_writes_wrong_answers(
    long_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headgate.training.evaluate.LONGEST_ANSWER", 3)
    main([str(long_checkpoint), "--samples", "1", "--wrong", str(tmp_path / "wrong.jsonl")])
    printed = capsys.readouterr().out
    assert "| out_of_domain | 1 |" in printed
    overall, further = printed.split("Beyond training, level 4, which counts in none of the above")
    assert f"| all | {len(each_cell(1, seed=0, split='test'))} |" in overall
    assert f"| all | {len(each_beyond(1, seed=0))} |" in further
    assert "ended by themselves:" in further
    assert "ended by themselves:" in printed
    records = [json.loads(line) for line in (tmp_path / "wrong.jsonl").read_text().splitlines()]
    assert records[0]["family"] == "sentiment"
    assert records[0]["messages"][0][0] == "user"
    assert {record["level"] for record in records} == {1, 2, 3, 4}
    main([str(long_checkpoint), "--samples", "1", "--split", "calibration"])
    assert "Beyond training" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(long_checkpoint), "--samples", "0"])
    assert "--samples is 0; it must be at least 1" in capsys.readouterr().err


def test_evaluation_needs_no_transformers() -> None:
    script = "import sys; sys.modules['transformers'] = None; import headgate.training.evaluate"
    subprocess.run([sys.executable, "-c", script], check=True)
