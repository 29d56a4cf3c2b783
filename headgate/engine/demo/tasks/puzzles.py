"""Small logic puzzles: comparisons, syllogisms, positions, even and odd, number series, the odd one out."""

from __future__ import annotations

from itertools import pairwise

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import ANIMALS, COLORS, FIRST_NAMES, FOODS, JOBS, MONTHS, THINGS, listed

YES, NO, UNSAID = "Yes.", "No.", "The text does not say."

_PUZZLE = (
    "{text} {question}",
    "{text}\n{question}",
    "{text}\n\n{question}",
    "Puzzle: {text} {question}",
    "{question} {text}",
    "Solve this puzzle: {text} {question}",
    "{question}\n{text}",
    "Here is a puzzle. {text} {question}",
    "Think about this: {text} {question}",
    "Riddle: {text}\n{question}",
    "Please solve this: {text} {question}",
    "{text} My question: {question}",
    "{question}\n\n{text}",
    "Puzzle:\n{text}\n{question}",
    "Please think about this puzzle. {text} {question}",
    "Here is a riddle: {text}\n{question}",
)
_RELATIONS = (
    ("taller", "tallest", "shorter", "shortest"),
    ("older", "oldest", "younger", "youngest"),
    ("faster", "fastest", "slower", "slowest"),
    ("richer", "richest", "poorer", "poorest"),
    ("heavier", "heaviest", "lighter", "lightest"),
    ("stronger", "strongest", "weaker", "weakest"),
)
_WHO = (
    "Who is the {most}?",
    "Who is {most}?",
    "Who of them is the {most}?",
    "Which of them is the {most}?",
    "Name the {most} of them.",
    "Which person is the {most}?",
    "Tell me who is the {most}.",
    "Who is the {most} of all?",
    "Find the {most} person.",
    "Who is the {most} person?",
    "Which of them is {most}?",
    "Tell me who of them is the {most}.",
)
_WHO_OF_TWO = (
    "Who is {more}?",
    "Which of the two is {more}?",
    "Who of the two is {more}?",
    "Who of them is {more}?",
    "Tell me who is {more}.",
    "Which of them is {more}?",
    "Which person is {more}?",
    "Tell me who of them is {more}.",
)


def puzzles(draw: Draw) -> Task:
    """Levels have more people, things, rules or digits; from 2 on the statements are shuffled.

    Level 4: six people, five things, a rule more than level 3, sums of four or five numbers, series of larger numbers,
    rows of eight or nine words.

    Where several statements must be put together, the answer shows the order that follows from them.
    """
    kinds = (_compare, _compare, _syllogism, _syllogism, _position, _parity, _series, _series, _odd_one)
    return draw.pick(kinds)(draw)


def _compare(draw: Draw) -> Task:
    more, most, less, least = draw.pick(_RELATIONS)
    count = draw.number(*((2, 3), (3, 4), (4, 5), (6, 6))[draw.level - 1])
    people = draw.values(FIRST_NAMES, count)  # from the most to the least
    mixed = count == 2 or draw.level >= 3
    lines = []
    for first, second in pairwise(people):
        turned = mixed and draw.chance(0.4)
        lines.append(f"{second} is {less} than {first}." if turned else f"{first} is {more} than {second}.")
    if draw.level > 1:
        lines = draw.shuffled(lines)
    text = " ".join(lines)
    if count == 2:
        place = draw.number(0, 1)
        asked = (more, less)[place]
        prompt = _worded(draw, text, _WHO_OF_TWO, more=asked)
        return Task(prompt, people[place], f"compare|{text}|{asked}")
    wanted = {most: people[0], least: people[-1]}
    if draw.level >= 3:
        wanted |= {f"second {most}": people[1], f"second {least}": people[-2]}
    asked = draw.pick(tuple(wanted))
    answer = f"{' > '.join(people)}, so {wanted[asked]}"
    return Task(_worded(draw, text, _WHO, most=asked), answer, f"compare|{text}|{asked}")


def _worded(draw: Draw, text: str, questions: tuple[str, ...], **slots: str) -> str:
    question = draw.phrase(questions).format(**slots)
    return draw.phrase(_PUZZLE).format(text=text, question=question)


_IS_IT = (
    "Is {what}?",
    "Is it true that {turned}?",
    "Does the text say that {turned}?",
    "Yes or no: is {what}?",
    "Can you tell if {turned}?",
    "Tell me if {turned}.",
    "What follows: is {what}?",
    "Do we know if {turned}?",
    "So is {what}?",
    "Then is {what}?",
    "Can we say that {turned}?",
    "Tell me: is {what}?",
    "Yes or no: is it true that {turned}?",
    "Does it follow that {turned}?",
)
# By level, the forms of `_syllogism`, so that each of the three answers is about as frequent.
_FORMS = (
    (0, 0, 1, 1, 2, 3),
    (0, 0, 0, 0, 1, 1, 4, 4, 2, 3, 5, 6),
    (0, 7, 7, 7, 1, 8, 8, 4, 2, 3, 5, 6),
    (0, 0, 0, 0, 1, 1, 4, 4, 2, 3, 5, 6),
)
_PROPERTIES = (*COLORS, *listed("small big old young loud happy sad slow strong tall hungry tired brave polite rich"))


