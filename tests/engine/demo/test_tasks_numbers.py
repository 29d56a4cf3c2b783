"""The answers of the number tasks, checked by other means than the generator's."""

import datetime
import random
import re
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.demo.tasks.arithmetic import added, arithmetic, multiplied, subtracted
from headgate.engine.demo.tasks.conversion import WEEKDAYS, conversion
from headgate.engine.demo.tasks.draw import BEYOND, SPLITS, Draw

SEEDS = st.integers(0, 10**9)
LEVELS = st.integers(1, BEYOND)
STEP = re.compile(r"(\d+(?: [-+*] \d+)+) = (\d+)")


def drawn(seed: int, level: int, split: str = "train", wording: int = 1) -> Draw:
    split = "test" if level == BEYOND else split
    return Draw(random.Random(seed), random.Random(seed + wording), level, split)


def value(formula: str) -> int:
    """The value of a formula of + - * /, products first."""
    total = 0
    for sign, term in re.findall(r"([-+]?) ?(\d+(?: [*/] \d+)*)", formula):
        first, *rest = re.findall(r"([*/]?) ?(\d+)", term)
        product = Fraction(int(first[1]))
        for operation, factor in rest:
            product = product * int(factor) if operation == "*" else product / int(factor)
        total += -product if sign == "-" else product
    assert total.denominator == 1
    return int(total)


def spoken(prompt: str) -> str:
    """The formula of a prompt with two numbers, in whatever words."""
    a, b = map(int, re.findall(r"\d+", prompt))
    text = prompt.lower()
    if re.search(r"[×*]|\dx\d| x |times \d|multiply|product", text):
        return f"{a} * {b}"
    if re.search(r"go into", text):
        return f"{b} / {a}"
    if re.search(r"[/÷]|divide", text):
        return f"{a} / {b}"
    if re.search(r"subtract|take", text):
        return f"{max(a, b)} - {min(a, b)}"
    return f"{a} - {b}" if re.search(r"-|minus|difference", text) else f"{a} + {b}"


@settings(max_examples=250)
@given(SEEDS, LEVELS, st.sampled_from(SPLITS))
def test_arithmetic_ends_with_the_value_of_the_formula_and_every_step_holds(seed, level, split):
    task = arithmetic(drawn(seed, level, split))
    formula = next((part for part in task.content.split("|")[::-1] if re.match(r"\d+ [-+*/] \d", part)), None)
    expected = value(formula if formula else spoken(task.prompt))
    assert int(re.findall(r"\d+", task.answer)[-1]) == expected
    assert all(value(left) == int(right) for left, right in STEP.findall(task.answer))
    assert len(STEP.findall(task.answer)) == task.answer.count("=")


@settings(max_examples=100)
@given(SEEDS, LEVELS, st.integers(2, 99))
def test_wording_never_changes_the_answer(seed, level, wording):
    for family in (arithmetic, conversion):
        first, second = family(drawn(seed, level)), family(drawn(seed, level, wording=wording))
        assert first.answer == second.answer
        assert first.content == second.content or first.content == first.prompt


@given(st.integers(0, 9999), st.integers(0, 9999))
def test_columns_read_from_the_last_to_the_first_give_the_result(a, b):
    a, b = max(a, b), min(a, b)
    for working, result in ((added(a, b), a + b), (subtracted(a, b), a - b)):
        columns = [int(step.split(" = ")[1]) for step in working.split(", so ")[0].split(", ")]
        digits = "".join(str(column % 10) for column in columns[:-1])[::-1]
        assert int(f"{columns[-1]}{digits}") == result == int(working.split("so ")[1])


@given(st.integers(11, 99), st.integers(2, 9))
def test_product_is_its_last_step_followed_by_the_last_digit_of_the_first(a, b):
    steps, result = multiplied(a, b).split(", so ")
    values = [step.split(" = ")[1] for step in steps.split(", ")]
    assert f"{values[-1]}{values[0][-1]}" == result == str(a * b)


SIZES = {
    "length": {"mm": 1, "cm": 10, "m": 1000, "km": 10**6},
    "long": {"millimetres": 1, "centimetres": 10, "metres": 1000, "kilometres": 10**6},
    "mass": {"mg": 1, "g": 1000, "kg": 10**6, "t": 10**9, "grams": 1000, "kilograms": 10**6, "tonnes": 10**9},
    "volume": {"ml": 1, "l": 1000, "millilitres": 1, "litres": 1000},
    "money": {"cents": 1, "euros": 100, "dollars": 100},
    "time": {"s": 1, "min": 60, "h": 3600, "seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800},
}
SIZE = {unit: size for sizes in SIZES.values() for unit, size in sizes.items()}


def amount(text: str) -> int:
    return sum(int(count) * SIZE[unit] for count, unit in re.findall(r"(\d+) ([a-z]+)", text))


def date(text: str) -> datetime.date:
    for form in ("%Y-%m-%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y"):
        try:
            return datetime.datetime.strptime(text, form).date()
        except ValueError:
            continue
    raise AssertionError(text)


@settings(max_examples=250)
@given(SEEDS, LEVELS, st.sampled_from(SPLITS))
def test_conversions_keep_the_amount_the_date_or_the_day(seed, level, split):
    task = conversion(drawn(seed, level, split))
    final = task.answer.split("so ")[-1]
    assert all(value(left) == int(right) for left, right in STEP.findall(task.answer))
    if " as " in task.content:
        given, form = task.content.split(" as ")
        assert date(given) == date(final)
        assert given in task.prompt
        patterns = {"iso": r"\d{4}-\d\d-\d\d", "dots": r"\d\d\.\d\d\.\d{4}", "long": r"[1-9]\d? [A-Z][a-z]+ \d{4}"}
        assert re.fullmatch(patterns.get(form, r"[A-Z][a-z]+ [1-9]\d?, \d{4}"), final)
    elif " in " in task.content:
        given, unit = task.content.split(" in ")
        assert amount(given) == amount(final)
        assert re.findall(r"[a-z]+", final) == unit.split(" and ")
        assert given in task.prompt
        assert unit in task.prompt
    elif "|" in task.content:
        kind, *both = task.content.split("|")
        assert amount(both[0]) != amount(both[1])
        assert final == (max if kind == "more" else min)(both, key=amount)
    elif task.content.endswith("days"):
        start, sign, count, _ = task.content.rsplit(" ", 3)
        if start in WEEKDAYS:
            assert final == WEEKDAYS[(WEEKDAYS.index(start) + int(count)) % 7]
        else:
            assert date(final) == date(start) + datetime.timedelta(days=int(sign + count))
    else:
        assert amount(task.content) == amount(final)
