import pytest

from headgate.engine.demo.card import Training, card, write_card
from headgate.engine.demo.evaluate import Answer, answers, scores, table
from headgate.engine.demo.pair import STUDENT, TEACHER, Shape, build, export
from headgate.engine.demo.recipe import main
from headgate.engine.demo.tasks import Message, Sample, generate
from headgate.engine.demo.tokenizer import train_tokenizer


def _answer(family: str, difficulty: int, right: bool) -> Answer:
    sample = Sample((Message("user", "?"),), "yes", family, difficulty, "c")
    return Answer(sample, "yes" if right else "no", right, True)


GIVEN = [_answer("facts", 1, True), _answer("facts", 1, False), _answer("facts", 3, True), _answer("topic", 2, False)]


def test_scores_count_by_family_and_difficulty_in_the_order_of_families() -> None:
    assert [(score.family, score.difficulty, score.right, score.count) for score in scores(GIVEN)] == [
        ("topic", 0, 0, 1),
        ("topic", 2, 0, 1),
        ("facts", 0, 2, 3),
        ("facts", 1, 1, 2),
        ("facts", 3, 1, 1),
    ]
    assert scores(GIVEN)[3].accuracy == 0.5


def test_table_has_a_row_per_family_and_a_dash_where_nothing_was_asked() -> None:
    assert table(GIVEN).splitlines()[2:] == ["| topic | 1 | 0 | - | 0 | - |", "| facts | 3 | 67 | 50 | - | 100 |"]


@pytest.mark.parametrize(("name", "shape"), [("teacher", TEACHER), ("student", STUDENT)])
def test_card_states_data_steps_scores_and_limits(tmp_path, name, shape) -> None:
    training = Training(name, shape, 5_223_488, seed=4, steps=123, tokens=2048, loss=0.25, device="cpu")
    write_card(tmp_path, training, GIVEN)
    text = (tmp_path / "README.md").read_text()
    assert text == card(training, GIVEN)
    for part in ("seed 4", "123 steps", "5.22 million", "2 of 4 were right", table(GIVEN), "nothing else", "0.250"):
        assert part in text
    assert "level 1: none." in text
    assert "level 1: lists, facts." in card(training, [_answer("facts", 1, False), _answer("lists", 1, False)])
    assert ("distilled" in text) == (name == "student")


def test_an_untrained_model_answers_every_sample_wrongly_and_in_order_free_batches(tmp_path) -> None:
    pytest.importorskip("transformers")
    tokenizer = train_tokenizer(seed=0, samples=500, vocabulary=400)
    export(
        build(Shape(hidden=16, layers=1, heads=1, kv_heads=1, mlp=16, head_dim=16), tokenizer, seed=0),
        tokenizer,
        tmp_path / "model",
    )
    samples = list(generate(6, seed=0, split="test"))
    given = list(answers(tmp_path / "model", samples, rows=4))
    assert sorted(samples.index(answer.sample) for answer in given) == list(range(6))
    assert not any(answer.right for answer in given)
    # Greedy answers do not depend on which rows share a batch.
    alone = {samples.index(answer.sample): answer.text for answer in answers(tmp_path / "model", samples, rows=1)}
    assert alone == {samples.index(answer.sample): answer.text for answer in given}


@pytest.mark.parametrize("option", ["--steps-teacher", "--steps-student", "--samples", "--threads"])
def test_recipe_names_an_option_below_one(option, capsys) -> None:
    with pytest.raises(SystemExit):
        main([option, "0"])
    assert f"{option} is 0; it must be at least 1" in capsys.readouterr().err
