"""Places in a series in one form: "Second World War", "World War 2" and "World War II" read alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from headgate.cache.guards.words import word_set

_ROMAN = re.compile(r"(?=[ivxl])(xl|l?x{0,3})(ix|iv|v?i{0,3})")
_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50}
_IN_ORDER = word_set(
    "war part chapter act scene volume edition season episode grade quarter semester round phase stage lesson verse"
    " trimester term week canto movement period inning innings"
)
"""The third act is act three."""
_LETTERED = _IN_ORDER | word_set(
    "type class level section article title table figure appendix group category division form factor model book"
    " mark version bowl amendment"
)
"""Part IV is part 4."""
_MAY_SAY_I = _LETTERED - {"war", "type", "phase", "bowl", "grade", "stage"}
"""`The book I read`: there I is who reads."""
_AFTER_PLACE = word_set("of in is was are were and or the to from for on at start begin end cover about")
SHORT = MappingProxyType({"wwi": 1, "wwii": 2, "ww1": 1, "ww2": 2})
"""The wars by their short names."""
_QUARTER = re.compile(r"q([1-4])")
_WHOLE = frozenset({"natural", "positive", "whole", "counting", "integer"})
_NUMBERS = frozenset({"numbers", "integers", "naturals"})


def numeral(words: Sequence[str], at: int, *, name: bool, written_large: bool) -> int | None:
    """What a Roman numeral counts; None where the letters are a word.

    Args:
        words: lower-case words of the text, empty where something else stands.
        at: where the letters stand.
        name: the word before them is a name: Henry VIII.
        written_large: they are more than one letter, and capitals.
    """
    letters = words[at]
    if not at or not letters or _ROMAN.fullmatch(letters) is None:
        return None
    before, behind = words[at - 1], words[at + 1] if at + 1 < len(words) else ""
    if before not in _LETTERED and not (name and written_large):
        return None
    if letters == "i" and before in _MAY_SAY_I and behind and behind not in _AFTER_PLACE:
        return None
    values = [_VALUES[letter] for letter in letters]
    return sum(
        -value if value < following else value for value, following in zip(values, [*values[1:], 0], strict=True)
    )


def place(forms: Sequence[str], at: int) -> tuple[tuple[str, ...], int] | None:
    """A place in a series that begins at `at`: the words and the number as an ordinal, and how many forms it takes.

    `forms` are the tokens' forms, numbers with # before them. `the first 100 numbers` are the numbers from 1 to 100.
    """
    form = forms[at].lower()
    following = [other.lower() for other in forms[at + 1 : at + 4]]
    if form in SHORT:
        return ("world", "war", f"#{SHORT[form]}th"), 1
    if (quarter := _QUARTER.fullmatch(form)) is not None:
        return ("quarter", f"#{quarter[1]}th"), 1
    if form == "#1th" and following[:1] and following[0].removeprefix("#").isdigit():
        taken = 2 + (following[1:2] != [] and following[1] in _WHOLE)
        if forms[at + taken : at + taken + 1] and forms[at + taken].lower() in _NUMBERS:
            return (*forms[at + 2 : at + taken + 1], "from", "#1", "to", forms[at + 1]), taken + 1
    if form[:1] == "#" and form.endswith("th"):
        if following[:2] == ["world", "war"]:
            return ("world", "war", form), 3
        if following[:1] and following[0] in _IN_ORDER:
            return (following[0], form), 2
    if form in _LETTERED and following[:1] and following[0][:1] == "#" and following[0][1:].isdigit():
        return (form, f"{following[0]}th"), 2
    return None
