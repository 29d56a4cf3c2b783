"""Whether two answers say the same, as far as their form alone can tell.

An answer that is a number, a word or two, a list or JSON has one meaning, so two of a kind are either equal or
different. Of sentences only equality can be told: two that differ may well mean the same, and then nobody decides here.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

Form = Literal["number", "word", "list", "json", "text"]

_FENCE = re.compile(r"^```[\w-]*\n(.*?)\n?```$", re.DOTALL)
_CALL = re.compile(r"^<tool_call>\s*(.*?)\s*</tool_call>$", re.DOTALL)
_LEAD = re.compile(r"^(?:(?:the )?(?:final )?(?:answer|result)(?: is)?|it is|it's|that is|that's)\s*:?\s+")
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[-+]?\d+)?")
_BULLET = re.compile(r"^\s*[-*•]\s+")
_NUMBERED = re.compile(r"^\s*\d+[.)]\s+")
# Where the question says a word of order, the order of the answer's items is part of the answer.
_ORDERED = re.compile(
    r"\b(?:order|ordered|sort\w*|rank\w*|arrang\w*|alphabetical\w*|ascending|descending|revers\w*|backwards?|first"
    r"|last|second|third|next|before|after|steps?|sequence|how (?:do|to|can)|repeat\w*"
    r"|(?:small|larg|old|young|high|low)est)\b"
)
# Where it asks for upper or lower case, so is case.
_CASED = re.compile(r"\b(?:(?:upper|lower)[- ]?case\w*|capital(?:s|ized?|ised?| letters?)|(?:small|big) letters?)\b")
_WRAPPING = "\"'`*_“”‘’"
_ENDING = ".!?;:,… "
_MOST_WORDS = 3


@dataclass(frozen=True, slots=True)
class Canonical:
    """An answer without what does not change its meaning; equal values of one form mean the same."""

    form: Form
    value: str


def canonical(text: str, *, question: str = "") -> Canonical:
    """The canonical form of an answer to `question`: case, outer punctuation, spacing and number format are gone.

    Case stays where the question asks for one. Items of a list are sorted where they are bulleted or stand between
    commas and the question asks for no order.
    """
    text = unicodedata.normalize("NFKC", text).strip()
    for wrapper in (_FENCE, _CALL):
        if match := wrapper.match(text):
            text = match.group(1).strip()
    if text[:1] in ("{", "["):
        try:
            # Numbers go through Decimal, so that 1, 1.0 and 1e0 are one.
            value = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
        except (ValueError, InvalidOperation, RecursionError):
            pass
        else:
            return Canonical("json", json.dumps(_plain(value), sort_keys=True, ensure_ascii=False))
    fold = str if _CASED.search(question.casefold()) else str.casefold
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and (items := _items(lines)) is not None:
        numbered = _NUMBERED.match(lines[0]) is not None
        return _list([fold(item) for item in items], question, ordered=numbered)
    line = _stripped(_LEAD.sub("", _stripped(" ".join(fold(text).split()))))
    if (number := _number(line)) is not None:
        return Canonical("number", number)
    words = line.split()
    if 2 <= line.count(",") + 1 == len([part for part in line.split(",") if len(part.split()) in range(1, 4)]):
        return _list(line.split(","), question, ordered=False)
    return Canonical("word" if len(words) <= _MOST_WORDS else "text", line)


def same_answer(one: str, other: str, *, question: str = "") -> bool | None:
    """Whether two answers to one question mean the same; None where their form does not tell."""
    first, second = canonical(one, question=question), canonical(other, question=question)
    if first == second:
        return bool(first.value) or None
    if first.form == second.form == "number" and Decimal(first.value) == Decimal(second.value):
        # 1.5 and 1.50 may be one price or two versions.
        return None
    # A number in a sentence may be the same number, and a sentence may say the same in other words.
    if first.form != second.form or first.form == "text":
        return None
    return False


def _items(lines: list[str]) -> list[str] | None:
    for marker in (_BULLET, _NUMBERED):
        if all(marker.match(line) for line in lines):
            return [marker.sub("", line) for line in lines]
    return None


def _list(items: list[str], question: str, *, ordered: bool) -> Canonical:
    plain = [_stripped(" ".join(item.split())) for item in items]
    plain = [_number(item) or item for item in plain]
    if not ordered and not _ORDERED.search(question.casefold()):
        plain.sort()
    return Canonical("list", "\n".join(plain))


def _stripped(text: str) -> str:
    """Without quotes, emphasis and final punctuation around it."""
    before = None
    while text != before:
        before, text = text, text.strip(_WRAPPING).rstrip(_ENDING).lstrip()
    return text


def _number(text: str) -> str | None:
    if not any(c.isdigit() for c in text) or not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "").removeprefix("+")
    whole, _, fraction = plain.partition(".")
    return plain if fraction.strip("0") else whole


def _decimal(value: Decimal) -> str:
    # Exponents beyond these would write out millions of zeros.
    if value == 0:
        return "0"
    return f"{value.normalize():f}" if abs(value.adjusted()) < 40 else str(value.normalize())


def _plain(value: object) -> object:
    match value:
        case Decimal():
            return {"number": _decimal(value)}
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case str():
            return " ".join(value.split())
        case _:
            return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
