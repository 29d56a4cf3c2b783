import itertools
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.demo.tasks import (
    FAMILIES,
    SPLITS,
    Draw,
    Family,
    Message,
    Sample,
    Variety,
    each_cell,
    family,
    generate,
    grade,
    split_of,
    variants,
)
from headgate.engine.demo.tasks.draw import held, held_templates
from headgate.engine.demo.tasks.loosen import loosened

BY_NAME = pytest.mark.parametrize("known", FAMILIES, ids=lambda known: known.name)


def test_same_seed_gives_same_samples_and_another_seed_others() -> None:
    first = list(generate(300, seed=7))
    assert first == list(generate(300, seed=7))
    assert first != list(generate(300, seed=8))


def test_fewer_samples_are_a_prefix_of_more() -> None:
    assert list(generate(50, seed=1)) == list(generate(120, seed=1))[:50]


def test_splits_share_no_content_and_no_question() -> None:
    samples = {split: list(generate(4_000 if split == "train" else 1_000, seed=0, split=split)) for split in SPLITS}
    contents = {split: {(s.family, s.content) for s in samples[split]} for split in SPLITS}
    asked = {
        split: {turn.content.lower() for s in samples[split] for turn in s.messages if turn.role == "user"}
        for split in SPLITS
    }
    for one, other in itertools.combinations(SPLITS, 2):
        assert not contents[one] & contents[other]
        assert not asked[one] & asked[other]
    # Conversations that ask for a name told before are split by the name and the question.
    plain = [sample for sample in samples["train"] if not sample.content.startswith("recall|")]
    assert all(split_of(sample.family, sample.content) == "train" for sample in plain)


def test_open_slots_and_wordings_are_held_out() -> None:
    words = tuple(f"word{number}" for number in range(50))
    parts = [set(held(words, split)) for split in SPLITS]
    assert set().union(*parts) == set(words)
    assert sum(map(len, parts)) == len(words)
    assert [len(part) for part in parts] == [35, 5, 10]
    templates = [f"template {number}" for number in range(13)]
    assert [list(held_templates(templates, split)) for split in SPLITS] == [
        templates[:10], templates[10:11], templates[11:]
    ]  # fmt: skip
    with pytest.raises(ValueError, match="has 9 values; 10 or more"):
        held(words[:9], "train")
    with pytest.raises(ValueError, match="has 3 wordings; 4 or more"):
        held_templates(templates[:3], "train")


@pytest.mark.parametrize("split", SPLITS)
def test_made_up_words_are_made_of_pieces_where_there_are_some_and_belong_to_one_split(split) -> None:
    def made(variety: Variety) -> set[str]:
        samples = generate(300, seed=4, split=split, variety=variety)
        texts = " ".join(turn.content for sample in samples for turn in sample.messages)
        return set(re.findall(r"\b(?:qzua|xwv|Zvux|Qzua|Xwv)(?:qzua|xwv)*\b", texts))

    words = made(Variety(("qzua", "xwv"), ("zvux",)))
    assert {split_of("invented", word.lower()) for word in words} == {split}
    capitals = {word for word in words if word[0].isupper()}
    assert words - capitals
    assert not made(Variety())
    assert any(word.startswith("Zvux") for word in capitals)


@BY_NAME
def test_loosened_wordings_ask_for_the_same(known: Family) -> None:
    texts = [set[str](), set[str]()]
    for seed in range(60):
        level = 1 + seed % known.levels
        tasks = [
            known.make(Draw(random.Random(seed), random.Random(-seed), level, "train", variety=Variety(loosened=share)))
            for share in (0.0, 1.0)
        ]
        assert tasks[0].answer == tasks[1].answer
        assert tasks[0].tools == tasks[1].tools
        for task, seen in zip(tasks, texts, strict=True):
            seen.add(task.prompt.lower())
    if known.name != "calls":  # has wordings of its own, of which only the frame is loosened
        assert len(texts[1] - texts[0]) > 10


TEMPLATES = st.lists(
    st.sampled_from(
        ("Give me", "{word}", "please", "The text", "{}", "\n", "\n\n", "Which", "as JSON", "Write", "letters", "{a.b}")
    ),
    min_size=1,
    max_size=6,
)


@given(TEMPLATES, st.sampled_from(("", ".", "?", ":")), st.integers())
def test_loosened_templates_keep_their_slots_and_their_end(parts: list[str], end: str, seed: int) -> None:
    template = " ".join(parts) + end
    said = loosened(template, random.Random(seed))
    assert re.findall(r"\{.*?\}", said) == re.findall(r"\{.*?\}", template)
    assert said.endswith(end)
    assert len(re.findall(r"\n+", said)) == len(re.findall(r"\n+", template))
    assert loosened(template, random.Random(seed)) == said


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split 'dev' is unknown; known: train, calibration, test"):
        next(generate(1, seed=0, split="dev"))  # type: ignore[arg-type]


@pytest.mark.parametrize("split", SPLITS)
def test_every_cell_is_filled(split) -> None:
    samples = each_cell(2, seed=1, split=split)
    assert len(samples) == 2 * sum(known.levels for known in FAMILIES)
    assert {(s.family, s.difficulty) for s in samples} == {
        (known.name, level) for known in FAMILIES for level in range(1, known.levels + 1)
    }
    assert all(len(s.messages) == 1 and s.split == split for s in samples)


