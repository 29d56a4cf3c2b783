"""Repeating and rewriting a text, and working with lists."""

from __future__ import annotations

from headgate.engine.demo.tasks.sample import Draw, Task
from headgate.engine.demo.tasks.words import (
    ADJECTIVES,
    ADVERBS,
    CITIES,
    COLORS,
    FIRST_NAMES,
    JOBS,
    LAST_NAMES,
    LIST_WORDS,
    MONTHS,
    NOUNS,
    THINGS,
    VERBS,
)

_REPEAT = (
    "Repeat: {text}",
    "Repeat after me: {text}",
    "Say this: {text}",
    "Copy this text: {text}",
    "Echo: {text}",
    'Say "{text}".',
    "{text}\n\nRepeat this text.",
    "Write this again: {text}",
    "Repeat the following: {text}",
    "Please repeat: {text}",
)
_ANY_WORDS = NOUNS + ADJECTIVES + COLORS + VERBS + ADVERBS + FIRST_NAMES + LAST_NAMES + CITIES + JOBS + MONTHS
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def repeating(draw: Draw) -> Task:
    """Words, numbers and made-up words to be copied. Levels are lengths: 1-4, 5-9 and 10-16 words.

    Also the school of every other family: copying from the prompt is learned here first.
    """
    words = []
    for _ in range(draw.number(*((1, 4), (5, 9), (10, 16))[draw.level - 1])):
        kind = draw.number(0, 9)
        word = draw.pick(_ANY_WORDS)
        if kind == 0:
            word = str(draw.number(0, 9999))
        elif kind == 1:
            word = "".join(draw.pick(_LETTERS) for _ in range(draw.number(2, 6)))
        elif kind == 2:
            word = word.upper()
        elif kind == 3:
            word = word.title()
        words.append(word)
    text = draw.pick((" ", " ", ", ")).join(words)
    return Task(draw.phrase(_REPEAT).format(text=text), text, text)


_UPPER = (
    "Write in upper case: {text}",
    "Convert to uppercase: {text}",
    "Put this in capital letters: {text}",
    'Make "{text}" uppercase.',
    "{text}\n\nRewrite this in upper case.",
    "Uppercase this: {text}",
    "Rewrite in capital letters: {text}",
    "Please write the following in upper case: {text}",
)
_LOWER = (
    "Write in lower case: {text}",
    "Convert to lowercase: {text}",
    "Put this in small letters: {text}",
    'Make "{text}" lowercase.',
    "{text}\n\nRewrite this in lower case.",
    "Lowercase this: {text}",
    "Rewrite in small letters: {text}",
    "Please write the following in lower case: {text}",
)
_TITLE = (
    "Write in title case: {text}",
    "Convert to title case: {text}",
    "Capitalize every word: {text}",
    'Put "{text}" in title case.',
    "{text}\n\nRewrite this in title case.",
    "Title case: {text}",
    "Make this a title: {text}",
    "Please write the following in title case: {text}",
)
_REVERSE = (
    "Reverse the order of the words: {text}",
    "Reverse the words: {text}",
    "Write these words backwards: {text}",
    'Put the words of "{text}" in reverse order.',
    "{text}\n\nReverse the word order.",
    "Reverse word order: {text}",
    "Turn the word order around: {text}",
    "Please reverse the order of these words: {text}",
)
_POLITE = (
    "Make this polite: {text}",
    "Rewrite politely: {text}",
    "Say this in a polite way: {text}",
    'Rephrase "{text}" politely.',
    "{text}\n\nRewrite this as a polite request.",
    "Turn this into a polite request: {text}",
    "Make this sound more polite: {text}",
    "Please make the following polite: {text}",
)
_COMMANDS = (
    "send me the {noun}",
    "bring the {noun}",
    "show me the {adjective} {noun}",
    "clean the {noun}",
    "open the {adjective} {noun}",
    "give {name} the {noun}",
    "call {name} {adverb}",
    "move the {adjective} {noun} {adverb}",
    "tell {name} about the {noun}",
    "put the {noun} on the {other}",
    "buy a {adjective} {noun} for {name}",
    "check the {noun} {adverb}",
)


def rewriting(draw: Draw) -> Task:
    """Upper, lower and title case, word order, politeness. Levels are lengths: 1-3, 4-5 and 6-8 words."""
    kind = draw.number(0, 4)
    if kind == 4:
        return _polite(draw)
    words = _phrase_words(draw, draw.number(*((1, 3), (4, 5), (6, 8))[draw.level - 1]))
    text = " ".join(words)
    if kind == 0:
        return Task(draw.phrase(_UPPER).format(text=text), text.upper(), f"upper|{text}")
    if kind == 1:
        given = text.upper() if draw.chance(0.7) else text.title()
        return Task(draw.phrase(_LOWER).format(text=given), text, f"lower|{text}")
    if kind == 2:
        return Task(draw.phrase(_TITLE).format(text=text), text.title(), f"title|{text}")
    if len(words) == 1:
        words = [*words, draw.pick([noun for noun in NOUNS if noun not in words])]
        text = " ".join(words)
    return Task(draw.phrase(_REVERSE).format(text=text), " ".join(reversed(words)), f"reverse|{text}")


