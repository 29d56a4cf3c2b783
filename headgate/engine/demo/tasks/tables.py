"""Looking things up in lists and small tables.

The working reads out what is looked through, up to what is found: finding the next cell is easy for a small model where
finding the one that matters at once is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headgate.engine.demo.tasks.draw import Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import (
    ANIMALS,
    CITIES,
    COLORS,
    FIRST_NAMES,
    FOODS,
    JOBS,
    LAST_NAMES,
    PURCHASES,
    THINGS,
)

Numbers = tuple[int, int]
"""The range of a column of numbers."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """What the rows of a table are, and the columns that it may have."""

    head: str
    many: str
    labels: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...] | Numbers]


_SUBJECTS = (
    _Subject("person", "people", FIRST_NAMES,
             {"city": CITIES, "age": (18, 80), "job": JOBS, "pet": ANIMALS, "color": COLORS, "score": (1, 20)}),
    _Subject("product", "products", PURCHASES,
             {"price": (2, 99), "stock": (1, 30), "color": COLORS, "city": CITIES, "buyer": FIRST_NAMES}),
    _Subject("food", "foods", FOODS,
             {"price": (1, 20), "stock": (1, 30), "color": COLORS, "city": CITIES, "seller": FIRST_NAMES}),
    _Subject("animal", "animals", ANIMALS,
             {"age": (1, 20), "food": FOODS, "color": COLORS, "name": FIRST_NAMES, "weight": (1, 90)}),
    _Subject("city", "cities", CITIES,
             {"height": (1, 90), "temperature": (1, 35), "mayor": LAST_NAMES, "color": COLORS, "animal": ANIMALS}),
    _Subject("player", "players", LAST_NAMES,
             {"score": (1, 30), "number": (1, 20), "city": CITIES, "age": (18, 40), "color": COLORS}),
    _Subject("thing", "things", THINGS,
             {"price": (2, 60), "color": COLORS, "owner": FIRST_NAMES, "city": CITIES, "number": (1, 30)}),
)  # fmt: skip
_LISTED = (FOODS, ANIMALS, THINGS, PURCHASES, CITIES, FIRST_NAMES, JOBS)

_LAYOUT = (
    "{table}\n\n{question}",
    "{question}\n\n{table}",
    "{table}\n{question}",
    "{question}\n{table}",
    "Here is a table:\n{table}\n\n{question}",
    "Look at this:\n{table}\n{question}",
    "Use the data below. {question}\n\n{table}",
    "Data:\n{table}\n\nQuestion: {question}",
    "Question: {question}\n\n{table}",
    "Please read this and answer.\n\n{table}\n\n{question}",
    "I have this data:\n{table}\n\n{question}",
    "{table}\n\nQuestion: {question}",
    "Table:\n{table}\n\nQuestion: {question}\nAnswer:",
    "Data:\n{table}\n{question}",
    "Look at this data:\n\n{table}\n\n{question}",
    "Please look at this table and answer.\n{table}\n\nQuestion: {question}",
)
_LIST_LAYOUT = tuple(text.replace("table", "list").replace("{list}", "{table}").replace("Table", "List")
                     for text in _LAYOUT)  # fmt: skip

_ITEM = (
    "What is item {n}?",
    "Which item is number {n}?",
    "What is item number {n} in this list?",
    "What does line {n} say?",
    "Give me item {n}.",
    "What is the {nth} item?",
    "Which item comes {nth}?",
    "Tell me the {nth} item of the list.",
    "What is in line {n}?",
    "Say item {n}.",
    "Which one is number {n}?",
    "What is number {n} in the list?",
    "Please give me the {nth} item.",
    "Tell me item number {n}.",
    "What is the {nth} item of the list?",
)
_PLACE = (
    "Which number is {item}?",
    "What is the number of {item}?",
    "Which number does {item} have?",
    "At which number is {item}?",
    "In which line is {item}?",
    "Give me the number of {item}.",
    "Tell me the line of {item}.",
    "Under which number is {item}?",
    "What number does {item} have in the list?",
    "What is the line number of {item}?",
    "What number is {item} in the list?",
    "Tell me the number of {item} in this list.",
    "Which line number does {item} have?",
)
_LAST = (
    "What is the last item?",
    "Which item is last?",
    "Give me the last item.",
    "What is at the end of the list?",
    "Which item comes last?",
    "Tell me the last item of the list.",
    "What does the last line say?",
    "Please give me the last item.",
    "What is the last item of the list?",
    "Which one is last?",
    "What is in the last line?",
    "Say the last item of this list.",
)
_LENGTH = (
    "How many items are there?",
    "How many items does the list have?",
    "How long is the list?",
    "Count the items.",
    "How many lines are there?",
    "What is the number of items?",
    "Tell me how many items are in the list.",
    "How many things are in this list?",
    "How many items are in the list?",
    "Count the items in this list.",
    "How many items does this list have?",
    "Tell me the number of items.",
)
_CELL = (
    "What is the {column} of {row}?",
    "Which {column} does {row} have?",
    "What {column} does {row} have?",
    "Tell me the {column} of {row}.",
    "Give me the {column} of {row}.",
    "What is the {column} for {row}?",
    "Find the {column} of {row}.",
    "{row}: which {column}?",
    "What does the table say about the {column} of {row}?",
    "Look up the {column} of {row}.",
    "Can you tell me the {column} of {row}?",
    "I need the {column} of {row}.",
    "Which {column} is given for {row}?",
    "Which value does {row} have for {column}?",
    "Please find the {column} for {row}.",
    "Tell me which {column} {row} has.",
    "Give me the {column} for {row}, please.",
    "Can you find the {column} of {row}?",
)
_ROW = (
    "Which {head} has the {column} {value}?",
    "What {head} has the {column} {value}?",
    "Which {head} has {value} as {column}?",
    "Find the {head} with the {column} {value}.",
    "For which {head} is the {column} {value}?",
    "The {column} is {value}: which {head} is it?",
    "Tell me the {head} with the {column} {value}.",
    "Which {head} goes with the {column} {value}?",
    "Look for {value} as {column}. Which {head} is it?",
    "Give me the {head} that has the {column} {value}.",
    "Which {head} is it where the {column} is {value}?",
    "Name the {head} with the {column} {value}.",
    "Tell me which {head} has the {column} {value}.",
    "What is the {head} with the {column} {value}?",
    "Please find the {head} that has {value} as {column}.",
)
_MOST = (
    "Which {head} has the {most} {column}?",
    "What {head} has the {most} {column}?",
    "Find the {head} with the {most} {column}.",
    "Tell me the {head} with the {most} {column}.",
    "For which {head} is the {column} {most}?",
    "Where is the {column} {most}? Give the {head}.",
    "Give me the {head} that has the {most} {column}.",
    "Name the {head} with the {most} {column}.",
    "Look for the {most} {column}. Which {head} is it?",
    "Which {head} is it that has the {most} {column}?",
    "What is the {head} with the {most} {column}?",
    "Tell me which {head} has the {most} {column}.",
    "Please find the {head} that has the {most} {column}.",
)
_COUNT = (
    "How many {many} have the {column} {value}?",
    "How many {many} are there with the {column} {value}?",
    "Count the {many} with the {column} {value}.",
    "For how many {many} is the {column} {value}?",
    "For how many of them is the {column} {value}?",
    "How often is the {column} {value}?",
    "How many of the {many} have {value} as {column}?",
    "Tell me how many {many} have the {column} {value}.",
    "What is the number of {many} with the {column} {value}?",
    "How many times does the {column} {value} occur?",
    "Count the {many} that have the {column} {value}.",
    "Tell me the number of {many} with the {column} {value}.",
    "How many {many} have {value} as {column}?",
)
_NTH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_HIGHEST = {True: ("highest", "highest", "largest", "biggest"), False: ("lowest", "lowest", "smallest")}

Table = list[list[str]]
"""The rows of a table, the head first."""


def _markdown(table: Table) -> str:
    lines = [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([lines[0], "|" + " --- |" * len(table[0]), *lines[1:]])


def _joined(separator: str) -> Callable[[Table], str]:
    return lambda table: "\n".join(separator.join(row) for row in table)


def _pairs(sign: str) -> Callable[[Table], str]:
    # The column's name stands above, because the lines do not repeat it.
    return lambda table: "\n".join([f"{table[0][1]}:", *(f"{row[0]}{sign}{row[1]}" for row in table[1:])])


def _records(table: Table) -> str:
    head = table[0][1:]
    cells = [", ".join(f"{name}: {cell}" for name, cell in zip(head, row[1:], strict=True)) for row in table[1:]]
    return "\n".join(f"{row[0]} ({text})" for row, text in zip(table[1:], cells, strict=True))


def _blocks(table: Table) -> str:
    return "\n\n".join(
        "\n".join(f"{name}: {cell}" for name, cell in zip(table[0], row, strict=True)) for row in table[1:]
    )


_GRIDS = (_markdown, _markdown, _joined(","), _joined(", "), _joined(";"), _joined(" | "), _records, _blocks)
_TWO_COLUMNS = (*_GRIDS, _pairs(": "), _pairs(": "), _pairs(" = "), _pairs(" - "))
_BULLETS = ("{n}. {item}", "{n}. {item}", "{n}) {item}", "{n}: {item}", "{n} {item}", "#{n} {item}")


def tables(draw: Draw) -> Task:
    """One look-up. Level 1: a short list or two columns; 2: three rows and columns; 3: more, counting, the highest.

    Level 4: lists of 8 or 9 items where level 3 has 6 or 7, tables of 6 or 7 rows where it has 3 to 5.
    """
    if draw.chance((0.4, 0.3, 0.15, 0.15)[draw.level - 1]):
        return _list(draw)
    return _grid(draw)


def _list(draw: Draw) -> Task:
    items = draw.values(draw.pick(_LISTED), draw.number(2, 3) + (1, 2, 4, 6)[draw.level - 1])
    draw.settled()
    kind = draw.pick(("item", "place", "last", "length") if draw.level > 1 else ("item", "item", "place"))
    read = len(items)
    # No further than the places have names, which are to be known.
    place = draw.number(1, min(len(items), len(_NTH)))
    if kind == "item":
        question = draw.phrase(_ITEM).format(n=place, nth=_NTH[place - 1])
        answer, read = items[place - 1], place
    elif kind == "place":
        question, answer, read = draw.phrase(_PLACE).format(item=items[place - 1]), str(place), place
    elif kind == "last":
        question, answer, place, read = draw.phrase(_LAST), items[-1], 0, 0
    else:
        question, answer, place = draw.phrase(_LENGTH), str(len(items)), 0
    bullet = draw.style(_BULLETS)
    table = "\n".join(bullet.format(n=number, item=item) for number, item in enumerate(items, 1))
    prompt = draw.phrase(_LIST_LAYOUT).format(table=table, question=question)
    working = ", ".join(f"{number} {item}" for number, item in enumerate(items[:read], 1))
    return Task(prompt, answer, f"{kind} {place}|{', '.join(items)}", question=question, working=working)


def _column(draw: Draw, values: tuple[str, ...] | Numbers, count: int, taken: set[str]) -> list[str]:
    """Different values, none of them `taken`: an answer is to be at one place only."""
    column: list[str] = []
    while len(column) < count:
        low = values[0]
        if isinstance(low, int):
            value = str(draw.number(low, int(values[1])))
        else:
            words = tuple(map(str, values))
            # Few enough to be known by heart, and too few to hold some out.
            value = draw.pick(words) if words == COLORS else draw.value(words)
        if value not in taken and value not in column:
            column.append(value)
    return column


def _grid(draw: Draw) -> Task:
    level, subject = draw.level, draw.pick(_SUBJECTS)
    kind = draw.pick(("cell", "cell", "row") if level < 3 else ("cell", "row", "most", "most", "count", "count"))
    few, many = ((2, 3), (3, 3), (3, 4), (6, 7))[level - 1]
    rows = (few if few == many else draw.number(few, many)) + (level == 3 and kind != "most")
    names = draw.some(sorted(subject.columns), 1 if level == 1 else 2 if level == 2 or rows > 4 else draw.number(2, 3))
    numeric = [name for name in sorted(subject.columns) if isinstance(subject.columns[name][0], int)]
    if kind == "most" and not set(names) & set(numeric):
        names[0] = draw.pick(numeric)
    asked = draw.pick([name for name in names if kind != "most" or name in numeric])
    labels = draw.values(subject.labels, rows)
    columns: dict[str, list[str]] = {}
    for name in names:
        taken = {cell for column in [labels, *columns.values()] for cell in column}
        columns[name] = _column(draw, subject.columns[name], rows, taken)
    if kind == "count":
        # Two values share the column, each at least once.
        two = columns[asked][:2]
        columns[asked] = draw.shuffled([*two, *(draw.pick(two) for _ in range(rows - 2))])
    table = [[subject.head, *names], *([labels[i], *(columns[name][i] for name in names)] for i in range(rows))]
    draw.settled()
    place = draw.number(0, rows - 1)
    row, value = labels[place], columns[asked][place]
    if kind == "cell":
        question, answer, what = draw.phrase(_CELL).format(column=asked, row=row), value, row
        steps = [f"{name} {columns[name][place]}" for name in names]
    elif kind == "row":
        question = draw.phrase(_ROW).format(head=subject.head, column=asked, value=value)
        answer, what = row, value
        steps = [f"{cell} {label}" for cell, label in zip(columns[asked][: place + 1], labels, strict=False)]
    elif kind == "count":
        question = draw.phrase(_COUNT).format(many=subject.many, column=asked, value=value)
        answer, what = str(columns[asked].count(value)), value
        steps = [
            f"{cell} {columns[asked][: i + 1].count(value)}" if cell == value else cell
            for i, cell in enumerate(columns[asked])
        ]
    else:
        highest = draw.chance(0.6)
        question = draw.phrase(_MOST).format(head=subject.head, column=asked, most=draw.style(_HIGHEST[highest]))
        ranked = sorted(range(rows), key=lambda i: int(columns[asked][i]), reverse=highest)
        answer, what = labels[ranked[0]], "highest" if highest else "lowest"
        steps = [f"{cell} {label}" for cell, label in zip(columns[asked], labels, strict=True)]
        steps.append(f"{what} {columns[asked][ranked[0]]}")
    text = draw.style(_TWO_COLUMNS if len(names) == 1 else _GRIDS)(table)
    prompt = draw.phrase(_LAYOUT).format(table=text, question=question)
    content = f"{kind} {asked} {what}|{_joined(',')(table)}"
    return Task(prompt, answer, content, question=question, working=", ".join(steps))
