"""Repeating a text, and writing it in another form: case, word order, lists, names, tone, contractions, tense."""

from __future__ import annotations

from collections.abc import Callable

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.layout import ask
from headgate.engine.demo.tasks.rewrite_wordings import (
    BULLETS,
    COMMAS,
    CONTRACT,
    DIRECT,
    EXPAND,
    GROUPS,
    LAST_FIRST,
    LOWER,
    NUMBERED,
    PAST,
    POLITE,
    PRESENT,
    REPEAT,
    REVERSE,
    SNAKE,
    TITLE,
    UPPER,
)
from headgate.engine.demo.tasks.rewrite_words import (
    CASE_ADJECTIVES,
    CASE_NOUNS,
    CASE_VERBS,
    COMMANDS,
    CONTRACTIONS,
    SENTENCES,
)
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import ANIMALS, CITIES, FIRST_NAMES, FOODS, LAST_NAMES, THINGS

_WORDS = tuple(dict.fromkeys(THINGS + ANIMALS + FOODS))
_OPEN = (_WORDS, _WORDS, CITIES, FIRST_NAMES, LAST_NAMES)
_UPPER_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def repeating(draw: Draw) -> Task:
    """Words, names, numbers and signs to be copied. Levels are lengths: 1-4, 5-9, 10-16 and 17-22 words.

    Also the school of every other family: copying from the prompt is learned here first.
    """
    words = [_token(draw) for _ in range(draw.number(*((1, 4), (5, 9), (10, 16), (17, 22))[draw.level - 1]))]
    separator = draw.pick((" ", " ", " ", ", ", ", ", " - ", " / "))
    text = separator.join(words)
    if separator == " ":
        text += draw.pick(("", "", "", ".", "!", "?"))
    return Task(ask(draw, REPEAT, text, quotes=True), text, text)


def _token(draw: Draw) -> str:
    kind = draw.number(0, 11)
    if kind < 5:
        return draw.value(draw.pick(_OPEN))
    if kind < 7:
        return draw.invented()
    if kind == 7:
        return str(draw.number(0, 9999))
    if kind == 8:
        letters = "".join(draw.pick(_UPPER_LETTERS) for _ in range(draw.number(1, 2)))
        return f"{letters}-{draw.number(10, 9999)}"
    word = draw.pick(CASE_NOUNS + CASE_ADJECTIVES)
    return word.upper() if kind == 9 else word.title() if kind == 10 else draw.invented().capitalize()


def rewriting(draw: Draw) -> Task:
    """The same text in another form. Levels are lengths: about 2-3, 4-5, 6-8 and 9-11 words, or one to four parts."""
    return draw.pick(_KINDS)(draw)


def _count(draw: Draw) -> int:
    return draw.number(*((2, 3), (4, 5), (6, 8), (9, 11))[draw.level - 1])


def _case_text(draw: Draw) -> str:
    """Words in small letters whose other forms are to be known: some of them in a row, or a sentence."""
    count = _count(draw)
    if count < 4 or draw.chance(0.5):
        return " ".join([*draw.some(CASE_ADJECTIVES, count - 1), draw.pick(CASE_NOUNS)])
    words = ["the", draw.pick(CASE_NOUNS), draw.pick(CASE_VERBS), draw.pick(("the", "my", "every", "one"))]
    return " ".join([*words[:4], *draw.some(CASE_ADJECTIVES, count - 4), draw.pick(CASE_NOUNS)])


def _upper(draw: Draw) -> Task:
    text = _case_text(draw)
    given = text.title() if draw.chance(0.2) else text
    return Task(ask(draw, UPPER, given, quotes=True), text.upper(), f"upper|{given}")


def _lower(draw: Draw) -> Task:
    text = _case_text(draw)
    given = text.upper() if draw.chance(0.6) else text.title()
    return Task(ask(draw, LOWER, given, quotes=True), text, f"lower|{given}")


def _title(draw: Draw) -> Task:
    text = _case_text(draw)
    return Task(ask(draw, TITLE, text, quotes=True), text.title(), f"title|{text}")


def _reverse(draw: Draw) -> Task:
    words = draw.values(draw.pick(_OPEN), _count(draw))
    separator = draw.pick((" ", " ", ", "))
    text = separator.join(words)
    return Task(ask(draw, REVERSE, text, quotes=separator == " "), separator.join(reversed(words)), f"reverse|{text}")


def _snake(draw: Draw) -> Task:
    """Words joined by a sign. The sign's name is known, the words are copied."""
    name, sign = draw.pick((("underscores", "_"), ("hyphens", "-"), ("slashes", "/"), ("plus signs", "+")))
    words = draw.values(_WORDS, _count(draw))
    text = " ".join(words)
    return Task(ask(draw, SNAKE, text, sign=name), sign.join(words), f"join|{sign}|{text}")


