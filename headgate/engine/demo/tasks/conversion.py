"""Units, clock times and dates, brought from one form into another."""

from __future__ import annotations

from headgate.engine.demo.tasks.draw import BEYOND, Draw
from headgate.engine.demo.tasks.sample import Task
from headgate.engine.demo.tasks.words import MONTHS

_CONVERT = (
    "Convert {given} to {unit}.",
    "Convert {given} into {unit}.",
    "What is {given} in {unit}?",
    "How much is {given} in {unit}?",
    "{given} in {unit}",
    "Please convert {given} to {unit}.",
    "{given} to {unit}",
    "Express {given} in {unit}.",
    "Write {given} in {unit}.",
    "Can you convert {given} to {unit}?",
    "Give me {given} in {unit}.",
    "Turn {given} into {unit}.",
    "{given} = ? (in {unit})",
    "I have {given}. What is that in {unit}?",
    "Change {given} to {unit}.",
    "{given}\n\nConvert this to {unit}.",
    "Please write {given} in {unit}.",
    "Can you give me {given} in {unit}?",
)
_SHORT_UNITS: tuple[tuple[str, str, int], ...] = (
    ("km", "m", 1000), ("m", "cm", 100), ("cm", "mm", 10), ("m", "mm", 1000), ("kg", "g", 1000), ("t", "kg", 1000),
    ("l", "ml", 1000), ("g", "mg", 1000), ("h", "min", 60), ("min", "s", 60),
)  # fmt: skip
_LONG_UNITS: tuple[tuple[str, str, int], ...] = (
    ("kilometres", "metres", 1000), ("metres", "centimetres", 100), ("centimetres", "millimetres", 10),
    ("kilograms", "grams", 1000), ("tonnes", "kilograms", 1000), ("litres", "millilitres", 1000),
    ("euros", "cents", 100), ("dollars", "cents", 100), ("hours", "minutes", 60), ("minutes", "seconds", 60),
    ("weeks", "days", 7),
)  # fmt: skip
_UNITS = _SHORT_UNITS + _LONG_UNITS


def conversion(draw: Draw) -> Task:
    """Level 1: to a smaller unit; 2: back, units in two parts, ISO dates; 3: mixed units with working, dates, days.

    Level 4 has longer numbers and weekdays further ahead. Dates do not get longer, so it has none.
    """
    if draw.level == 1:
        large, small, factor = draw.pick(_UNITS)
        count = draw.number(2, 9 if factor in (7, 60) else 99)
        return _converted(draw, f"{count} {large}", small, f"{count * factor} {small}")
    if draw.level == 2:
        kind = draw.pick(("back", "back", "parts", "parts", "date"))
        return _back(draw) if kind == "back" else _parts(draw) if kind == "parts" else _date(draw, ("iso", "long"))
    kinds = ("clock", "split", "plus", "compare", "date", "days", "weekday")
    kind = draw.pick(kinds if draw.level < BEYOND else ("clock", "split", "plus", "compare", "weekday"))
    if kind == "clock":
        return _clock(draw)
    if kind == "split":
        return _split(draw)
    if kind == "plus":
        return _plus(draw)
    if kind == "compare":
        return _compare(draw)
    return _date(draw, tuple(_FORMS)) if kind == "date" else _days(draw) if kind == "days" else _weekday(draw)


def _converted(draw: Draw, given: str, unit: str, answer: str) -> Task:
    shown = draw.phrase(_CONVERT).format(given=given, unit=unit)
    return Task(shown, answer, f"{given} in {unit}")


def _back(draw: Draw) -> Task:
    large, small, factor = draw.pick(_UNITS)
    count = draw.number(2, 9 if factor in (7, 60) else 99)
    return _converted(draw, f"{count * factor} {small}", large, f"{count} {large}")


