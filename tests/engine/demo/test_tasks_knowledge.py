"""Puzzles, function calls, facts and small talk, checked against other ways to get the answer."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest

from headgate.engine.demo.tasks import facts as fact_lists
from headgate.engine.demo.tasks import words
from headgate.engine.demo.tasks.calls import FUNCTIONS, NO_FUNCTION, calls
from headgate.engine.demo.tasks.chat import ABLE, FALLBACK, out_of_domain, small_talk
from headgate.engine.demo.tasks.draw import BEYOND, SPLITS, Draw, Split
from headgate.engine.demo.tasks.facts import facts
from headgate.engine.demo.tasks.puzzles import GROUPS, NO, UNSAID, YES, puzzles
from headgate.engine.demo.tasks.sample import Task

LEVELS = pytest.mark.parametrize("level", [1, 2, 3, BEYOND])
Make = Callable[[Draw], Task]
OPEN_LISTS = ("FIRST_NAMES", "LAST_NAMES", "CITIES", "JOBS", "ANIMALS", "FOODS", "THINGS", "ADJECTIVES", "PURCHASES")


def drawn(family: Make, level: int, count: int, split: Split = "train") -> list[Task]:
    split = "test" if level == BEYOND else split
    return [family(Draw(random.Random(seed), random.Random(seed + 1), level, split)) for seed in range(count)]


@pytest.mark.parametrize("name", [*OPEN_LISTS, "COMPANIES", "NOUNS"])
def test_vocabularies_have_plain_words_and_each_once(name: str) -> None:
    values = getattr(words, name)
    assert len(set(values)) == len(values) >= 40
    pattern = r"[A-Za-z]+( [A-Za-z]+)?" if name == "COMPANIES" else r"[A-Za-z]+"
    assert all(re.fullmatch(pattern, value) for value in values)


def orders(text: str, pattern: str, turned: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every order of the named things that agrees with the statements, by trying all."""
    found = [(a, b) if word not in turned else (b, a) for a, word, b in re.findall(pattern, text)]
    names = sorted({name for pair in found for name in pair})
    return [
        order
        for order in permutations(names)
        if all(order.index(first) < order.index(second) for first, second in found)
    ]


LESS = ("shorter", "younger", "slower", "poorer", "lighter", "weaker")
LEAST = ("shortest", "youngest", "slowest", "poorest", "lightest", "weakest")


@LEVELS
def test_comparisons_and_positions_have_one_order_and_the_answer_follows(level: int) -> None:
    seen = 0
    for task in drawn(puzzles, level, 400):
        kind, text, *rest = task.content.split("|")
        if kind not in ("compare", "position"):
            continue
        seen += 1
        if kind == "compare":
            possible = orders(text, r"(\w+) is (\w+) than (\w+)\.", LESS)
            low = rest[0].split()[-1] in LESS + LEAST
        else:
            possible = orders(text, r"The (\w+) is (left of|right of|above|below) the (\w+)\.", ("right of", "below"))
            low = rest[0].endswith(("right", "bottom")) or rest[0].startswith(("right of", "below"))
        assert len(possible) == 1
        order = possible[0]
        place = 1 if "second" in rest[0] or "middle" in rest[0] else 0
        wanted = order[-1 - place] if low else order[place]
        assert task.answer.split(", so ")[-1] == wanted
        if len(order) > 2:
            assert re.split(" > |, ", task.answer.split(", so ")[0]) == list(order)
    assert seen > 50


def follows(text: str, name: str, asked: str) -> str:
    """Forward and backward chaining over the statements, with "some" deciding nothing."""
    holds: dict[str, bool] = {}
    for prefix, what in re.findall(rf"\b{name} is (not |a |)(\w+)\.", text):
        holds[what] = prefix != "not "
    rules = [(a, b.removesuffix("s") if f"All {b}" in text or f"No {b[:-1]} is" in text else b, True)
             for a, b in re.findall(r"All (\w+)s are (\w+)\.", text)]  # fmt: skip
    rules += [(a, b, False) for a, b in re.findall(r"No (\w+) is (\w+)\.", text)]
    for _ in range(4):
        for kind, what, positive in rules:
            if holds.get(kind) is True:
                holds[what] = positive
            if holds.get(what) is (not positive):
                holds[kind] = False
    known = holds.get(asked.removeprefix("a "))
    return UNSAID if known is None else YES if known else NO


@LEVELS
def test_syllogisms_follow(level: int) -> None:
    answers: Counter[str] = Counter()
    for task in drawn(puzzles, level, 800):
        kind, text, *rest = task.content.split("|")
        if kind == "syllogism":
            name, asked = rest[0].split(" ", 1)
            assert task.answer == follows(text, name, asked), task
            # From what the working repeats the same follows.
            repeated = [f"{line}." for line in task.working.split(", ")]
            assert set(repeated) <= set(re.findall(r"[^.]+\.", text.replace(". ", "."))), task
            assert follows(" ".join(repeated), name, asked) == task.answer, task
            answers[task.answer] += 1
    assert min(answers[answer] for answer in (YES, NO, UNSAID)) > 25


