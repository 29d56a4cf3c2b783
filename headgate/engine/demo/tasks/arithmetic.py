"""Whole-number arithmetic, with the working shown where one step is not enough.

Small facts are answered directly. Everything larger is worked column by column from the ones, because a model that
writes from left to right cannot know a carry before it has written the columns to the right of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import FIRST_NAMES, listed

_FORMULA = (
    "What is {sum}?",
    "{sum} =",
    "{sum}",
    "Calculate {sum}.",
    "Compute {sum}",
    "How much is {sum}?",
    "Please calculate {sum}.",
    "Solve: {sum}",
    "{sum} = ?",
    "Give me the result of {sum}.",
    "Work out {sum}.",
    "Can you compute {sum}?",
    "What do you get for {sum}?",
    "What does {sum} equal?",
    "Please solve {sum}.",
    "I need the result of {sum}.",
    "Can you work out {sum}?",
    "Please compute: {sum}",
)
_SPOKEN: dict[str, tuple[str, ...]] = {
    "+": (
        "What is {a} plus {b}?",
        "Add {a} and {b}.",
        "What is the sum of {a} and {b}?",
        "{a} plus {b}",
        "Add {b} to {a}.",
        "Please add {a} and {b}.",
        "Calculate {a} plus {b}.",
        "Give me the sum of {a} and {b}.",
        "Can you add {a} and {b}?",
        "What do you get when you add {b} to {a}?",
        "How much is {a} plus {b}?",
        "Please calculate the sum of {a} and {b}.",
    ),
    "-": (
        "What is {a} minus {b}?",
        "Subtract {b} from {a}.",
        "What is the difference between {a} and {b}?",
        "{a} minus {b}",
        "Take {b} away from {a}.",
        "Please subtract {b} from {a}.",
        "Calculate {a} minus {b}.",
        "Give me the difference between {a} and {b}.",
        "Can you subtract {b} from {a}?",
        "What do you get when you take {b} from {a}?",
        "How much is {a} minus {b}?",
        "Please calculate the difference between {a} and {b}.",
    ),
    "*": (
        "What is {a} times {b}?",
        "Multiply {a} by {b}.",
        "What is the product of {a} and {b}?",
        "{a} times {b}",
        "Multiply {a} and {b}.",
        "Please multiply {a} by {b}.",
        "Calculate {a} times {b}.",
        "Give me the product of {a} and {b}.",
        "Can you multiply {a} by {b}?",
        "What do you get when you multiply {a} by {b}?",
        "How much is {a} times {b}?",
        "Please calculate the product of {a} and {b}.",
    ),
    "/": (
        "What is {a} divided by {b}?",
        "Divide {a} by {b}.",
        "{a} divided by {b}",
        "How many times does {b} go into {a}?",
        "Please divide {a} by {b}.",
        "Calculate {a} divided by {b}.",
        "Give me the result of {a} divided by {b}.",
        "Can you divide {a} by {b}?",
        "What do you get when you divide {a} by {b}?",
        "Work out {a} divided by {b}.",
        "How much is {a} divided by {b}?",
        "Please calculate {a} divided by {b}.",
    ),
}
_SIGNS = {"+": ("+",), "-": ("-",), "*": ("*", "*", "x", "×"), "/": ("/", "/", "÷")}
_STEPS = {"+": "plus", "-": "minus", "*": "times"}

Terms = Sequence[int | str]
"""A formula: numbers and signs in turn."""


def arithmetic(draw: Draw) -> Task:
    """Level 1: sums and differences up to 20, times table to 10; 2: 2-3 digits; 3: 4 digits, several steps, stories.

    Level 4: 5 digits, four steps, stories with a step more.
    """
    if draw.level == 1:
        return _small(draw)
    if draw.level == 2:
        return _columns(draw)
    kind = draw.pick(("columns", "chain", "chain", "story", "story", "story"))
    return _columns(draw) if kind == "columns" else _chain(draw) if kind == "chain" else _story(draw)


def _small(draw: Draw) -> Task:
    sign = draw.pick("+-*")
    if sign == "*":
        a, b = draw.number(0, 10), draw.number(0, 10)
        answer = a * b
    else:
        # Both come from "two numbers and their sum, at most 20"; a difference takes one from the sum.
        b = draw.number(0, 20)
        a = draw.number(min(1, 20 - b), 20 - b)
        if draw.chance(0.5):
            a, b = b, a
        a, answer = (a, a + b) if sign == "+" else (a + b, a)
    prompt = _asked(draw, (a, sign, b))
    # What both operands up to 10 give is known by heart, like a fact: only its wordings can be held out fairly.
    content = prompt if max(a, b) <= 10 else f"{a} {sign} {b}"
    return Task(prompt, str(answer), content)


def _columns(draw: Draw) -> Task:
    sign = draw.pick("+++---**/" if draw.level == 2 else "+-")
    if sign == "/":
        b, c = draw.number(2, 10), draw.number(0, 10)
        prompt = _asked(draw, (b * c, "/", b))
        # Known by heart as well, from the times table.
        return Task(prompt, str(c), prompt)
    if sign == "*":
        a, b = draw.number(11, 99), draw.number(2, 9)
        answer = multiplied(a, b)
        terms = (b, "*", a) if draw.chance(0.2) else (a, "*", b)
        return Task(_asked(draw, terms), answer, f"{terms[0]} * {terms[2]}")
    digits = draw.number(2, 3) if draw.level == 2 else draw.level + 1
    # From 21 on, so that no prompt here is one of level 1, which has the bare number as its answer.
    a = draw.number(21 if digits == 2 else 10 ** (digits - 1), 10**digits - 1)
    b = draw.number(*((2, 99), (11, 999), (101, 9999), (1001, 99999))[digits - 2])
    if sign == "-":
        a, b = max(a, b), min(a, b)
        return Task(_asked(draw, (a, "-", b)), subtracted(a, b), f"{a} - {b}")
    return Task(_asked(draw, (a, "+", b)), added(a, b), f"{a} + {b}")


def added(a: int, b: int) -> str:
    """The working of a sum, by columns from the ones: `8 + 5 = 13, 4 + 7 + 1 = 12, so 123`."""
    steps, carry = [], 0
    for x, y in _digits(a, b):
        total = x + y + carry
        steps.append(f"{x} + {y}{' + 1' * carry} = {total}")
        carry = total // 10
    return f"{', '.join(steps)}, so {a + b}"


def subtracted(a: int, b: int) -> str:
    """The working of a difference that is not negative: `12 - 7 = 5, 5 - 3 - 1 = 1, so 15`."""
    steps, borrow = [], 0
    for x, y in _digits(a, b):
        top = x if x >= y + borrow else x + 10
        steps.append(f"{top} - {y}{' - 1' * borrow} = {top - y - borrow}")
        borrow = int(top > x)
    return f"{', '.join(steps)}, so {a - b}"


def multiplied(a: int, b: int) -> str:
    """The working of two digits times one: `4 * 7 = 28, 2 * 7 = 14, 14 + 2 = 16, so 168`."""
    tens, ones = divmod(a, 10)
    carry = ones * b // 10
    steps = [f"{ones} * {b} = {ones * b}", f"{tens} * {b} = {tens * b}"]
    if carry:
        steps.append(f"{tens * b} + {carry} = {tens * b + carry}")
    return f"{', '.join(steps)}, so {a * b}"


def _digits(a: int, b: int) -> list[tuple[int, int]]:
    # Ones first; the shorter number goes on with zeros.
    places = range(len(str(max(a, b))))
    return [(a // 10**place % 10, b // 10**place % 10) for place in places]


def _asked(draw: Draw, terms: Terms) -> str:
    if len(terms) == 3 and draw.styled(0.4):
        a, sign, b = terms
        return draw.phrase(_SPOKEN[str(sign)]).format(a=a, b=b)
    if len(terms) > 3 and draw.styled(0.25):
        shown = " ".join(_STEPS.get(str(term), str(term)) for term in terms)
    else:
        times = draw.style(_SIGNS["*"])
        divided = draw.style(_SIGNS["/"])
        gap = "" if draw.styled(0.3) else " "
        shown = gap.join(times if term == "*" else divided if term == "/" else str(term) for term in terms)
    return draw.phrase(_FORMULA).format(sum=shown)


def _next(draw: Draw, start: int, sign: str) -> int:
    # Small or round, so that the step can be written down at once; the result stays from 0 to 100.
    most = start if sign == "-" else 100 - start
    if most >= 30 and draw.chance(0.3):
        return 10 * draw.number(2, most // 10)
    return draw.number(min(2, most), max(2, min(20, most)))


def _chain(draw: Draw) -> Task:
    start = draw.number(21, 80)
    terms: list[int | str] = []
    if draw.chance(0.4):
        x, y = draw.number(2, 9), draw.number(2, 9)
        start, terms, steps = x * y, [x, "*", y], [f"{x} * {y} = {x * y}"]
    else:
        terms, steps = [start], []
    product = bool(steps)
    for _ in range(4 - product if draw.level == BEYOND else draw.number(2 - product, 3 - product)):
        sign = draw.pick("+-") if 10 < start < 90 else "+" if start <= 10 else "-"
        value = _next(draw, start, sign)
        terms += [sign, value]
        result = start + value if sign == "+" else start - value
        steps.append(f"{start} {sign} {value} = {result}")
        start = result
    if product and terms[3] == "+" and len(terms) == 5 and draw.chance(0.4):
        # The product last: it is still worked out first.
        more = int(terms[4])
        terms = [more, "+", *terms[:3]]
        steps[1] = f"{more} + {start - more} = {start}"
    return Task(_asked(draw, terms), ", ".join(steps), " ".join(map(str, terms)))


_THINGS = listed(
    """apple pear plum lemon orange carrot onion egg book pen coin stone ball card key shell button flower stamp ticket
    letter photo ring bead nut cake bottle candle spoon plate toy marble hat banana pencil sticker cup leaflet"""
)
_PLACES = ("box", "bag", "basket", "drawer", "jar", "bowl", "sack", "chest", "cupboard", "tray")
# A story's sentences: what there is at first, what comes and goes, and the question; of a person and of a place.
_PERSON = {
    "start": (
        "{name} has {n} {things}.",
        "{name} owns {n} {things}.",
        "At first {name} has {n} {things}.",
        "{name} starts with {n} {things}.",
        "There are {n} {things} that belong to {name}.",
        "{name} begins with {n} {things}.",
        "In the morning {name} has {n} {things}.",
        "At the start {name} has {n} {things}.",
    ),
    "+": (
        "{name} buys {n} more {things}.",
        "{other} gives {name} {n} more {things}.",
        "{name} finds {n} {things}.",
        "Then {name} gets {n} more {things}.",
        "{name} gets {n} {things} from {other}.",
        "After that {name} buys {n} more {things}.",
        "{name} takes {n} {things} from {other}.",
        "Then {name} finds {n} more {things}.",
    ),
    "-": (
        "{name} loses {n} {things}.",
        "{name} gives {n} {things} to {other}.",
        "{name} sells {n} {things}.",
        "Then {name} gives away {n} {things}.",
        "{other} takes {n} {things} from {name}.",
        "After that {name} sells {n} {things}.",
        "{name} gives away {n} of the {things}.",
        "Then {name} loses {n} {things}.",
    ),
    "ask": (
        "How many {things} does {name} have now?",
        "How many {things} does {name} have?",
        "How many {things} are left with {name}?",
        "How many {things} does {name} have in the end?",
        "What number of {things} does {name} have now?",
        "Tell me how many {things} {name} has.",
        "How many {things} does {name} own now?",
        "Tell me how many {things} {name} has in the end.",
    ),
}
_PLACE = {
    "start": (
        "There are {n} {things} in the {place}.",
        "A {place} has {n} {things}.",
        "A {place} holds {n} {things}.",
        "The {place} has {n} {things} in it.",
        "At first there are {n} {things} in a {place}.",
        "In a {place} there are {n} {things}.",
        "There is a {place} with {n} {things}.",
        "At first a {place} has {n} {things} in it.",
    ),
    "+": (
        "{name} puts {n} more {things} in.",
        "{name} adds {n} {things}.",
        "Then {name} adds {n} more {things}.",
        "{name} brings {n} more {things}.",
        "After that {name} puts in {n} more {things}.",
        "Then {n} more {things} are put in.",
        "After that {name} adds {n} {things}.",
        "Then {name} puts {n} more {things} in.",
    ),
    "-": (
        "{name} takes {n} {things}.",
        "{name} takes {n} {things} out.",
        "Then {name} takes {n} {things} away.",
        "{name} removes {n} {things}.",
        "After that {name} takes out {n} {things}.",
        "Then {n} {things} are taken away.",
        "{name} takes {n} of the {things}.",
        "Then {name} removes {n} of the {things}.",
    ),
    "ask": (
        "How many {things} are in the {place}?",
        "How many {things} are in the {place} now?",
        "How many {things} are left in the {place}?",
        "How many {things} does the {place} have now?",
        "What number of {things} is in the {place} now?",
        "Tell me how many {things} are in the {place}.",
        "How many {things} are there in the {place}?",
        "Tell me how many {things} the {place} has now.",
    ),
}
_GROUPS = (
    "{name} has {x} boxes with {y} {things} each.",
    "{name} buys {x} bags with {y} {things} in each bag.",
    "There are {x} boxes. Each box has {y} {things}. {name} owns them all.",
    "{name} has {x} bags. Each bag holds {y} {things}.",
    "{name} gets {x} boxes of {y} {things} each.",
    "{name} owns {x} boxes. In each box there are {y} {things}.",
    "{name} buys {x} boxes with {y} {things} each.",
    "{name} has {x} bags. In each bag there are {y} {things}.",
)
_ASIDES = (
    "{other} has {n} {others}.",
    "{other} has {n} {others} at home.",
    "There are also {n} {others}.",
    "{name} also sees {n} {others}.",
    "{other} also owns {n} {others}.",
    "{other} also has {n} {others}.",
)


def _plural(word: str) -> str:
    return f"{word}es" if word.endswith(("s", "x", "sh", "ch")) else f"{word}s"


def _story(draw: Draw) -> Task:
    name, other = draw.values(FIRST_NAMES, 2)
    thing, another = draw.values(_THINGS, 2)
    place = draw.pick(_PLACES)
    kind = draw.pick(("person", "place", "groups"))
    frame = _PLACE if kind == "place" else _PERSON
    names = {"name": name, "other": other, "things": _plural(thing), "others": _plural(another), "place": place}
    if kind == "groups":
        x, y = draw.number(2, 9), draw.number(2, 9)
        value, formula, steps = x * y, f"{x} * {y}", [f"{x} * {y} = {x * y}"]
        sentences = [draw.phrase(_GROUPS).format(x=x, y=y, **names)]
    else:
        value = draw.number(5, 60)
        formula, steps = str(value), []
        sentences = [draw.phrase(frame["start"]).format(n=value, **names)]
    aside = draw.number(2, 30) if draw.chance(0.25) else 0
    if aside:
        sentences.append(draw.phrase(_ASIDES).format(n=aside, **names))
    for _ in range((1 if kind == "groups" or aside else 2) + (draw.level == BEYOND)):
        sign = draw.pick("+-") if value > 4 else "+"
        n = draw.number(2, min(20, value - 2) if sign == "-" else 20)
        sentences.append(draw.phrase(frame[sign]).format(n=n, **names))
        result = value + n if sign == "+" else value - n
        steps.append(f"{value} {sign} {n} = {result}")
        formula, value = f"{formula} {sign} {n}", result
    sentences.append(draw.phrase(frame["ask"]).format(**names))
    # A sentence after a full stop keeps its capital; only the first may be written small.
    text = " ".join([sentences[0], *(sentence[0].upper() + sentence[1:] for sentence in sentences[1:])])
    content = f"story|{kind}|{name}|{other}|{thing}|{place if kind == 'place' else ''}|{formula}"
    return Task(text, ", ".join(steps), f"{content}|{aside} {another}" if aside else content)
