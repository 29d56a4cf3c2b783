"""What a question's slots hold: values whose wordings all mean the same, and what one edit can turn them into."""

from __future__ import annotations

import datetime
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

EditType = Literal[
    "number",
    "unit",
    "date",
    "weekday",
    "clock",
    "entity",
    "person",
    "role order",
    "negation",
    "antonym",
    "comparator",
    "quantifier",
    "temporal order",
    "exception",
    "format",
    "length",
    "language",
    "aspect",
]
"""What tells a near miss from the question it looks like."""

EDIT_TYPES: tuple[EditType, ...] = get_args(EditType)

CLOSED_BELOW = 15
"""A vocabulary of fewer values is a closed class (weekdays, comparators, verb pairs): every split uses all of it."""

_NEAREST = 6
_MODE = re.compile(r"\s~(\w+)\s")
_WORDS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """What a slot holds.

    Attributes:
        canonical: equal for two values exactly if they mean the same.
        forms: wordings by the mode in which a template asks for them; the plain mode is "".
        number: the numeral of a quantity, the day of a date, the hour of a time; empty elsewhere.
        unit: what is counted, the month of a date, am or pm; empty elsewhere.
    """

    canonical: str
    forms: Mapping[str, tuple[str, ...]]
    number: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The values a slot can hold, and the edit types that replace one by another."""

    name: str
    kinds: tuple[EditType, ...]
    values: tuple[Value, ...]

    @property
    def closed(self) -> bool:
        """Whether every split uses all values, because they are too few to be dealt out."""
        return len({value.canonical for value in self.values}) < CLOSED_BELOW


def changed(kind: EditType, value: Value, held: Sequence[Value], rng: random.Random) -> Value | None:
    """Another of the values `held` that an edit of this kind makes of `value`, or None if there is none.

    A new number keeps the unit and is one of the closest; a new unit keeps the number; a new date or time keeps one of
    its parts where it can.
    """
    others = [other for other in held if other.canonical != value.canonical]
    if kind == "unit":
        others = [other for other in others if other.number == value.number and other.unit != value.unit]
    elif kind in ("number", "length") and value.unit:
        others = [other for other in others if other.unit == value.unit]
    if kind == "number":
        others.sort(key=lambda other: abs(math.log(_size(other) / _size(value))))
        others = others[:_NEAREST]
    elif kind in ("date", "clock"):
        shared = [o for o in others if o.number == value.number or o.unit == value.unit]
        others = shared or others
    return rng.choice(others) if others else None


def _size(value: Value) -> float:
    return max(float(value.number), 1e-9)


def words(name: str, kind: EditType, text: str) -> Vocabulary:
    """A vocabulary written as text: values apart by `;` or line, wordings by `|`, further modes after ` ~mode `.

    A value's canonical name is what stands before `=`, or else its first wording:
    `on=turn on|enable ~ing turning on|enabling; off=turn off|disable ~ing turning off|disabling`.

    Raises:
        ValueError: a value occurs twice, or two values share a wording.
    """
    values = [_value(entry.strip()) for entry in re.split(r"[;\n]", text) if entry.strip()]
    seen: dict[tuple[str, str], str] = {}
    for value in values:
        for mode, forms in value.forms.items():
            for form in forms:
                if (mode, form.lower()) in seen:
                    raise ValueError(f"vocabulary {name!r}: {form!r} is a wording of two values; one is accepted")
                seen[mode, form.lower()] = value.canonical
    if len({value.canonical for value in values}) < len(values):
        raise ValueError(f"vocabulary {name!r} holds a value twice; once is accepted")
    return Vocabulary(name, (kind,), tuple(values))


def vocabulary(name: str, told: Mapping[EditType, str | Sequence[int]]) -> Vocabulary:
    """One as files have it: the edit type, and either words as `words` reads them or numbers as `counts` takes them."""
    ((kind, held),) = told.items()
    return words(name, kind, held) if isinstance(held, str) else counts(name, kind, held)


def _value(entry: str) -> Value:
    plain, *modes = _MODE.split(entry)
    canonical, _, wordings = plain.rpartition("=")
    forms = {"": _wordings(wordings)}
    forms.update({mode: _wordings(text) for mode, text in zip(modes[::2], modes[1::2], strict=True)})
    return Value(canonical.strip() or forms[""][0], forms)


def _wordings(text: str) -> tuple[str, ...]:
    return tuple(form.strip() for form in text.split("|"))


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measurement: `factor` times the `base` unit; values of one base compare.

    `short` is written straight after the number, with its space if it has one.
    """

    base: str
    factor: Fraction
    one: str
    many: str
    short: str = ""