def _syllogism(draw: Draw) -> Task:
    name = draw.value(FIRST_NAMES)
    a, b, c, *between = _kinds(draw, 3 if draw.level < BEYOND else 5)
    first, second = draw.some(_PROPERTIES, 2)
    form = draw.pick(_FORMS[draw.level - 1])
    rules = [f"All {a}s are {first}."]
    known, asked, answer = f"{name} is a {a}.", first, YES
    if form == 1:
        rules, answer = [f"No {a} is {first}."], NO
    elif form == 2:
        known, answer = f"{name} is a {b}.", UNSAID
    elif form == 3:
        rules, answer = [f"Some {a}s are {first}."], UNSAID
    elif form == 4:
        known, asked, answer = f"{name} is not {first}.", f"a {a}", NO
    elif form == 5:
        known, asked, answer = f"{name} is {first}.", f"a {a}", UNSAID
    elif form == 6:
        asked, answer = second, UNSAID
    elif form == 7:
        rules = [f"All {a}s are {b}s.", f"All {b}s are {first}."]
    elif form == 8:
        rules, answer = [f"All {a}s are {b}s.", f"No {b} is {first}."], NO
    if between:
        # What decides is two more rules away: it is said of the last of three kinds that follow from each other.
        last = between[-1]
        rules = [rule.replace(f" {a}s ", f" {last}s ").replace(f" {a} ", f" {last} ") for rule in rules]
        rules = [f"All {a}s are {between[0]}s.", f"All {between[0]}s are {last}s.", *rules]
    chain = [] if form == 2 else list(rules)
    if draw.level > 1:
        # A rule about a third kind, which decides nothing.
        rules.append(draw.pick((f"All {c}s are {second}.", f"No {c} is {second}.", f"Some {c}s are {second}.")))
    lines = [*rules, known] if draw.level == 1 else draw.shuffled([*rules, known])
    text = " ".join(lines)
    prompt = _worded(draw, text, _IS_IT, what=f"{name} {asked}", turned=f"{name} is {asked}")
    # The rules in the order in which one leads to the next, without one that decides nothing.
    working = ", ".join(line.rstrip(".") for line in [known, *chain])
    return Task(prompt, answer, f"syllogism|{text}|{name} {asked}", working=working)


def _kinds(draw: Draw, count: int) -> list[str]:
    kinds: list[str] = []
    while len(kinds) < count:
        word = draw.invented()
        if word[-1] not in "sxy" and word not in kinds:  # so that an "s" makes the plural
            kinds.append(word)
    return kinds


_SIDES = (("left of", "right of", "left", "right"), ("above", "below", "top", "bottom"))
_WHERE = (
    "What is {place}?",
    "Which thing is {place}?",
    "Tell me what is {place}.",
    "What do you find {place}?",
    "Which of them is {place}?",
    "Name the thing that is {place}.",
    "Which one is {place}?",
    "What thing is {place}?",
    "Tell me which thing is {place}.",
    "Find the thing that is {place}.",
    "Tell me which of them is {place}.",
    "What is the thing {place}?",
)


def _position(draw: Draw) -> Task:
    before, after, start, end = draw.pick(_SIDES)
    count = draw.level + 1
    row = draw.values(THINGS, count)
    lines = []
    for first, second in pairwise(row):
        turned = draw.level != 2 and draw.chance(0.4)
        line = f"The {second} is {after} the {first}." if turned else f"The {first} is {before} the {second}."
        lines.append(line)
    if draw.level > 1:
        lines = draw.shuffled(lines)
    text = " ".join(lines)
    if count == 2:
        wanted = {f"{after} the {row[0]}": row[1], f"{before} the {row[1]}": row[0]}
        asked = draw.pick(tuple(wanted))
        return Task(_worded(draw, text, _WHERE, place=asked), wanted[asked], f"position|{text}|{asked}")
    on = "on the far" if start == "left" else "at the"
    wanted = {f"{on} {start}": row[0], f"{on} {end}": row[-1]}
    if count == 3:
        wanted["in the middle"] = row[1]
    else:
        wanted |= {f"second from the {start}": row[1], f"second from the {end}": row[-2]}
    asked = draw.pick(tuple(wanted))
    answer = f"{', '.join(row)}, so {wanted[asked]}"
    return Task(_worded(draw, text, _WHERE, place=asked), answer, f"position|{text}|{asked}")