def test_paraphrases_keep_the_answer_and_near_misses_change_it() -> None:
    seen = set()
    for triple in variants(150, seed=2):
        seen.add(triple.original.family)
        assert triple.paraphrase.prompt != triple.original.prompt
        assert triple.paraphrase.answer == triple.original.answer
        assert triple.near_miss.prompt != triple.original.prompt
        assert triple.near_miss.answer != triple.original.answer
        assert triple.near_miss.tools == triple.original.tools
    assert len(seen) >= 12
    assert list(variants(5, seed=2)) == list(variants(5, seed=2))


def test_families_without_near_misses_are_refused() -> None:
    with pytest.raises(ValueError, match="out_of_domain gave no variants"):
        next(variants(1, seed=0, families=(family("out_of_domain"),)))


@BY_NAME
def test_every_family_and_level_makes_gradable_samples(known) -> None:
    for level in range(1, known.levels + 1):
        samples = list(generate(60, seed=3, families=(known,), difficulty=level))
        assert {sample.difficulty for sample in samples} == {level}
        assert {sample.family for sample in samples} == {known.name}
        assert all(sample.messages[-1].role == "user" and sample.answer for sample in samples)
        assert all(grade(sample, sample.answer) and grade(sample, sample.written) for sample in samples)


@BY_NAME
def test_changed_answers_are_rejected(known) -> None:
    for sample in generate(60, seed=4, families=(known,)):
        assert not grade(sample, "")
        assert not grade(sample, sample.answer + (" and 98765 more" if known.grading == "number" else " and more"))
        # Without its last digit an answer may end in a working step with the same number.
        assert known.grading == "number" or not grade(sample, sample.answer[:-1])
        assert known.grading == "number" or not grade(sample, "x" + sample.answer)


def test_working_is_not_graded_where_the_task_has_any() -> None:
    samples = list(generate(400, seed=5))
    worked = [sample for sample in samples if sample.working]
    assert {sample.family for sample in worked} == {"passage", "tables", "lists", "puzzles"}
    for sample in worked:
        assert sample.written == f"{sample.working}, so {sample.answer}"
        assert grade(sample, f"otherwise, so {sample.answer}")
        assert not grade(sample, sample.working)
        assert not grade(sample, f"{sample.written}, so something else")
    plain = [sample for sample in samples if not sample.working and sample.grading == "text"]
    assert all(sample.written == sample.answer for sample in plain)
    assert not any(grade(sample, f"otherwise, so {sample.answer}") for sample in plain)


def _json_sample(value: object) -> Sample:
    return Sample((Message("user", "?"),), json.dumps(value), "extraction", 1, "c", "test", "json")


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


def test_numbers_are_graded_by_the_last_one() -> None:
    sample = Sample((Message("user", "?"),), "4 + 9 = 13, so 13", "arithmetic", 2, "c", "test", "number")
    for right in ("13", "It is 13.", "9 + 4 = 13"):
        assert grade(sample, right)
    for wrong in ("", "thirteen", "13 or 14", "130", "-13", "13.5"):
        assert not grade(sample, wrong)


def test_calls_are_graded_as_structures() -> None:
    answer = '<tool_call>\n{"name": "f", "arguments": {"a": 1, "b": "x"}}\n</tool_call>'
    sample = Sample((Message("user", "?"),), answer, "calls", 2, "c", "test", "call")
    assert grade(sample, '<tool_call>{"arguments": {"b": "x", "a": 1}, "name": "f"}</tool_call>')
    for wrong in (
        '{"name": "f", "arguments": {"a": 1, "b": "x"}}',
        answer + answer,
        answer.replace("1", '"1"'),
        answer.replace("</tool_call>", ""),
        "None of the given functions can do that.",
    ):
        assert not grade(sample, wrong)
    refused = Sample((Message("user", "?"),), "No function fits.", "calls", 3, "c", "test", "call")
    assert grade(refused, "No function fits.")
    assert not grade(refused, answer)


@given(st.text(max_size=40))
def test_text_grading_ignores_outer_white_space_only(text: str) -> None:
    sample = Sample((Message("user", "?"),), "Paris", "facts", 1, "c", "test")
    assert grade(sample, text) == (text.strip() == "Paris")
    assert grade(sample, f" {sample.answer}\n")


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


def test_texts_and_tables_are_asked_about_again() -> None:
    asked: list[int] = []
    for sample in generate(600, seed=0, families=(family("passage"), family("tables")), system=0, turns=0, further=3):
        first, *rest = sample.messages
        questions = [turn.content for turn in rest if turn.role == "user"]
        assert [turn.role for turn in sample.messages] == ["user", *["assistant", "user"] * len(questions)]
        assert len({first.content, *questions}) == 1 + len(questions) <= 4
        # What it is about is sent once.
        assert all(len(question) < len(first.content) for question in questions)
        asked.append(len(questions))
    assert sum(asked) > 1.5 * len(asked)
    assert all(len(sample.messages) == 1 for sample in generate(50, seed=0, system=0, turns=0, further=0))


def test_other_families_are_asked_once() -> None:
    others = tuple(known for known in FAMILIES if known.name not in ("passage", "tables"))
    given = [list(generate(300, seed=1, families=others, further=count)) for count in (0, 3)]
    assert given[0] == given[1]


def test_weights_order_the_mixture() -> None:
    counts = {known.name: 0 for known in FAMILIES}
    for sample in generate(10_000, seed=2):
        counts[sample.family] += 1
    assert counts["arithmetic"] == max(counts.values())
    assert min(counts.values()) > 150


def test_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'poetry' is unknown; known: sentiment, topic"):
        family("poetry")


def test_generation_leaves_the_global_random_state_alone() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    list(generate(10, seed=0))
    assert random.random() == expected