def _unit(base: str, factor: int | Fraction, one: str, many: str, short: str = "") -> Unit:
    return Unit(base, Fraction(factor), one, many, short)


UNITS: Mapping[str, Unit] = {
    "second": _unit("s", 1, "second", "seconds", " sec"),
    "minute": _unit("s", 60, "minute", "minutes", " min"),
    "hour": _unit("s", 3600, "hour", "hours", "h"),
    "day": _unit("s", 86400, "day", "days"),
    "week": _unit("s", 604800, "week", "weeks"),
    "month": _unit("months", 1, "month", "months"),
    "year": _unit("months", 12, "year", "years"),
    "mm": _unit("mm", 1, "millimetre", "millimetres", " mm"),
    "cm": _unit("mm", 10, "centimetre", "centimetres", " cm"),
    "m": _unit("mm", 1000, "metre", "metres", " m"),
    "km": _unit("mm", 1000000, "kilometre", "kilometres", " km"),
    "g": _unit("g", 1, "gram", "grams", " g"),
    "kg": _unit("g", 1000, "kilogram", "kilograms", " kg"),
    "ounce": _unit("oz", 1, "ounce", "ounces", " oz"),
    "pound": _unit("oz", 16, "pound", "pounds", " lb"),
    "mg": _unit("mg", 1, "milligram", "milligrams", " mg"),
    "ml": _unit("ml", 1, "millilitre", "millilitres", " ml"),
    "litre": _unit("ml", 1000, "litre", "litres", " l"),
    "cup": _unit("cup", 1, "cup", "cups"),
    "gigabyte": _unit("mb", 1000, "gigabyte", "gigabytes", " GB"),
    "megabyte": _unit("mb", 1, "megabyte", "megabytes", " MB"),
}


def quantities(name: str, amounts: Mapping[str, Iterable[int]]) -> Vocabulary:
    """Amounts with units: "90 minutes", "90 min", "1.5 hours", "an hour and a half" are one value.

    Args:
        name: of the vocabulary.
        amounts: numbers by name in `UNITS`; a value is also worded in the other units where the number is round.
    """
    values = [
        _quantity(Fraction(number), unit, tuple(amounts)) for unit, numbers in amounts.items() for number in numbers
    ]
    kinds: tuple[EditType, ...] = ("number", "unit") if len(amounts) > 1 else ("number",)
    return Vocabulary(name, kinds, tuple(values))


def _quantity(number: Fraction, unit: str, units: tuple[str, ...]) -> Value:
    known = UNITS[unit]
    total = number * known.factor
    forms, adjectives = _amount(number, known), _adjective(number, known)
    largest = _LARGEST_TIME if known.base in ("s", "months") else _LARGEST
    for other in (UNITS[name] for name in units if name != unit):
        there = total / other.factor
        if other.base == known.base and there <= largest and (there.denominator == 1 or there in _ROUND):
            forms += _amount(there, other)
            adjectives += _adjective(there, other)
    return Value(f"{total} {known.base}", {"": tuple(forms), "adj": tuple(adjectives)}, str(number), unit)


_LARGEST, _LARGEST_TIME = 2000, 120
"""Larger numbers are no natural wording: 1500 m is one of 1.5 km, but 2880 minutes is none of two days."""
_ROUND = (Fraction(1, 2), Fraction(3, 2), Fraction(5, 2))


def _amount(number: Fraction, unit: Unit) -> list[str]:
    if number == Fraction(1, 2):
        return [f"half {_article(unit.one)} {unit.one}", f"0.5 {unit.many}"]
    if number.denominator != 1:
        whole = int(number)
        spoken = f"{_article(unit.one)} {unit.one}" if whole == 1 else f"{_WORDS[whole]}"
        spoken = f"{spoken} and a half" if whole == 1 else f"{spoken} and a half {unit.many}"
        return [f"{float(number)} {unit.many}", spoken]
    count, noun = int(number), unit.one if number == 1 else unit.many
    forms = [f"{count} {noun}"]
    if count == 1:
        forms.append(f"one {noun}")
    elif count <= 12:
        forms.append(f"{_WORDS[count]} {noun}")
    if unit.short:
        forms.append(f"{count}{unit.short}")
    return forms


def _adjective(number: Fraction, unit: Unit) -> list[str]:
    if number.denominator != 1:
        return [f"{float(number)}-{unit.one}"] if number > 1 else [f"half-{unit.one}"]
    return [f"{number}-{unit.one}"]


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" or word == "hour" else "a"


