import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.demo.tasks import FAMILIES, Message, Sample, family, generate, grade, split_of

BY_NAME = pytest.mark.parametrize("known", FAMILIES, ids=lambda known: known.name)


def test_same_seed_gives_same_samples_and_another_seed_others() -> None:
    first = list(generate(300, seed=7))
    assert first == list(generate(300, seed=7))
    assert first != list(generate(300, seed=8))


def test_fewer_samples_are_a_prefix_of_more() -> None:
    assert list(generate(50, seed=1)) == list(generate(120, seed=1))[:50]


def test_train_and_test_share_no_content_and_no_conversation() -> None:
    train = list(generate(20_000, seed=0))
    test = list(generate(4_000, seed=0, split="test"))
    assert not {(sample.family, sample.content) for sample in train} & {
        (sample.family, sample.content) for sample in test
    }
    turns = {turn.content for sample in train for turn in sample.messages if turn.role == "user"}
    # "What is my name?" is the same question in both; the name in the conversation is what differs.
    assert not turns & {sample.prompt for sample in test if not sample.content.startswith("recall|")}
    assert all(split_of(sample.family, sample.content) == "train" for sample in train)
    assert all(split_of(sample.family, sample.content) == "test" for sample in test)


def test_held_out_wordings_occur_in_the_test_split_only() -> None:
    facts = (family("facts"),)
    train = [sample.prompt for sample in generate(3_000, seed=0, families=facts)]
    test = [sample.prompt for sample in generate(3_000, seed=0, families=facts, split="test")]
    assert not any(prompt.lower().startswith("i need the capital of") for prompt in train)
    assert any(prompt.lower().startswith("i need the capital of") for prompt in test)


@BY_NAME
def test_every_family_and_level_makes_gradable_samples(known) -> None:
    for level in range(1, known.levels + 1):
        samples = list(generate(60, seed=3, families=(known,), difficulty=level))
        assert {sample.difficulty for sample in samples} == {level}
        assert {sample.family for sample in samples} == {known.name}
        assert all(sample.messages[-1].role == "user" and sample.answer for sample in samples)
        assert all(grade(sample, sample.answer) for sample in samples)


@BY_NAME
def test_changed_answers_are_rejected(known) -> None:
    for sample in generate(60, seed=4, families=(known,)):
        assert not grade(sample, "")
        assert not grade(sample, sample.answer + " and more")
        assert not grade(sample, sample.answer[:-1])
        assert not grade(sample, "x" + sample.answer)


def _json_sample(value: object) -> Sample:
    return Sample((Message("user", "?"),), json.dumps(value), "extraction", 1, "c", "json")


def test_json_is_compared_as_a_structure() -> None:
    sample = _json_sample({"name": "Anna", "amount": 12})
    assert grade(sample, '{"amount":12,\n "name": "Anna"}')
    for wrong in (
        '{"name": "Anna", "amount": "12"}',
        '{"name": "Anna", "amount": 12.0}',
        '{"name": "Anna"}',
        '{"name": "Anna", "amount": 12, "date": null}',
        '["Anna", 12]',
        "Anna 12",
        '{"name": "Anna", "amount": 12',
    ):
        assert not grade(sample, wrong)
    assert not grade(_json_sample({"a": 1}), '{"a": true}')


@given(st.text(max_size=40))
def test_text_grading_ignores_outer_white_space_only(text: str) -> None:
    sample = Sample((Message("user", "?"),), "Paris", "facts", 1, "c")
    assert grade(sample, text) == (text.strip() == "Paris")
    assert grade(sample, f" {sample.answer}\n")


def test_reference_answers_of_computed_families_are_right() -> None:
    for sample in generate(600, seed=5, families=(family("arithmetic"),), turns=0):
        # The content is the formula itself, such as "12 + 7".
        assert int(sample.answer) == eval(sample.content, {"__builtins__": {}})
    for sample in generate(600, seed=5, families=(family("lists"),), turns=0):
        if sample.content.startswith("sort|"):
            items = sample.content.removeprefix("sort|").split(", ")
            assert sample.answer.split(", ") == sorted(items)
    for sample in generate(400, seed=5, families=(family("extraction"),), turns=0):
        for value in json.loads(sample.answer).values():
            assert str(value) in sample.prompt
    for sample in generate(400, seed=5, families=(family("passage"),), turns=0):
        assert sample.answer in sample.prompt


def test_mixture_holds_system_prompts_and_earlier_turns() -> None:
    samples = list(generate(2_000, seed=0))
    systems = sum(sample.messages[0].role == "system" for sample in samples)
    longer = sum(any(turn.role == "assistant" for turn in sample.messages) for sample in samples)
    assert 0.1 < systems / 2_000 < 0.2
    assert 0.08 < longer / 2_000 < 0.16
    recalled = [sample for sample in samples if sample.content.startswith("recall|")]
    assert recalled
    for sample in recalled:
        name = sample.answer.removeprefix("Your name is ").removesuffix(".")
        assert any(f"My name is {name}." == turn.content for turn in sample.messages)
    plain = list(generate(200, seed=0, system=0, turns=0))
    assert all(len(sample.messages) == 1 for sample in plain)


def test_weights_order_the_mixture() -> None:
    counts = {known.name: 0 for known in FAMILIES}
    for sample in generate(10_000, seed=2):
        counts[sample.family] += 1
    assert counts["arithmetic"] == max(counts.values())
    assert min(counts.values()) > 300


def test_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'poetry' is unknown; known: sentiment, topic"):
        family("poetry")


def test_generation_leaves_the_global_random_state_alone() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    list(generate(10, seed=0))
    assert random.random() == expected
