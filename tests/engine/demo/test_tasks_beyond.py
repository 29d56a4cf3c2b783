"""The level beyond training: where it may be had, that it is harder by the family's own knob, and that it fits."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from tokenizers import Tokenizer

from headgate.engine.demo import checkpoint
from headgate.engine.demo.tasks import (
    BEYOND,
    FAMILIES,
    SPLITS,
    Sample,
    each_beyond,
    each_cell,
    family,
    generate,
    grade,
    passage,
    split_of,
    variants,
)
from headgate.engine.demo.tasks.classify import _AFTERWARDS, _BAD, _FACTS, _GOOD
from headgate.engine.demo.tasks.headline import _VERBS
from headgate.engine.demo.tasks.intent import _SOLVED
from headgate.training.evaluate import LONGEST_ANSWER

HARDER = [known.name for known in FAMILIES if known.beyond]
CLOSED = {"facts", "small_talk", "out_of_domain"}


def test_all_families_but_the_closed_lists_have_it() -> None:
    assert {known.name for known in FAMILIES} - set(HARDER) == CLOSED
    samples = each_beyond(3, seed=1)
    assert [sample.family for sample in samples] == [name for name in HARDER for _ in range(3)]
    assert {(sample.difficulty, sample.split, len(sample.messages)) for sample in samples} == {(BEYOND, "test", 1)}
    assert samples == each_beyond(3, seed=1) != each_beyond(3, seed=2)


@pytest.mark.parametrize("split", ["train", "calibration"])
def test_only_the_test_split_has_it(split) -> None:
    refusal = f"level 4 is not in split '{split}'; accepted: 1 to 3, and 4 in split 'test' alone"
    for ask in (
        lambda: next(generate(1, seed=0, split=split, difficulty=BEYOND)),
        lambda: next(variants(1, seed=0, split=split, level=BEYOND)),
    ):
        with pytest.raises(ValueError, match=refusal):
            ask()


@pytest.mark.parametrize("level", [-1, 0, 5])
def test_levels_that_nothing_has_are_refused(level: int) -> None:
    with pytest.raises(ValueError, match=f"level {level} is not in split 'test'; accepted: 1 to 3, and 4"):
        next(generate(1, seed=0, split="test", difficulty=level))


@pytest.mark.parametrize("split", SPLITS)
def test_nobody_gets_it_unasked(split) -> None:
    assert {sample.difficulty for sample in generate(400, seed=3, split=split)} == {1, 2, 3}
    assert {sample.difficulty for sample in each_cell(1, seed=3, split=split)} == {1, 2, 3}
    triples = list(variants(30, seed=3, split=split))
    assert {triple.original.difficulty for triple in triples} == {1, 2, 3}


def test_who_asks_a_closed_list_gets_its_hardest_level() -> None:
    for name in CLOSED:
        known = family(name)
        samples = generate(5, seed=0, split="test", families=(known,), difficulty=BEYOND)
        assert {sample.difficulty for sample in samples} == {known.levels}


# Of the samples as they were when the shipped models were trained and first measured. Another value means that those
# models have learnt other tasks than these: a change for which they are to be trained and measured anew.
DIGEST = "14ca5af8f3660ecb04e9c04520809e8049dace39ace75be3b401d5f11068616f"


def test_what_was_trained_on_and_measured_has_not_changed() -> None:
    digest = hashlib.sha256()
    for split in SPLITS:
        for sample in [*each_cell(4, seed=0, split=split), *generate(300, seed=0, split=split)]:
            turns = [[turn.role, turn.content] for turn in sample.messages]
            shown = [sample.family, sample.difficulty, sample.content, turns, sample.tools, sample.written]
            digest.update(json.dumps(shown).encode())
    assert digest.hexdigest() == DIGEST


def _samples(name: str, level: int, count: int) -> Iterator[Sample]:
    return generate(count, seed=6, split="test", families=(family(name),), difficulty=level, system=0, turns=0)


@pytest.mark.parametrize("name", HARDER)
def test_references_are_right_belong_to_the_split_and_are_short_enough(name: str) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint("student") / "tokenizer.json"))
    for sample in _samples(name, BEYOND, 80):
        assert grade(sample, sample.written)
        assert split_of(name, sample.content) == "test"
        answer = len(tokenizer.encode(sample.written).ids)
        asked = len(tokenizer.encode(sample.prompt + "".join(map(json.dumps, sample.tools))).ids)
        # The end token included. Nothing longer than 400 was trained on, so length alone is not what is harder.
        assert answer < LONGEST_ANSWER
        assert asked + answer < 400


Knob = tuple[str, int]
"""A kind of task and how hard it is: how many things, steps, digits and so on."""


def _sentiment(sample: Sample) -> Knob:
    """Clauses that speak against the label."""
    text, against = sample.content, _BAD if sample.answer == "positive" else _GOOD
    facts = [fact for kind in _FACTS.values() for part in kind[sample.answer == "positive"] for fact in [part]]
    said = sum(text.count(fact) for fact in facts)
    hated = text.count("I hate the" if sample.answer == "positive" else "I love the")
    return "review", said + hated + len(re.findall(rf"\b(?:{'|'.join(against)})\b", text))


def _topic(sample: Sample) -> Knob:
    """Sentences that lead to another topic: the first one holds the true one too."""
    patterns = [re.escape(text).replace(r"\{name\}", r"\w+").replace(r"\{place\}", "[a-z ]+") for text in _AFTERWARDS]
    return "text", 1 + len(re.findall("|".join(patterns), sample.content))


def _intent(sample: Sample) -> Knob:
    """Matters that are settled."""
    patterns = [re.sub(r"\\\{\w+\\\}", r"\\w+", re.escape(sentence)) for _, sentence in _SOLVED]
    return "message", len(re.findall("|".join(patterns), sample.content, re.I))


def _passage(sample: Sample) -> Knob:
    """Sentences about people, without those that link two."""
    roles = "|".join(passage._ROLES)
    sentences = sample.content.rsplit("|", 1)[0].split(". ")
    return "text", sum(not re.search(rf"\bthe ({roles}) of\b|'s ({roles})\b", text, re.I) for text in sentences)


def _tables(sample: Sample) -> Knob:
    question, data = sample.content.split("|", 1)
    listed = question.split()[0] in ("item", "place", "last", "length")
    return ("list", data.count(",") + 1) if listed else ("table", data.count("\n"))


def _headline(sample: Sample) -> Knob:
    """Events: somebody does something to a thing, or a thing has it done."""
    past, participle = ("|".join(forms[place] for verbs, _ in _VERBS for forms in verbs) for place in (0, 1))
    return "news", len(re.findall(rf"\b(?:{past}) (?:an?|the) |\bwas (?:{participle}) (?:by|in) ", sample.content))


def _lists(sample: Sample) -> Knob:
    kind, rest = sample.content.split("|", 1)
    return "two lists" if kind == "common" else "list", len(
        re.split(r", |\|", rest.split("|")[-1] if kind == "often" else rest)
    )


def _repeating(sample: Sample) -> Knob:
    return "words", len([word for word in re.split(r", | ", sample.answer) if word not in ("-", "/")])


def _rewriting(sample: Sample) -> Knob:
    kind, rest = sample.content.split("|", 1)
    if kind == "groups":
        return kind, sample.answer.count(" ") + 1
    if kind == "last":
        return kind, rest.count(";") + 1
    if kind in ("polite", "direct", "expand", "contract", "past", "present"):
        return kind, len(re.findall(r", | and ", rest)) + 1
    if kind in ("upper", "lower", "title"):
        # A sentence has one word more than a row of words has on the same level.
        return f"{kind} {rest.lower().startswith('the ')}", len(rest.split())
    return kind, len(re.split(r", |\n| ", re.sub(r"(?m)^(- |\d+\. )", "", rest)))


def _strings(sample: Sample) -> Knob:
    kind, *rest = sample.content.split("|")
    return kind.split()[0], int(rest[1]) if kind == "repeat" else len(re.split(r"[- ]", rest[-1]))


def _arithmetic(sample: Sample) -> Knob:
    """Steps, or digits where there is one step."""
    *parts, last = sample.content.split("|")
    if parts:
        aside = not re.search(r"\d [-+*] \d", last)
        formula = parts[-1] if aside else last
        return f"story {'*' in formula} {aside}", len(re.findall(r"[-+*]", formula))
    numbers = re.findall(r"\d+", last)
    return ("chain", len(numbers) - 1) if len(numbers) > 2 else ("columns", max(map(len, numbers)))


def _conversion(sample: Sample) -> Knob:
    """The number of the large unit, or the days."""
    content = sample.content
    if " in " in content:
        given, answer = content.split(" in ")[0], sample.answer.split("so ")[-1]
        parts = given if len(re.findall(r"\d+", given)) == 2 else answer
        timed = re.search(r"\b(h|min|hours|minutes|weeks)\b", parts)
        return f"units {bool(timed)}", int(re.findall(r"\d+", parts)[0])
    if "|" in content:
        return "comparison", min(map(int, re.findall(r"\d+", content)))
    days = "weekday" if content[0].isalpha() else "later date"
    kind = days if content.endswith("days") else "sum" if " + " in content else "date"
    return kind, int(re.findall(r"\d+", content)[0])


def _puzzles(sample: Sample) -> Knob:
    kind, text, *_ = sample.content.split("|")
    if kind == "series":
        numbers = [int(number) for number in text.split(", ")]
        form = "double" if numbers[3] == 8 * numbers[0] else "down" if numbers[3] < numbers[0] else "up"
        return form, min(numbers)
    if kind in ("parity", "odd one"):
        return kind, len(re.split(r" \+ |, ", text))
    return kind, text.count(".")


KNOBS: dict[str, Callable[[Sample], Knob]] = {
    "sentiment": _sentiment,
    "topic": _topic,
    "intent": _intent,
    "extraction": lambda sample: ("text", len(json.loads(sample.answer))),
    "passage": _passage,
    "tables": _tables,
    "headline": _headline,
    "lists": _lists,
    "repeating": _repeating,
    "rewriting": _rewriting,
    "strings": _strings,
    "arithmetic": _arithmetic,
    "conversion": _conversion,
    "puzzles": _puzzles,
    "calls": lambda sample: ("request", len(sample.tools)),
}


@pytest.mark.parametrize("name", HARDER)
def test_it_is_harder_than_level_3_by_the_same_knob_and_no_other_kind_of_task(name: str) -> None:
    hardest: dict[str, int] = defaultdict(int)
    for sample in _samples(name, BEYOND - 1, 250):
        kind, size = KNOBS[name](sample)
        hardest[kind] = max(hardest[kind], size)
    for sample in _samples(name, BEYOND, 80):
        kind, size = KNOBS[name](sample)
        assert kind in hardest, sample
        assert size > hardest[kind], sample