def counts(name: str, kind: EditType, numbers: Iterable[int]) -> Vocabulary:
    """Plain numbers, as numerals and, up to twenty, as words."""
    return Vocabulary(
        name,
        (kind,),
        tuple(
            Value(str(n), {"": (str(n), _WORDS[n]) if n <= 20 else (str(n),), "numeral": (str(n),)}, str(n))
            for n in numbers
        ),
    )


def identifiers(name: str, count: int, digits: int) -> Vocabulary:
    """Numbers of orders and the like. Every second one differs from the one before by two swapped digits."""
    rng = random.Random(name)
    made: list[str] = []
    while len(made) < count:
        number = [str(rng.randint(1, 9)) for _ in range(digits)]
        at = rng.randrange(digits - 1)
        if number[at] == number[at + 1]:
            continue
        made.append("".join(number))
        number[at], number[at + 1] = number[at + 1], number[at]
        made.append("".join(number))
    numbers = dict.fromkeys(made)
    return Vocabulary(name, ("number",), tuple(Value(n, {"": (n, f"#{n}"), "bare": (n,)}, n) for n in numbers))


def money(name: str, amounts: Iterable[int]) -> Vocabulary:
    """Sums in dollars, euros and pounds."""
    currencies = {"usd": ("$", "dollars"), "eur": ("€", "euros"), "gbp": ("£", "pounds")}
    values = []
    for amount in amounts:
        for code, (sign, noun) in currencies.items():
            forms = [f"{sign}{amount}", f"{amount} {noun}", f"{amount} {code.upper()}"]
            if amount >= 1000:
                forms.append(f"{sign}{amount:,}")
            values.append(Value(f"{amount} {code}", {"": tuple(forms)}, str(amount), code))
    return Vocabulary(name, ("number", "unit"), tuple(values))


def temperatures(name: str, degrees: Mapping[Literal["C", "F"], Iterable[int]]) -> Vocabulary:
    """Degrees on either scale."""
    scales = {"C": "Celsius", "F": "Fahrenheit"}
    values = [
        Value(f"{n} {scale}", {"": (f"{n} °{scale}", f"{n} degrees {scales[scale]}", f"{n}{scale}")}, str(n), scale)
        for scale, numbers in degrees.items()
        for n in numbers
    ]
    return Vocabulary(name, ("number", "unit") if len(degrees) > 1 else ("number",), tuple(values))


def percentages(name: str, numbers: Iterable[int]) -> Vocabulary:
    """Percentages."""
    return Vocabulary(
        name,
        ("number",),
        tuple(Value(f"{n}%", {"": (f"{n}%", f"{n} percent", f"{n} per cent")}, str(n)) for n in numbers),
    )


def dates(name: str, year: int) -> Vocabulary:
    """All days of a year, worded with the year, sometimes with the weekday that follows from it."""
    return _days(
        name,
        year,
        "%Y-%m-%d",
        lambda day: (
            f"{day.day} {day:%B %Y}",
            f"{day:%B} {day.day}, {day.year}",
            day.isoformat(),
            f"{day:%A} {day.day} {day:%B %Y}",
            f"{day:%B} {_ordinal(day.day)} {day.year}",
        ),
    )


def days_of_year(name: str) -> Vocabulary:
    """All days of a year, worded without a year."""
    return _days(
        name,
        2027,
        "%m-%d",
        lambda day: (
            f"{day.day} {day:%B}",
            f"{day:%B} {day.day}",
            f"{day:%B} {_ordinal(day.day)}",
            f"the {_ordinal(day.day)} of {day:%B}",
        ),
    )


def _days(name: str, year: int, canonical: str, worded: Callable[[datetime.date], tuple[str, ...]]) -> Vocabulary:
    days = (datetime.date(year, 1, 1) + datetime.timedelta(days=i) for i in range(365))
    values = (Value(day.strftime(canonical), {"": worded(day)}, str(day.day), f"{day:%B}") for day in days)
    return Vocabulary(name, ("date",), tuple(values))


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def clock_times(name: str) -> Vocabulary:
    """Times of day from 6:00 to 22:30 by the half hour, on the twelve-hour and the 24-hour clock."""
    values = []
    for hour in range(6, 23):
        for minute in (0, 30):
            half = "am" if hour < 12 else "pm"
            short = (hour - 1) % 12 + 1
            if minute:
                forms = [f"{short}:30 {half}", f"{short}:30{half}", f"{hour:02}:30"]
            else:
                forms = [f"{short} {half}", f"{short}{half}", f"{hour:02}:00", f"{short}:00 {half}"]
                if hour == 12:
                    forms += ["noon", "12 noon"]
            values.append(Value(f"{hour:02}:{minute:02}", {"": tuple(forms)}, f"{short}:{minute:02}", half))
    return Vocabulary(name, ("clock",), tuple(values))
