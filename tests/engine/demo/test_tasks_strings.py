"""The answers of the string tasks, checked against their contents by other means than the generator's."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.demo.tasks.draw import BEYOND, SPLITS, Draw
from headgate.engine.demo.tasks.strings import WORDS, strings

SEEDS = st.integers(0, 10**9)
LEVELS = st.integers(1, BEYOND)
ORDER = ("first", "second", "third", "fourth", "fifth", "sixth")


def drawn(seed: int, level: int, split: str = "train", wording: int = 1) -> Draw:
    split = "test" if level == BEYOND else split
    return Draw(random.Random(seed), random.Random(seed + wording), level, split)


def solved(content: str) -> str:
    """The answer that a content asks for."""
    kind, *rest = content.split("|")
    text = rest[-1]
    line = f" {text} "
    if kind == "spell":
        return re.sub(r"(?<=.)(?=.)", "-", text)
    if kind == "backwards":
        return f"{re.sub(r'(?<=.)(?=.)', '-', text)}, so {re.sub(r'(?<=.)(?=.)', '-', text[::-1])}"
    if kind == "letters":
        return f"{re.sub(r'(?<=.)(?=.)', '-', text)}, so {sum(1 for _ in text)}"
    if kind in ("first letter", "last letter"):
        return text[:1] if kind.startswith("first") else text[-1:]
    if kind.startswith("letter "):
        place = int(kind[7:])
        return f"{re.sub(r'(?<=.)(?=.)', '-', text[:place])}, so {text[place - 1]}"
    if kind == "join":
        return text
    if kind == "reverse":
        return text[::-1]
    if kind == "replace":
        return line.replace(f" {rest[0]} ", f" {rest[1]} ").strip()
    if kind == "remove":
        return line.replace(f" {rest[0]} ", " ").strip()
    if kind == "insert":
        new, side, old = rest[:3]
        pair = f" {new} {old} " if side == "before" else f" {old} {new} "
        return line.replace(f" {old} ", pair).strip()
    if kind.startswith("join by "):
        return text.replace(" ", kind[8:])
    if kind == "initials":
        return "-".join(re.findall(r"\b\w", text))
    if kind == "repeat":
        return (rest[0] + rest[2]) * (int(rest[1]) - 1) + rest[0]
    affix, end = rest[:2]
    return re.sub(r"\w+", lambda word: affix + word[0] if end == "start" else word[0] + affix, text)


@settings(max_examples=250)
@given(SEEDS, LEVELS, st.sampled_from(SPLITS))
def test_answer_is_what_the_content_asks_for(seed, level, split):
    task = strings(drawn(seed, level, split))
    assert task.answer == solved(task.content)
    shown = task.content.split("|")[-1]
    if task.content.startswith("join|"):
        shown = "-".join(shown)
    elif task.content.startswith("repeat|"):
        shown = task.content.split("|")[1]
    assert shown in task.prompt


@settings(max_examples=100)
@given(SEEDS, LEVELS, st.integers(2, 99))
def test_wording_never_changes_content_or_answer(seed, level, wording):
    first, second = strings(drawn(seed, level)), strings(drawn(seed, level, wording=wording))
    assert (first.content, first.answer) == (second.content, second.answer)


@settings(max_examples=100)
@given(SEEDS, LEVELS)
def test_a_letter_task_is_about_a_known_word_and_names_its_place(seed, level):
    task = strings(drawn(seed, level))
    kind, *_, word = task.content.split("|")
    if kind in ("spell", "backwards", "letters", "join") or "letter" in kind:
        assert word in WORDS
    if kind.startswith("letter "):
        assert ORDER[int(kind[7:]) - 1] in task.prompt


def test_words_are_different_and_short():
    assert len(set(WORDS)) == len(WORDS) > 400
    assert all(3 <= len(word) <= 7 and word.isascii() and word.islower() for word in WORDS)
