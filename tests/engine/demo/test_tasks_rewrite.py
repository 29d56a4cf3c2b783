import random
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.demo.tasks import lists as lists_module
from headgate.engine.demo.tasks import rewrite_wordings
from headgate.engine.demo.tasks.draw import BEYOND, SPLITS, Draw
from headgate.engine.demo.tasks.lists import lists
from headgate.engine.demo.tasks.rewrite import repeating, rewriting
from headgate.engine.demo.tasks.rewrite_words import CONTRACTIONS, SENTENCES
from headgate.engine.demo.tasks.sample import Task

DRAWS = st.builds(
    lambda seed, case: Draw(random.Random(seed), random.Random(seed + 1), *case),
    st.integers(0, 1 << 40),
    st.sampled_from([*((level, split) for level in (1, 2, 3) for split in SPLITS), (BEYOND, "test")]),
)
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]


@given(DRAWS)
@settings(max_examples=200, deadline=None)
def test_repeated_text_stands_in_the_prompt_and_has_the_length_of_its_level(draw: Draw) -> None:
    task = repeating(draw)
    assert task.answer in task.prompt
    words = [word for word in re.split(r", | ", task.answer) if word not in ("-", "/")]
    low, high = ((1, 4), (5, 9), (10, 16), (17, 22))[draw.level - 1]
    assert low <= len(words) <= high


def _items(text: str) -> list[str]:
    if "\n" not in text:
        return text.split(", ")
    return [line.split(" ", 1)[1] for line in text.split("\n")]


def _swap(text: str, pairs: list[tuple[str, str]]) -> str:
    for old, new in pairs:
        text = re.sub(rf"\b{re.escape(old)}\b", new, text, flags=re.IGNORECASE)
    return text


def _rewritten(kind: str, rest: str) -> str:
    """The answer, worked out from the content by other means than the family's."""
    if kind == "upper":
        return "".join(letter.upper() for letter in rest)
    if kind == "lower":
        return rest.casefold()
    if kind == "title":
        return " ".join(word.capitalize() for word in rest.split(" "))
    if kind == "reverse":
        separator = ", " if "," in rest else " "
        return separator.join(rest.split(separator)[::-1])
    if kind == "join":
        sign, words = rest.split("|")
        return words.replace(" ", sign)
    if kind == "commas":
        return ", ".join(_items(rest))
    if kind == "bullets":
        return "".join(f"- {item}\n" for item in _items(rest)).rstrip()
    if kind == "numbered":
        return "".join(f"{place + 1}. {item}\n" for place, item in enumerate(_items(rest))).rstrip()
    if kind == "last":
        return re.sub(r"(\w+) (\w+)", r"\2, \1", rest)
    if kind == "groups":
        size, digits = rest.split("|")
        return re.sub(rf"(\d{{{size}}})(?=\d)", r"\1 ", digits)
    if kind == "polite":
        return f"Could you please {rest}?"
    return rest[0].upper() + rest[1:] + "."


@given(DRAWS)
@settings(max_examples=400, deadline=None)
def test_rewritten_text_is_the_expected_one(draw: Draw) -> None:
    task = rewriting(draw)
    kind, rest = task.content.split("|", 1)
    if kind in ("expand", "contract"):
        forms = [(short, full) for _, short, full in CONTRACTIONS]
        expanded = task.answer if kind == "expand" else rest
        contracted = rest if kind == "expand" else task.answer
        assert _swap(contracted, forms).lower() == expanded.lower()
        assert "'" not in expanded
        assert "'" in contracted
        assert expanded[0].isupper()
        assert contracted[0].isupper()
    elif kind in ("past", "present"):
        verbs = [(present, past) for _, present, past in SENTENCES]
        past, present = (task.answer, rest) if kind == "past" else (rest, task.answer)
        assert _swap(present, verbs) == past
    else:
        assert task.answer == _rewritten(kind, rest)
    assert task.answer != rest


def _listed(kind: str, text: str) -> str:
    """The answer, worked out from the content by other means than the family's."""
    items = text.split(", ")
    if kind in ("ascending", "descending"):
        ranked = [""] * len(items)
        for item in items:
            ranked[sum(int(other) < int(item) for other in items)] = item
        return ", ".join(ranked if kind == "ascending" else ranked[::-1])
    if kind == "sort":
        rest, ranked = list(items), []
        while rest:
            ranked.append(rest.pop(rest.index(min(rest))))
        return ", ".join(ranked)
    if kind in ("largest", "smallest"):
        ranked = sorted(items, key=int)
        return ranked[-1 if kind == "largest" else 0]
    if kind == "count":
        return str(text.count(",") + 1)
    if kind == "unique":
        return ", ".join(sorted(set(items), key=items.index))
    if kind in ("last", "second to last"):
        return items[-1 if kind == "last" else -2]
    return items[ORDINALS.index(kind)]


@given(DRAWS)
@settings(max_examples=400, deadline=None)
def test_answers_about_lists_are_the_expected_ones(draw: Draw) -> None:
    task = lists(draw)
    kind, rest = task.content.split("|", 1)
    if kind == "common":
        first, second = (set(part.split(", ")) for part in rest.split("|"))
        assert first & second == {task.answer}
        told = dict(step.split(" ") for step in task.working.split(", "))
        assert told == {word: "yes" if word == task.answer else "no" for word in told}
        assert set(told) <= first
    elif kind == "often":
        item, text = rest.split("|")
        assert task.answer == str(Counter(text.split(", "))[item])
        assert re.findall(rf"{item} (\d+)", task.working) == [str(n + 1) for n in range(int(task.answer))]
        assert re.sub(r" \d+", "", task.working) == text
    elif kind == "count":
        assert task.answer.split(" ")[-1] == _listed(kind, rest)
        if ":" in task.answer:
            assert re.findall(r"\d+ ([^\d,:]+)", task.answer) == rest.split(", ")
    else:
        assert task.answer == _listed(kind, rest)
        if task.working:
            read = [step.split(" ") for step in task.working.split(", ")]
            assert read == [[str(n), word] for n, word in enumerate(rest.split(", ")[: len(read)], 1)]
            assert (read[-2] if kind == "second to last" else read[-1])[1] == task.answer
    if kind in ("sort", "ascending", "descending"):
        items = rest.split(", ")
        assert len(set(items)) == len(items)
        if kind == "sort" and draw.level < 3:
            assert len({item[0] for item in items}) == len(items)


@pytest.mark.parametrize("make", [repeating, rewriting, lists])
def test_other_wording_keeps_content_and_answer(make: Callable[[Draw], Task]) -> None:
    for seed in range(100):
        first = Draw(random.Random(seed), random.Random(1), seed % 3 + 1, "train")
        task = make(first)
        again = make(Draw(random.Random(0), random.Random(2), seed % 3 + 1, "train", first.made))
        assert (again.content, again.written) == (task.content, task.written)


def test_each_intent_has_enough_different_wordings() -> None:
    for module in (rewrite_wordings, lists_module):
        for name, value in vars(module).items():
            if name.strip("_").isupper() and isinstance(value, tuple) and any(" " in str(word) for word in value):
                if name in ("_TWO_LISTS", "_KINDS", "_KINDS_OF_ITEM"):
                    continue
                assert 12 <= len(value) == len(set(value)) <= 21, name
