"""One edit away: near misses of a question, and what tells two questions apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headgate.bench.cache.intents import INTENTS, Share, distinct
from headgate.bench.cache.slots import EDIT_TYPES, EditType, Value, changed
from headgate.bench.cache.wording import Intent, Question, Wording, draw_wording, key_of, render

_TRIES = 200


def edit_types(intent: Intent) -> tuple[EditType, ...]:
    """The edits that questions of this intent allow, in the order of `slots.EDIT_TYPES`."""
    kinds = {kind for vocabulary in intent.slots.values() for kind in vocabulary.kinds}
    if intent.roles is not None:
        kinds.add("role order")
    return tuple(kind for kind in EDIT_TYPES if kind in kinds)


def edited(question: Question, kind: EditType, share: Share, rng: random.Random) -> Question | None:
    """The question with one edit of this kind, so that its key is another one; None if this split has no such edit."""
    intent = question.intent
    if kind == "role order":
        if intent.roles is None:
            return None
        first, second = intent.roles
        return Question(intent, {**question.values, first: question.values[second], second: question.values[first]})
    fitting = [name for name, vocabulary in intent.slots.items() if kind in vocabulary.kinds]
    rng.shuffle(fitting)
    for name in fitting:
        other = changed(kind, question.values[name], share.values(intent.slots[name]), rng)
        if other is not None:
            values: dict[str, Value] = {**question.values, name: other}
            if distinct(intent, values):
                return Question(intent, values)
    return None


class Differences:
    """Tells which single edit lies between two semantic keys."""

    def __init__(self) -> None:
        self._intents = {intent.name: intent for intent in INTENTS}

    def between(self, first: str, second: str) -> EditType | None:
        """The type of the one edit that makes one key of the other; None for equal keys and for keys further apart."""
        name, *_ = first.split("|")
        intent = self._intents[name]
        if first == second or second.split("|")[0] != name:
            return None
        ours, theirs = slots_of(first), slots_of(second)
        if intent.roles is not None and _swapped(intent, ours) == theirs:
            return "role order"
        pairs = [(slot, ours[slot], theirs[slot]) for slot in intent.slots if ours[slot] != theirs[slot]]
        if intent.symmetric is not None and len(pairs) == 2 and {slot for slot, *_ in pairs} == set(intent.symmetric):
            # Two values in sorted order: one that changed may have moved the other.
            (slot, *here), (_, *there) = pairs
            old, new = {here[0], there[0]} - {here[1], there[1]}, {here[1], there[1]} - {here[0], there[0]}
            if len(old) == 1:
                pairs = [(slot, old.pop(), new.pop())]
        return _kind(intent, *pairs[0]) if len(pairs) == 1 else None


def _kind(intent: Intent, slot: str, old: str, new: str) -> EditType:
    vocabulary = intent.slots[slot]
    if "unit" not in vocabulary.kinds or len(vocabulary.kinds) == 1:
        return vocabulary.kinds[0]
    before = {value.number for value in vocabulary.values if value.canonical == old}
    after = {value.number for value in vocabulary.values if value.canonical == new}
    return "unit" if before & after else "number"


def slots_of(key: str) -> dict[str, str]:
    """Canonical values by slot, read from a semantic key."""
    parts = (part.partition("=") for part in key.split("|")[1:])
    return {name: value for name, _, value in parts}


def _swapped(intent: Intent, values: Mapping[str, str]) -> dict[str, str]:
    assert intent.roles is not None
    first, second = intent.roles
    return {**values, first: values[second], second: values[first]}


def one_edit_away(question: Question) -> list[str]:
    """Patterns of keys; two questions share one exactly if they are equal or a single edit lies between them."""
    intent = question.intent
    canonical = {name: value.canonical for name, value in question.values.items()}
    patterns = [key_of(intent, {**canonical, name: "*"}) for name in intent.slots]
    if intent.roles is not None:
        # The pattern of both orders at once, which neither order has for another reason.
        patterns.append(min(key_of(intent, canonical), key_of(intent, _swapped(intent, canonical))) + "|swap")
    return patterns


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts: a question and its paraphrase (`edit` None) or a near miss of it.

    Attributes:
        intent: whose questions they are.
        edit: the one thing that differs in meaning.
        same_words: whether both follow one wording, so that a near miss differs in the edited place only.
    """

    intent: str
    first: str
    second: str
    edit: EditType | None
    same_words: bool


def draw_pairs(share: Share, count: int, seed: int) -> Iterator[Pair]:
    """Pairs in turn: a paraphrase, a near miss in the same words, a near miss in other words; `count` of each.

    Edit types take turns as far as the intents of the split allow them. Equal for equal arguments.
    """
    rng = random.Random(f"{seed}/{share.split}/pairs")
    allowing: dict[EditType, list[Intent]] = {}
    for intent in share.intents:
        for kind in edit_types(intent):
            allowing.setdefault(kind, []).append(intent)
    kinds = [kind for kind in EDIT_TYPES if kind in allowing]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        for _ in range(_TRIES):
            question = share.draw(rng.choice(allowing[kind]), rng)
            miss = edited(question, kind, share, rng)
            if miss is not None:
                break
        else:
            raise ValueError(f"the {share.split} share allows no edit of kind {kind!r}")
        wording, other = draw_wording(question.intent, rng), draw_wording(question.intent, rng)
        if other.template == wording.template:
            other = Wording((wording.template + 1) % len(question.intent.templates), other.seed)
        name, first = question.intent.name, render(question, wording)
        yield Pair(name, first, render(question, other), None, same_words=False)
        yield Pair(name, first, render(miss, wording), kind, same_words=True)
        yield Pair(name, first, render(miss, other), kind, same_words=False)
