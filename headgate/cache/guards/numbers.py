"""Quantities in one form: "90 min", "1.5 h" and "ninety minutes" read alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDER = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"

_SMALL: Mapping[str, int] = MappingProxyType(
    {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
    | {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}
    | {"dozen": 12}
)
_SCALES: Mapping[str, int] = MappingProxyType(
    {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
)
_ORDINALS: Mapping[str, int] = MappingProxyType({word: value for value, word in enumerate(_ORDER.split(), start=1)})


SPELLED = frozenset({*_SMALL, *_SCALES, *_ORDINALS, "hundred"})
"""Words that a number, or a place in a series, may begin with."""


def _units() -> Mapping[str, tuple[str, Fraction]]:
    table: dict[str, tuple[str, Fraction]] = {}
    for dimension, names, factor in (
        ("s", "ms millisecond milliseconds", Fraction(1, 1000)),
        ("s", "s sec secs second seconds", 1),
        ("s", "min mins minute minutes", 60),
        ("s", "h hr hrs hour hours", 3600),
        ("s", "day days", 86400),
        ("s", "week weeks", 604800),
        ("month", "month months", 1),
        ("month", "year years yr yrs", 12),
        ("m", "mm millimeter millimeters millimetre millimetres", Fraction(1, 1000)),
        ("m", "cm centimeter centimeters centimetre centimetres", Fraction(1, 100)),
        ("m", "meter meters metre metres", 1),
        ("m", "km kilometer kilometers kilometre kilometres", 1000),
        ("inch", "inch inches", 1),
        ("inch", "ft foot feet", 12),
        ("inch", "yard yards yd", 36),
        ("inch", "mile miles mi", 63360),
        ("g", "mg milligram milligrams", Fraction(1, 1000)),
        ("g", "g gram grams", 1),
        ("g", "kg kilo kilos kilogram kilograms", 1000),
        ("oz", "oz ounce ounces", 1),
        ("oz", "lb lbs pound pounds", 16),
        ("l", "ml milliliter milliliters millilitre millilitres", Fraction(1, 1000)),
        ("l", "l liter liters litre litres", 1),
        ("byte", "byte bytes", 1),
        ("byte", "kB KB kilobyte kilobytes", 10**3),
        ("byte", "MB megabyte megabytes", 10**6),
        ("byte", "GB gigabyte gigabytes", 10**9),
        ("byte", "TB terabyte terabytes", 10**12),
        ("%", "% percent pct percentage", 1),
        ("usd", "$ usd USD dollar dollars", 1),
        ("eur", "€ eur EUR euro euros", 1),
        ("gbp", "£ gbp GBP", 1),
        ("yen", "¥ jpy JPY yen", 1),
        ("°c", "°C celsius Celsius c", 1),
        ("°f", "°F fahrenheit Fahrenheit f", 1),
    ):
        table |= dict.fromkeys(names.split(), (dimension, Fraction(factor)))
    return MappingProxyType(table)


UNITS = _units()
"""Unit as written → (dimension, factor). Ambiguous ones are absent: m, in, M, mb, pound as money."""

_GLUED = re.compile(r"([$€£¥]?)\s?([0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:\s?([^\W\d_]+|%|°[CF]))?")
_ORDINAL_SUFFIX = re.compile(r"st|nd|rd|th", re.IGNORECASE)


def unit_of(word: str) -> str | None:
    """The unit as the table knows it, in this case or in lower case for whole words."""
    if word in UNITS:
        return word
    lower = word.lower()
    return lower if len(lower) > 2 and lower in UNITS else None


def canonical(digits: str, unit: str | None, scale: int = 1) -> str:
    """One form of a number: `#90`, `#5400s`, `#5usd`.

    A plain decimal keeps its digits, because 3.10 may be a version and not 3.1; so does a number with leading zeros.
    """
    plain = digits.replace(",", "")
    if unit is None and scale == 1:
        return f"#{plain}"
    if plain.endswith("/0"):
        return f"#{plain}{unit or ''}"
    dimension, factor = ("", Fraction(1)) if unit is None else UNITS[unit]
    return f"#{Fraction(plain) * factor * scale}{dimension}"


def split_glued(text: str) -> tuple[str, str | None, bool] | None:
    """Take `$5`, `90min` or `3rd` apart: digits, unit, whether it is an ordinal. None where the letters are no unit."""
    match = _GLUED.fullmatch(text)
    if match is None:
        return None
    currency, digits, suffix = match.groups()
    if suffix is None:
        return digits, currency or None, False
    if currency:
        return None
    if _ORDINAL_SUFFIX.fullmatch(suffix):
        return digits, None, True
    return (digits, suffix, False) if suffix in UNITS else None


_SCALED = re.compile(r"([$€£¥]?)\s?([0-9][0-9,]*(?:\.[0-9]+)?)\s?(k|K|m|M|mn|bn|B|F|C|°\s?F|°\s?C)")
_LETTERS = MappingProxyType({"k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "mn": 10**6, "bn": 10**9, "B": 10**9})
_GLYPHS = MappingProxyType({"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"})


def scaled(text: str) -> str | None:
    """The form of `1.5k` or `$2M`; None for other texts. Without a currency 2m are metres and 2M may be anything."""
    match = _SCALED.fullmatch(text)
    if match is not None and match[3][-1] in "FC":
        return canonical(match[2], f"°{match[3][-1]}")
    if match is None or (match[3] not in ("k", "K", "bn", "mn") and not match[1]):
        return None
    return canonical(match[2], match[1] or None, _LETTERS[match[3]])


def fraction(text: str) -> str:
    """One form of `1/2` and `½`, and of `1 1/2` and `3/2`. 10/5 stays: who asks for it does not ask for 2."""
    whole, _, rest = text.rpartition(" ")
    written = _GLYPHS.get(rest, rest)
    above, below = (int(part) for part in written.split("/"))
    return f"{int(whole) * below + above}/{below}" if whole else written


def plus_half(form: str) -> str:
    """The form of a number and a half; a form that is no plain number stays as it is."""
    try:
        return f"#{Fraction(form.removeprefix('#')) + Fraction(1, 2)}"
    except ValueError:
        return form


def ordinal_word(word: str) -> int | None:
    """2 for `second`."""
    return _ORDINALS.get(word)


def scale_of(word: str) -> int | None:
    """1000 for `thousand`; None for other words."""
    return _SCALES.get(word)


def read_words(words: Sequence[str], start: int) -> tuple[int, int] | None:
    """A number in words that begins at `start`: its value and how many words it takes.

    "one hundred and five" is one number, "one two" are two.
    """
    if words[start] not in _SMALL and words[start] != "hundred" and words[start] not in _SCALES:
        return None
    total = 0
    current: int | None = None
    at = start
    while at < len(words):
        word = words[at]
        if word == "and" and (total or (current is not None and current >= 100)) and at + 1 < len(words):
            if words[at + 1] not in _SMALL or (current or 0) % 100:
                break
            at += 1
            continue
        small = _SMALL.get(word)
        if small is not None:
            if current is not None and not _may_follow(current, small):
                break
            current = (current or 0) + small
        elif word == "hundred":
            if current is not None and not 0 < current < 100:
                break
            current = 100 * (1 if current is None else current)
        elif word in _SCALES:
            if current is None and total:
                break
            total += (1 if current is None else current) * _SCALES[word]
            current = None
        else:
            break
        at += 1
    return total + (current or 0), at - start


def _may_follow(current: int, small: int) -> bool:
    """Whether `small` continues the number `current`: 100 + 25, 20 + 5, but not 1 + 2 and not 12 + 3."""
    if current % 100 == 0:
        return current > 0
    return current % 10 == 0 and current % 100 >= 20 and 0 < small < 10
