"""Dates in one form: "3 May 2024", "May 3rd, 2024" and "2024-05-03" read alike."""

from __future__ import annotations

import re
from collections.abc import Sequence

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_SHORT = {"mar": "march"}
_YEAR_FIRST = re.compile(r"([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})")
_YEAR_LAST = re.compile(r"([0-9]{1,2})([-/.])([0-9]{1,2})[-/.]([0-9]{4})")


def canonical(written: str) -> str:
    """A date in digits as year-month-day. 03/04/2024 stays as it is: it is in March or in April."""
    if match := _YEAR_FIRST.fullmatch(written):
        year, month, day = (int(part) for part in match.groups())
        return _form(year, month, day)
    if match := _YEAR_LAST.fullmatch(written):
        first, second, year = int(match[1]), int(match[3]), int(match[4])
        if match[2] == "." or first > 12:
            return _form(year, second, first)
        if second > 12:
            return _form(year, first, second)
    return written


def _form(year: int | None, month: int, day: int | None) -> str:
    return f"{year or '*'}-{month:02}-{day or '*'}"


def at(forms: Sequence[str], start: int) -> tuple[str, int] | None:
    """A date in words that begins at `start`: its form and how many tokens it takes; None if none does.

    `forms` are the tokens' forms, numbers with # before them. A month on its own is no date here.
    """
    day = _day(forms, start)
    if day is not None:
        where = start + 1 + (start + 1 < len(forms) and forms[start + 1] == "of")
        month = _month(forms, where)
        if month is None:
            return None
        year = _year(forms, where + 1)
        return _form(year, month, day), where + 1 - start + (year is not None)
    month = _month(forms, start)
    if month is None:
        return None
    day = _day(forms, start + 1)
    year = _year(forms, start + 1 + (day is not None))
    if day is None and year is None:
        return None
    return _form(year, month, day), 1 + (day is not None) + (year is not None)


def _month(forms: Sequence[str], at: int) -> int | None:
    name = _SHORT.get(forms[at], forms[at]) if at < len(forms) else ""
    return MONTHS.index(name) + 1 if name in MONTHS else None


def _day(forms: Sequence[str], at: int) -> int | None:
    digits = forms[at].removeprefix("#").removesuffix("th") if at < len(forms) and forms[at][:1] == "#" else ""
    return int(digits) if digits.isdigit() and 1 <= int(digits) <= 31 else None


def _year(forms: Sequence[str], at: int) -> int | None:
    digits = forms[at].removeprefix("#") if at < len(forms) and forms[at][:1] == "#" else ""
    return int(digits) if digits.isdigit() and 1000 <= int(digits) <= 2999 else None
