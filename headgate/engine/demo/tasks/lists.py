"""Working with lists: order, size, places, repeated items, two lists."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.layout import ask
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import ANIMALS, CITIES, COLORS, FIRST_NAMES, FOODS, THINGS

_SORTED_WORDS = tuple(dict.fromkeys((*ANIMALS[:30], *FOODS[:30], *COLORS[:12], *THINGS[:30])))
_BY_LETTER = {
    letter: tuple(word for word in _SORTED_WORDS if word[0] == letter) for letter in "abcdefghijklmnopqrstuvwxyz"
}
_LETTERS = tuple(letter for letter, words in _BY_LETTER.items() if words)
_KINDS_OF_ITEM = (tuple(dict.fromkeys(THINGS)), tuple(dict.fromkeys((*ANIMALS, *FOODS))), CITIES, FIRST_NAMES)

_SORT_WORDS = (
    "Sort these words alphabetically",
    "Put these words in alphabetical order",
    "Alphabetical order:",
    "Sort this list alphabetically",
    "Sort alphabetically",
    "Sort the following words alphabetically: {text}",
    "Order these words from A to Z",
    "What is the alphabetical order of these words?",
    "Arrange these words alphabetically",
    "Words: {text}\nSort the words from A to Z.",
    "Bring this list into alphabetical order",
    "I need these words in alphabetical order.",
    "Sort the items from A to Z",
    "Put this list in order from A to Z",
    "Arrange this list from A to Z",
    "Sort the following list alphabetically: {text}",
    "Arrange the items in alphabetical order",
    "List these words from A to Z",
)
_ASCENDING = (
    "Sort these numbers from small to large",
    "Sort these numbers in ascending order",
    "Put these numbers in ascending order",
    "Sort these numbers, smallest first",
    "Ascending order:",
    "Sort the following numbers in ascending order: {text}",
    "Order these numbers from the smallest to the largest",
    "Numbers: {text}\nSort the numbers in ascending order.",
    "Arrange these numbers from low to high",
    "What is the ascending order of these numbers?",
    "Sort this list of numbers from low to high",
    "I need these numbers in ascending order.",
    "Arrange these numbers from small to large",
    "Put the smallest of these numbers first and the largest last",
    "Arrange this list of numbers in ascending order",
    "Order the following numbers from low to high: {text}",
    "Put these numbers in order from small to large",
    "Sort the numbers from the smallest to the largest",
)
_DESCENDING = (
    "Sort these numbers from large to small",
    "Sort these numbers in descending order",
    "Put these numbers in descending order",
    "Sort these numbers, largest first",
    "Descending order:",
    "Sort the following numbers in descending order: {text}",
    "Order these numbers from the largest to the smallest",
    "Numbers: {text}\nSort the numbers in descending order.",
    "Arrange these numbers from high to low",
    "What is the descending order of these numbers?",
    "Sort this list of numbers from high to low",
    "I need these numbers in descending order.",
    "Arrange these numbers from large to small",
    "Put the largest of these numbers first and the smallest last",
    "Arrange this list of numbers in descending order",
    "Order the following numbers from high to low: {text}",
    "Put these numbers in order from large to small",
    "Sort the numbers from the largest to the smallest",
)
_LARGEST = (
    "What is the largest number?",
    "Which of these numbers is the largest?",
    "Find the maximum",
    "Which of these numbers is the biggest?",
    "Tell me the largest of these numbers",
    "Largest number:",
    "Which number is the highest in this list: {text}?",
    "What is the maximum of these numbers?",
    "Give me the highest number of this list",
    "Pick the biggest number",
    "Numbers: {text}\nWhich one is the largest?",
    "Name the largest number in this list",
    "Find the biggest of these numbers",
    "What is the highest of these numbers?",
    "Tell me the maximum of this list",
    "Which number in this list is the biggest?",
    "Give me the largest of these numbers",
    "Find the highest number",
)
_SMALLEST = (
    "What is the smallest number?",
    "Which of these numbers is the smallest?",
    "Find the minimum",
    "Which of these numbers is the lowest?",
    "Tell me the smallest of these numbers",
    "Smallest number:",
    "Which number is the lowest in this list: {text}?",
    "What is the minimum of these numbers?",
    "Give me the lowest number of this list",
    "Pick the smallest number",
    "Numbers: {text}\nWhich one is the smallest?",
    "Name the smallest number in this list",
    "Find the lowest of these numbers",
    "What is the lowest of these numbers?",
    "Tell me the minimum of this list",
    "Which number in this list is the smallest?",
    "Give me the smallest of these numbers",
    "Find the lowest number",
)
_COUNT = (
    "How many items are in this list?",
    "Count these items",
    "How many words are listed here: {text}?",
    "How many items is that?",
    "Count the items in this list",
    "How long is this list?",
    "What is the number of items in this list?",
    "List: {text}\nHow many items?",
    "Tell me how many items this list has",
    "Number of items:",
    "How many words are in this list?",
    "Count the words in this list",
    "Tell me the number of items in this list",
    "How many items do you see here?",
    "How many items does this list have?",
    "Tell me how many words are listed here",
    "Count the items of the following list: {text}",
    "How many words is that?",
)
_PLACE = (
    "What is the {nth} item?",
    "Which item comes {nth} in this list?",
    "Name the {nth} word of the list",
    "Give me the {nth} item of this list",
    "What is the {nth} word in this list: {text}?",
    "List: {text}\nWhat is the {nth} item?",
    "Which word is the {nth} one?",
    "Tell me the {nth} item",
    "Find the {nth} item of this list",
    "The {nth} item:",
    "I need the {nth} item of this list.",
    "Which is the {nth} word here?",
    "Take the {nth} item from the following list: {text}",
    "Tell me which item comes {nth}",
    "What is the {nth} one of these words?",
    "Which item is the {nth} one in this list?",
    "Tell me the {nth} word of this list",
    "Give me the {nth} word here",
)
_OFTEN = (
    "How often does {item} occur in this list?",
    "How many times does {item} appear?",
    "Count how often {item} is in this list",
    "How often is {item} listed here: {text}?",
    "Count the word {item} in this list",
    "Number of times {item} occurs:",
    "Tell me how often {item} occurs",
    "How many times is {item} in this list?",
    "List: {text}\nHow often does {item} appear?",
    "What is the number of times {item} occurs?",
    "How often do you see {item} here?",
    "Tell me how many times {item} is listed",
    "Count how many times {item} occurs",
    "How often does {item} appear here?",
    "How many times does {item} occur in the following list? {text}",
    "Tell me how often {item} is in this list",
    "How many times do you see {item} in this list?",
    "Count how often you see {item} here",
)
_UNIQUE = (
    "Remove the duplicates",
    "Remove the duplicates from this list",
    "Remove all repeated items",
    "Write each item only once",
    "Drop the repeated words",
    "Without duplicates:",
    "Delete the duplicates in this list",
    "List: {text}\nRemove the duplicates.",
    "Which different items are in this list?",
    "Keep each word only once",
    "What is this list without duplicates?",
    "Take out all repeated words",
    "I need this list without duplicates.",
    "Keep each item of this list only once",
    "Drop the duplicates of the following list: {text}",
    "Delete all repeated items",
    "Write this list without duplicates",
    "Take the duplicates out of this list",
)
_COMMON = (
    "Which item is in both lists?",
    "Find the item that is in both lists",
    "What do both lists have in common?",
    "Which word occurs in both lists?",
    "Name the item that both lists have",
    "In both lists:",
    "Tell me the word that is in both lists",
    "Which item do the two lists share?",
    "Compare the lists. Which item is in both?",
    "Find the word that the two lists share",
    "Give me the item that both lists contain",
    "Which word is in the first list and in the second list?",
    "Name the word that occurs in both lists",
    "What do the two lists have in common?",
    "Tell me which item both lists share",
    "Find the word that both lists have in common",
    "Which word do both lists contain?",
    "Tell me the item that the two lists share",
)
_TWO_LISTS = (
    "First list: {a}\nSecond list: {b}",
    "List 1: {a}\nList 2: {b}",
    "List A: {a}\nList B: {b}",
    "{a}\n{b}",
    "A: {a}\nB: {b}",
)
_PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_KINDS = ("sort words", "sort words", "sort numbers", "sort numbers", "count", "extreme", "place", "place", "often",
          "unique", "common")  # fmt: skip


def lists(draw: Draw) -> Task:
    """One list (or two) and a question about it. Levels are lengths: 2-3, 4-5, 6-8 and 9-11 items."""
    count = draw.number(*((2, 3), (4, 5), (6, 8), (9, 11))[draw.level - 1])
    kind = draw.pick(_KINDS)
    if kind == "sort words":
        words = _sortable(draw, count)
        text = ", ".join(words)
        return Task(ask(draw, _SORT_WORDS, text), ", ".join(sorted(words)), f"sort|{text}")
    if kind in ("sort numbers", "extreme"):
        return _numbers(draw, kind, count)
    if kind in ("often", "unique"):
        return _repeated(draw, kind, count)
    vocabulary = draw.pick(_KINDS_OF_ITEM)
    if kind == "common":
        return _common(draw, vocabulary, count)
    words = draw.values(vocabulary, count)
    text = ", ".join(words)
    if kind == "count":
        return Task(ask(draw, _COUNT, _shown(draw, words)), _counted(words), f"count|{text}")
    # Places further on have no name here; "last" is one of the choices.
    named = min(count, len(_PLACES))
    place = draw.number(0, named)
    nth, answer = ("last", words[-1]) if place == named else (_PLACES[place], words[place])
    read = place + 1 if place < named else 0
    if draw.level > 1 and draw.chance(0.15):
        nth, answer, read = "second to last", words[-2], count
    prompt = ask(draw, _PLACE, _shown(draw, words), nth=nth)
    return Task(prompt, answer, f"{nth}|{text}", working=_numbered(words[:read]))


def _shown(draw: Draw, items: Sequence[str]) -> str:
    """The list as a text. Only for questions whose answer is no list, which would have to look like the given one."""
    form = draw.style(("commas", "commas", "commas", "commas", "lines", "bullets", "semicolons"))
    if form == "bullets":
        return "\n".join(f"- {item}" for item in items)
    return {"commas": ", ", "lines": "\n", "semicolons": "; "}[form].join(items)


def _sortable(draw: Draw, count: int) -> list[str]:
    """Different known words. From level 3 on one or two pairs begin with the same letter, so the next one decides."""
    pairs = draw.number(1, 2) if draw.level >= 3 else 0
    doubled = draw.some([letter for letter in _LETTERS if len(_BY_LETTER[letter]) > 1], pairs)
    single = draw.some([letter for letter in _LETTERS if letter not in doubled], count - 2 * pairs)
    words = [draw.pick(_BY_LETTER[letter]) for letter in single]
    for letter in doubled:
        words += draw.some(_BY_LETTER[letter], 2)
    return draw.shuffled(words)


def _numbers(draw: Draw, kind: str, count: int) -> Task:
    high = 99 if draw.level < 3 or draw.chance(0.6) else 999
    numbers: list[int] = []
    while len(numbers) < count:
        number = draw.number(1, high)
        if number not in numbers:
            numbers.append(number)
    upwards = draw.chance(0.6)
    text = ", ".join(map(str, numbers))
    if kind == "sort numbers":
        answer = ", ".join(map(str, sorted(numbers, reverse=not upwards)))
        prompt = ask(draw, _ASCENDING if upwards else _DESCENDING, text)
        return Task(prompt, answer, f"{'ascending' if upwards else 'descending'}|{text}")
    prompt = ask(draw, _SMALLEST if upwards else _LARGEST, _shown(draw, [str(number) for number in numbers]))
    return Task(
        prompt, str(min(numbers) if upwards else max(numbers)), f"{'smallest' if upwards else 'largest'}|{text}"
    )


def _repeated(draw: Draw, kind: str, count: int) -> Task:
    """Lists in which some items come more than once."""
    count = max(count, 3)
    different = draw.values(draw.pick(_KINDS_OF_ITEM), draw.number(2, max(2, count - draw.number(1, 3))))
    rest = [draw.pick(different) for _ in range(count - len(different))]
    words = draw.shuffled(different + rest)
    text = ", ".join(words)
    if kind == "unique":
        return Task(ask(draw, _UNIQUE, text), ", ".join(dict.fromkeys(words)), f"unique|{text}")
    item = draw.pick(different)
    prompt = ask(draw, _OFTEN, _shown(draw, words), item=item)
    counted = (f"{word} {words[: i + 1].count(item)}" if word == item else word for i, word in enumerate(words))
    return Task(prompt, str(words.count(item)), f"often|{item}|{text}", working=", ".join(counted))


def _common(draw: Draw, vocabulary: tuple[str, ...], count: int) -> Task:
    most = min(count, 6 if draw.level < BEYOND else 8)
    first_count = max(2, most - draw.number(0, 1))
    second_count = max(2, most - draw.number(0, 1))
    words = draw.values(vocabulary, first_count + second_count - 1)
    both, rest = words[0], words[1:]
    first = draw.shuffled([both, *rest[: first_count - 1]])
    second = draw.shuffled([both, *rest[first_count - 1 :]])
    a, b = ", ".join(first), ", ".join(second)
    prompt = ask(draw, _COMMON, draw.style(_TWO_LISTS).format(a=a, b=b))
    compared = (f"{word} {'yes' if word == both else 'no'}" for word in first[: first.index(both) + 1])
    return Task(prompt, both, f"common|{a}|{b}", working=", ".join(compared))


def _counted(words: Sequence[str]) -> str:
    """The number of items. Longer lists are counted aloud, one item at a time, with the result at the end."""
    if len(words) <= 4:
        return str(len(words))
    return f"{_numbered(words)}: {len(words)}"


def _numbered(words: Sequence[str]) -> str:
    return ", ".join(f"{place} {word}" for place, word in enumerate(words, 1))