def _listing(draw: Draw) -> Task:
    """A list from one form to another: a row with commas, bullets, numbered lines."""
    items = draw.values(draw.pick(_OPEN), _count(draw))
    forms = {
        "commas": ", ".join(items),
        "bullets": "\n".join(f"- {item}" for item in items),
        "numbered": "\n".join(f"{place}. {item}" for place, item in enumerate(items, 1)),
    }
    given, wanted = draw.some(tuple(forms), 2)
    wordings = {"commas": COMMAS, "bullets": BULLETS, "numbered": NUMBERED}[wanted]
    return Task(ask(draw, wordings, forms[given]), forms[wanted], f"{wanted}|{forms[given]}")


def _last_first(draw: Draw) -> Task:
    names = [(draw.value(FIRST_NAMES), draw.value(LAST_NAMES)) for _ in range(draw.level)]
    text = "; ".join(f"{first} {last}" for first, last in names)
    return Task(ask(draw, LAST_FIRST, text), "; ".join(f"{last}, {first}" for first, last in names), f"last|{text}")


def _groups(draw: Draw) -> Task:
    """A long number in groups of digits. Its length is a multiple of the group's."""
    size = draw.pick((2, 3, 4))
    count = draw.number(*((2, 2), (3, 3), (4, 4), (5, 5))[draw.level - 1])
    digits = "".join(str(draw.number(0, 9)) for _ in range(size * count))
    name = ("two", "three", "four")[size - 2]
    grouped = " ".join(digits[start : start + size] for start in range(0, len(digits), size))
    return Task(ask(draw, GROUPS, digits, size=name), grouped, f"groups|{size}|{digits}")


def _command(draw: Draw) -> str:
    frame = draw.pick(COMMANDS)
    thing, other = draw.values(_WORDS, 2)
    name, city = draw.value(FIRST_NAMES), draw.value(CITIES)
    return frame.format(thing=thing, other=other, name=name, city=city)


def _politeness(draw: Draw) -> Task:
    command = _command(draw)
    if draw.level == BEYOND:
        command += f", {_command(draw)}"
    if draw.level > 1:
        command += f" and {_command(draw)}"
    if draw.level >= 3:
        command += draw.pick((" today", " tomorrow", " before noon", " on Monday", " right now", " this evening"))
    direct, polite = f"{command[0].upper()}{command[1:]}.", f"Could you please {command}?"
    if draw.chance(0.65):
        return Task(ask(draw, POLITE, direct, quotes=True), polite, f"polite|{command}")
    return Task(ask(draw, DIRECT, polite, quotes=True), direct, f"direct|{command}")


def _contractions(draw: Draw) -> Task:
    pairs = draw.some(CONTRACTIONS, draw.level)
    links = [draw.pick((" and ", ", but ", ", so ")) for _ in pairs]
    values = [(draw.value(_WORDS), draw.value(FIRST_NAMES)) for _ in pairs]
    short, full = "", ""
    for (frame, contracted, expanded), link, (thing, name) in zip(pairs, links, values, strict=True):
        between = link if short else ""
        short += between + frame.format(contracted, thing=thing, name=name)
        full += between + frame.format(expanded, thing=thing, name=name)
    short, full = (f"{text[0].upper()}{text[1:]}." for text in (short, full))
    if draw.chance(0.6):
        return Task(ask(draw, EXPAND, short, quotes=True), full, f"expand|{short}")
    return Task(ask(draw, CONTRACT, full, quotes=True), short, f"contract|{full}")


def _tense(draw: Draw) -> Task:
    """One to four known verbs, with open names and things."""
    name, city = draw.value(FIRST_NAMES), draw.value(CITIES)
    subject = draw.pick((name, name, "She", "He"))
    chosen = draw.some(SENTENCES, draw.level)
    things = draw.values(_WORDS, draw.level)
    parts = [
        [frame.format(verb[tense], thing=thing, city=city) for tense in (0, 1)]
        for (frame, *verb), thing in zip(chosen, things, strict=True)
    ]
    present, past = (
        f"{subject} "
        + (", ".join(part[tense] for part in parts[:-1]) + " and " if parts[1:] else "")
        + parts[-1][tense]
        + "."
        for tense in (0, 1)
    )
    if draw.chance(0.65):
        return Task(ask(draw, PAST, present, quotes=True), past, f"past|{present}")
    return Task(ask(draw, PRESENT, past, quotes=True), present, f"present|{past}")


_KINDS: tuple[Callable[[Draw], Task], ...] = (
    _upper,
    _upper,
    _lower,
    _title,
    _reverse,
    _reverse,
    _snake,
    _listing,
    _listing,
    _last_first,
    _groups,
    _politeness,
    _politeness,
    _contractions,
    _tense,
)