def _phrase_words(draw: Draw, count: int) -> list[str]:
    if count <= 3:
        return [*draw.some(ADJECTIVES + COLORS, count - 1), draw.pick(NOUNS)]
    words = ["the", draw.pick(ADJECTIVES), draw.pick(NOUNS), draw.pick(VERBS)]
    if count > 4:
        words += [draw.pick(("a", "the", "my", "every", "one")), *draw.some(ADJECTIVES + COLORS, 2), draw.pick(NOUNS)]
        words = words[: count - 1]
        words.append(draw.pick(ADVERBS) if count > 6 else draw.pick(NOUNS))
    return words


def _polite(draw: Draw) -> Task:
    forms = _COMMANDS[:4] if draw.level == 1 else _COMMANDS[4:9] if draw.level == 2 else _COMMANDS[7:]
    command = draw.pick(forms).format(
        noun=draw.pick(THINGS),
        other=draw.pick(THINGS),
        adjective=draw.pick(ADJECTIVES),
        adverb=draw.pick(("now", "today", "tomorrow", "again", "soon")),
        name=draw.pick(FIRST_NAMES),
    )
    given = command[0].upper() + command[1:] + draw.pick((".", "!", "."))
    return Task(draw.phrase(_POLITE).format(text=given), f"Could you please {command}?", f"polite|{command}")


_SORT_WORDS = (
    "Sort these words alphabetically: {items}",
    "Put these words in alphabetical order: {items}",
    "Alphabetical order: {items}",
    "{items}\n\nSort this list alphabetically.",
    "Sort alphabetically: {items}",
    "Please sort the following words alphabetically: {items}",
)
_SORT_NUMBERS = (
    "Sort these numbers from small to large: {items}",
    "Sort ascending: {items}",
    "Put these numbers in ascending order: {items}",
    "{items}\n\nSort these numbers.",
    "Sort the numbers: {items}",
    "Please sort the following numbers in ascending order: {items}",
)
_COUNT = (
    "How many items are in this list? {items}",
    "Count the items: {items}",
    "How many words are listed here: {items}?",
    "{items}\n\nHow many items is that?",
    "Count these: {items}",
    "Please count the items in the list: {items}",
)
_LARGEST = (
    "What is the largest number? {items}",
    "Which number is the largest: {items}?",
    "Find the maximum: {items}",
    "{items}\n\nWhich of these numbers is the biggest?",
    "Tell me the largest of these numbers: {items}",
)
_SMALLEST = (
    "What is the smallest number? {items}",
    "Which number is the smallest: {items}?",
    "Find the minimum: {items}",
    "{items}\n\nWhich of these numbers is the lowest?",
    "Tell me the smallest of these numbers: {items}",
)
_FIRST = (
    "What is the first item? {items}",
    "Which item comes first in this list: {items}?",
    "Name the first word of the list: {items}",
    "{items}\n\nWhat is the first item?",
    "Give me the first item of: {items}",
)
_LAST = (
    "What is the last item? {items}",
    "Which item comes last in this list: {items}?",
    "Name the last word of the list: {items}",
    "{items}\n\nWhat is the last item?",
    "Give me the last item of: {items}",
)


def lists(draw: Draw) -> Task:
    """Sort, count, largest, smallest, first, last. Levels are lengths: 2-3, 4-5 and 6-8 items."""
    count = draw.number(*((2, 3), (4, 5), (6, 8))[draw.level - 1])
    kind = draw.pick(("sort words", "sort words", "sort numbers", "sort numbers", "count", "number", "place"))
    if kind in ("sort numbers", "number"):
        numbers = draw.some(range(1, 100), count)
        text = ", ".join(map(str, numbers))
        if kind == "sort numbers":
            return Task(draw.phrase(_SORT_NUMBERS).format(items=text), ", ".join(map(str, sorted(numbers))), text)
        largest = draw.chance(0.5)
        answer = str(max(numbers) if largest else min(numbers))
        prompt = draw.phrase(_LARGEST if largest else _SMALLEST).format(items=text)
        return Task(prompt, answer, f"{'largest' if largest else 'smallest'}|{text}")
    words = draw.some(LIST_WORDS, count)
    text = ", ".join(words)
    if kind == "sort words":
        return Task(draw.phrase(_SORT_WORDS).format(items=text), ", ".join(sorted(words)), f"sort|{text}")
    if kind == "count":
        return Task(draw.phrase(_COUNT).format(items=text), str(count), f"count|{text}")
    first = draw.chance(0.5)
    prompt = draw.phrase(_FIRST if first else _LAST).format(items=text)
    return Task(prompt, words[0] if first else words[-1], f"{'first' if first else 'last'}|{text}")