_EVEN = (
    "Is {number} even or odd?",
    "Is {number} an even or an odd number?",
    "Even or odd: {number}",
    "Tell me if {number} is even or odd.",
    "Is the number {number} odd or even?",
    "{number}\n\nIs this even or odd?",
    "Is {number} odd or even?",
    "Say if {number} is even or odd.",
    "{number}: even or odd?",
    "Please tell me if {number} is odd or even.",
    "Odd or even: {number}",
    "Is the number {number} even or odd?",
    "Say if the number {number} is odd or even.",
    "{number}: odd or even?",
)


def _parity(draw: Draw) -> Task:
    if draw.level < 3:
        number = draw.number(0, 99) if draw.level == 1 else draw.number(100, 9999)
        return Task(draw.phrase(_EVEN).format(number=number), _even_or_odd(number), f"parity|{number}")
    numbers = [draw.number(2, 999) for _ in range(draw.number(2, 3) + 2 * (draw.level == BEYOND))]
    text = " + ".join(map(str, numbers))
    answer = f"{' + '.join(map(_even_or_odd, numbers))} = {_even_or_odd(sum(numbers))}"
    return Task(draw.phrase(_EVEN).format(number=text), answer, f"parity|{text}")


def _even_or_odd(number: int) -> str:
    return "odd" if number % 2 else "even"


_NEXT = (
    "What comes next: {items}?",
    "Which number comes next? {items}",
    "What is the next number: {items}",
    "Continue the series: {items}",
    "{items}\n\nWhat is the next number?",
    "Next number: {items}",
    "Find the next number of this series: {items}",
    "{items}, ... What comes next?",
    "Which number follows in this series: {items}?",
    "Give me the next number: {items}",
    "Please continue: {items}",
    "Series: {items}\nNext number:",
    "Which number follows? {items}",
    "Give me the next number of the series: {items}",
    "{items}\n\nWhich number comes next?",
)


def _series(draw: Draw) -> Task:
    form = draw.pick(("up", "up", "up", "down") if draw.level < 3 else ("up", "down", "double", "grow"))
    step = draw.number(*((1, 5), (1, 10), (1, 15), (16, 40))[draw.level - 1])
    start = draw.number(*((1, 20), (1, 60), (1, 99), (100, 499))[draw.level - 1])
    if form == "up":
        items = [start + step * place for place in range(4)]
        answer = f"{items[-1]} + {step} = {items[-1] + step}"
    elif form == "down":
        items = [start + step * (4 - place) for place in range(4)]
        answer = f"{items[-1]} - {step} = {items[-1] - step}"
    elif form == "double":
        items = [(1 + start % 12 + 12 * (draw.level == BEYOND)) * 2**place for place in range(4)]
        answer = f"{items[-1]} * 2 = {items[-1] * 2}"
    else:
        # The steps grow by one: 5, 7, 10, 14.
        items = [start, start + step, start + 2 * step + 1, start + 3 * step + 3]
        answer = f"{items[-1]} + {step + 3} = {items[-1] + step + 3}"
    text = ", ".join(map(str, items))
    steps = " ".join(f"{after - before:+d}" for before, after in pairwise(items))
    return Task(draw.phrase(_NEXT).format(items=text), answer, f"series|{text}", working=steps)


_ODD_ONE = (
    "Which word does not belong: {items}?",
    "Which word does not fit? {items}",
    "Find the word that does not belong: {items}",
    "Odd one out: {items}",
    "{items}\n\nWhich word does not belong here?",
    "What is the odd one out? {items}",
    "Find the odd one out: {items}",
    "One word does not fit: {items}. Which one?",
    "Which of these words does not belong to the others: {items}?",
    "Name the word that does not fit: {items}",
    "{items}\n\nFind the odd one out.",
    "Please find the word that does not fit: {items}",
    "Name the odd one out: {items}",
    "{items}\n\nWhich word does not fit?",
    "Which of these words does not fit: {items}?",
)
# Words that belong to two of the groups, such as animals that are eaten by that name.
_UNCLEAR = listed(
    "duck goose crab lobster fish orange peach olive lime plum cherry egg silver golden bee snake mole seal"
)
GROUPS = {
    "animal": tuple(word for word in ANIMALS if word not in _UNCLEAR),
    "food": tuple(word for word in FOODS if word not in _UNCLEAR),
    "color": tuple(word for word in COLORS if word not in _UNCLEAR),
    "job": JOBS,
    "month": MONTHS,
    "number": listed("one two three four five six seven eight nine ten eleven twelve"),
    "body": listed("arm leg hand foot head nose mouth ear eye knee finger neck"),
}
"""Groups of words without a word in common."""


def _odd_one(draw: Draw) -> Task:
    group, other = draw.some(tuple(GROUPS), 2)
    same = draw.some(GROUPS[group], draw.number(*((2, 3), (3, 4), (5, 6), (7, 8))[draw.level - 1]))
    odd = draw.pick(GROUPS[other])
    words = draw.shuffled([*same, odd])
    text = ", ".join(words)
    sorts = ", ".join(f"{word} {other if word == odd else group}" for word in words)
    return Task(draw.phrase(_ODD_ONE).format(items=text), odd, f"odd one|{text}", working=sorts)