@LEVELS
def test_series_parity_and_odd_one_out(level: int) -> None:
    member = {word: group for group, group_words in GROUPS.items() for word in group_words}
    assert len(member) == sum(map(len, GROUPS.values()))
    for task in drawn(puzzles, level, 400):
        kind, text = task.content.split("|")[:2]
        if kind == "series":
            a, b, c, d = map(int, text.split(", "))
            ratio = b == 2 * a and c == 2 * b and d == 2 * c
            wanted = 2 * d if ratio else d + (d - c) + ((d - c) - (c - b))
            formula, result = task.answer.split(" = ")
            assert int(result) == wanted == eval(formula)
            assert [int(step) for step in task.working.split()] == [b - a, c - b, d - c]
        elif kind == "parity":
            digits = [int(number[-1]) for number in text.split(" + ")]
            assert task.answer.split()[-1] == ("even", "odd")[sum(digits) % 2]
        elif kind == "odd one":
            counts = Counter(member[word] for word in text.split(", "))
            assert counts[member[task.answer]] == 1
            assert task.working == ", ".join(f"{word} {member[word]}" for word in text.split(", "))
            assert len(counts) == 2


def test_function_names_belong_to_one_function() -> None:
    names = [f"{verb}_{noun}" for known in FUNCTIONS for verb in known.verbs for noun in known.nouns]
    assert len(set(names)) == len(names)
    assert len(FUNCTIONS) >= 25
    assert all(len(known.requests) >= 12 for known in FUNCTIONS)


@LEVELS
@pytest.mark.parametrize("split", SPLITS)
def test_calls_obey_the_schema_and_take_values_from_the_request(level: int, split: Split) -> None:
    missing = 0
    for task in drawn(calls, level, 200, split):
        assert len(task.tools) == level
        assert all(len(json.dumps(tool)) <= 310 for tool in task.tools)
        by_name = {tool["function"]["name"]: tool["function"]["parameters"] for tool in task.tools}
        assert len(by_name) == level
        if task.answer == NO_FUNCTION:
            missing += 1
            continue
        call = json.loads(task.answer.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
        schema, arguments = by_name[call["name"]], call["arguments"]
        assert set(schema["required"]) <= set(arguments) <= set(schema["properties"])
        assert list(arguments) == [name for name in schema["properties"] if name in arguments]
        assert ((1, 2), (1, 3), (2, 3), (2, 3))[level - 1][0] <= len(arguments) <= (2, 3, 3, 3)[level - 1]
        for name, value in arguments.items():
            assert str(value).lower() in task.prompt.lower()
            assert isinstance(value, int) == (schema["properties"][name]["type"] == "integer")
            assert value in schema["properties"][name].get("enum", [value])
    assert (missing > 0) == (level > 1)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_facts_name_what_was_asked(level: int) -> None:
    for task in drawn(facts, level, 150):
        if level == 3:
            assert task.answer in fact_lists.DEFINITIONS.values()
            continue
        what, key, value = re.fullmatch(r"The (\w+) of (.+) is (.+)\.", task.answer).groups()  # type: ignore[union-attr]
        table = {"capital": fact_lists.CAPITALS, "opposite": fact_lists.OPPOSITES, "plural": fact_lists.PLURALS}[what]
        assert table[key] == value
        assert (key in task.prompt) or (value in task.prompt)


def test_small_talk_and_the_honest_sentence() -> None:
    assert FALLBACK.startswith("I am a small demo model and know only a few tasks")
    assert max(len(ABLE.split()), len(FALLBACK.split())) <= 45
    for task in drawn(small_talk, 2, 100):
        name = task.answer.removeprefix("Nice to meet you, ").removesuffix("!")
        assert name in task.prompt
    assert {task.answer for task in drawn(out_of_domain, 1, 100)} == {FALLBACK}
    assert not any("{" in task.prompt for task in drawn(out_of_domain, 1, 300) + drawn(small_talk, 1, 300))


@pytest.mark.parametrize("family", [puzzles, calls, facts, small_talk, out_of_domain])
def test_other_wording_of_the_same_content_has_the_same_answer(family: Make) -> None:
    for seed in range(60):
        first = Draw(random.Random(seed), random.Random(1), 1 + seed % 2, "train")
        task = family(first)
        again = family(Draw(random.Random(99), random.Random(2), 1 + seed % 2, "train", first.made))
        assert again.answer == task.answer
        assert again.tools == task.tools