def _two_parts(draw: Draw, step: int = 1) -> tuple[str, str, int, int, int]:
    # Decimal units only, in two parts: digits are copied, with zeros between where the small part is short.
    large, small, factor = draw.pick([unit for unit in _UNITS if unit[2] >= max(100, step * 10)])
    low = draw.chance(0.25)
    rest = step * draw.number(1 if step > 1 else 2, (factor // 10 if low and step == 1 else factor) // step - 1)
    return large, small, factor, draw.number(*((2, 29) if draw.level < BEYOND else (100, 299))), rest


def _parts(draw: Draw) -> Task:
    large, small, factor, count, rest = _two_parts(draw)
    return _converted(draw, f"{count} {large} {rest} {small}", small, f"{count * factor + rest} {small}")


def _split(draw: Draw) -> Task:
    large, small, factor, count, rest = _two_parts(draw)
    given = f"{count * factor + rest} {small}"
    return _converted(draw, given, f"{large} and {small}", f"{count} {large} {rest} {small}")


def _clock(draw: Draw) -> Task:
    """Hours, minutes, seconds, weeks and days, both ways, with working."""
    large, small, factor = draw.pick([unit for unit in _UNITS if unit[2] in (7, 60)])
    count, rest = draw.number(*((2, 9) if draw.level < BEYOND else (11, 29))), draw.number(2, factor - 1)
    whole, total = count * factor, count * factor + rest
    if draw.chance(0.5):
        answer = f"{count} * {factor} = {whole}, {whole} + {rest} = {total}, so {total} {small}"
        return _converted(draw, f"{count} {large} {rest} {small}", small, answer)
    answer = f"{count} * {factor} = {whole}, {total} - {whole} = {rest}, so {count} {large} {rest} {small}"
    return _converted(draw, f"{total} {small}", f"{large} and {small}", answer)


_PLUS = (
    "What is {a} plus {b} in {unit}?",
    "Add {a} and {b}. Give the sum in {unit}.",
    "{a} + {b} in {unit}",
    "How much is {a} plus {b} in {unit}?",
    "Calculate {a} + {b} in {unit}.",
    "What is the sum of {a} and {b} in {unit}?",
    "Please add {b} to {a}. Answer in {unit}.",
    "Give me {a} plus {b} in {unit}.",
    "{a} and another {b}: how much is that in {unit}?",
    "Work out {a} + {b} and write it in {unit}.",
    "Can you add {a} and {b}? Answer in {unit}.",
    "Please calculate {a} plus {b} in {unit}.",
)


def _plus(draw: Draw) -> Task:
    large, small, factor, count, rest = _two_parts(draw, 100)
    more = 100 * draw.number(1, 9)
    first = count * factor + rest
    given = f"{count} {large} {rest} {small}"
    prompt = draw.phrase(_PLUS).format(a=given, b=f"{more} {small}", unit=small)
    total = first + more
    answer = f"{given} = {first} {small}, {first} + {more} = {total}, so {total} {small}"
    return Task(prompt, answer, f"{given} + {more} {small}")


_MORE = (
    "Which is more: {a} or {b}?",
    "What is more, {a} or {b}?",
    "Which of the two is more: {a} or {b}?",
    "{a} or {b}: which is more?",
    "Compare {a} and {b}. Which is more?",
    "Tell me which is more, {a} or {b}.",
    "Is {a} more or {b}?",
    "{a}, {b}\n\nWhich of these is more?",
    "Please tell me which is more: {a} or {b}.",
    "{a} and {b}: tell me which is more.",
    "Can you tell me which is more, {a} or {b}?",
    "Compare {a} with {b}: what is more?",
)
_LESS = tuple(wording.replace("more", "less") for wording in _MORE)


def _compare(draw: Draw) -> Task:
    large, small, factor = draw.pick(_UNITS)
    count = draw.number(*((2, 9) if draw.level < BEYOND else (101, 299)))
    # Near the other amount, so that its first digits alone do not decide.
    other = count * factor + draw.pick((-1, 1)) * max(1, factor // 10) * draw.number(1, 9)
    first, second = f"{count} {large}", f"{other} {small}"
    less = draw.chance(0.4)
    best = first if (count * factor < other) == less else second
    a, b = (first, second) if draw.chance(0.5) else (second, first)
    prompt = draw.phrase(_LESS if less else _MORE).format(a=a, b=b)
    return Task(prompt, f"{first} = {count * factor} {small}, so {best}", f"{'less' if less else 'more'}|{a}|{b}")


_FORMS = {
    "iso": ("YYYY-MM-DD", "an ISO date", "an ISO date (YYYY-MM-DD)"),
    "long": ("D Month YYYY", "a long date", "a long date (D Month YYYY)"),
    "american": ("Month D, YYYY", "an American date", "an American date (Month D, YYYY)"),
    "dots": ("DD.MM.YYYY", "a date with dots", "a date with dots (DD.MM.YYYY)"),
}
_REFORM = (
    "Write the date {date} as {form}.",
    "Write {date} as {form}.",
    "Convert the date {date} to {form}.",
    "Convert {date} to {form}.",
    "Change the date {date} to {form}.",
    "{date}\n\nWrite this date as {form}.",
    "Please write the date {date} as {form}.",
    "Date: {date}\nWrite it as {form}.",
    "Give me {date} as {form}.",
    "Can you write {date} as {form}?",
    "Put the date {date} down as {form}.",
    "Turn {date} into {form}.",
    "Give me the date {date} as {form}.",
    "Rewrite the date {date} as {form}.",
    "The date is {date}. Write it as {form}.",
    "Please convert the date {date} to {form}.",
    "Can you give me the date {date} as {form}?",
    "{date}\nPlease change this date to {form}.",
)


def dated(form: str, day: int, month: int, year: int) -> str:
    """The date in one of the four forms."""
    if form == "iso":
        return f"{year}-{month:02}-{day:02}"
    if form == "dots":
        return f"{day:02}.{month:02}.{year}"
    name = MONTHS[month - 1]
    return f"{day} {name} {year}" if form == "long" else f"{name} {day}, {year}"


def _date(draw: Draw, forms: tuple[str, ...]) -> Task:
    given, wanted = draw.some(forms, 2)
    day, month, year = draw.number(1, 28), draw.number(1, 12), draw.number(1950, 2049)
    form = draw.style(_FORMS[wanted])
    prompt = draw.phrase(_REFORM).format(date=dated(given, day, month, year), form=form)
    return Task(prompt, dated(wanted, day, month, year), f"{dated(given, day, month, year)} as {wanted}")


_LATER = (
    "What is the date {n} days after {date}?",
    "Which date is {n} days after {date}?",
    "What date comes {n} days after {date}?",
    "Give me the date {n} days after {date}.",
    "Tell me the date {n} days after {date}.",
    "Today is {date}. What is the date {n} days after that?",
    "Date: {date}\nWhich date is {n} days after it?",
    "Which day is {n} days after {date}?",
    "Please give me the date {n} days after {date}.",
    "Work out the date {n} days after {date}.",
    "Can you tell me the date {n} days after {date}?",
    "Please tell me which date is {n} days after {date}.",
)
_EARLIER = tuple(wording.replace("after", "before") for wording in _LATER)


def _days(draw: Draw) -> Task:
    month, year = draw.number(1, 12), draw.number(1950, 2049)
    early = draw.number(1, 26)
    late = draw.number(early + 2, min(28, early + 20))
    before = draw.chance(0.4)
    day, result, sign = (late, early, "-") if before else (early, late, "+")
    count = late - early
    date = dated("long", day, month, year)
    prompt = draw.phrase(_EARLIER if before else _LATER).format(n=count, date=date)
    answer = f"{day} {sign} {count} = {result}, so {dated('long', result, month, year)}"
    return Task(prompt, answer, f"{date} {sign} {count} days")


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAY = (
    "Which day of the week is {n} days after {day}?",
    "What day of the week comes {n} days after {day}?",
    "What day is it {n} days after {day}?",
    "Today is {day}. What day is it in {n} days?",
    "If today is {day}, what day is it in {n} days?",
    "It is {day}. Which day of the week will it be in {n} days?",
    "Tell me the day of the week {n} days after {day}.",
    "{day} plus {n} days is which day of the week?",
    "Give me the day of the week {n} days after {day}.",
    "Please tell me which day of the week is {n} days after {day}.",
    "Start on {day} and go {n} days on. Which day of the week is that?",
    "It is {day} today. What day will it be in {n} days?",
    "Count {n} days on from {day}. Which day is that?",
    "Today is {day}. Which day of the week is it in {n} days?",
    "If it is {day}, what day will it be in {n} days?",
    "Can you tell me which day comes {n} days after {day}?",
)


def _weekday(draw: Draw) -> Task:
    start, count = draw.number(0, 6), draw.number(*((2, 6) if draw.level < BEYOND else (7, 10)))
    days = [WEEKDAYS[(start + step) % 7] for step in range(1, count + 1)]
    prompt = draw.phrase(_WEEKDAY).format(n=count, day=WEEKDAYS[start])
    return Task(prompt, f"{', '.join(days)}, so {days[-1]}", f"{WEEKDAYS[start]} + {count} days")
