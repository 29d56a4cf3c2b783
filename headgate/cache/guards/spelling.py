"""What only its spelling tells: accents, other alphabets and signs, and letters whose case matters.

The other guards read words in lower case, and the encoder reads them without accents, too: to both *año* is *ano*, 3 mW
are 3 MW, and many letters and signs are all the same one that it does not know.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from headgate.cache.guards.words import word_set

_RUN = re.compile(r"\w+|[^\w\s]")
_TYPOGRAPHY = frozenset("‘’‚‛“”„‟«»‹›–—―‐‑‒−…•·¿¡、。，？！：；「」『』（）€£¥¢°½¼¾⅓⅔\u00ad")
"""Signs that say nothing, or that other guards read."""

_UNIT = re.compile(r"(?<![\w.,])[0-9][0-9.,]*\s?([^\W\d_]{1,4})(?![^\W_])")
_ALONE = re.compile(r"(?<![\w.])[mMpP][A-Z][a-z]?(?!\w)")
"""A unit that no number stands before, in letters that no word has."""
_MEASURES = word_set("g s a w v j n l m f h c k pa wh ah va ev sv gy bar mol cal ohm ω")
"""Units before which m is milli and M mega, p pico and P peta."""
_NO_UNITS = word_set("pm ps pa pc ph mc ma'am mk pk")
"""Other words in their letters: in the afternoon, PlayStation, computers, acidity, brands."""
_CODE = re.compile(r"`([^`\n]+)`|(?<!\S)(--?[A-Za-z][\w-]*)|(\\[A-Za-z])(?![A-Za-z])|(?<!\S)(%[A-Za-z])(?!\w)")
_QUOTED = re.compile(r"[\"“]([^\s\"“”]+)[\"”]|(?<!\w)['‘]([^\s'‘’]+)['’](?!\w)")
_LETTER = re.compile(r"(?<![\w'’])[A-Za-z](?![\w'’])")
_ABOUT_LETTERS = re.compile(
    r"\b(?:ascii|unicode|vim?|physics|chemistry|math|symbols?|variables?|keys?|commands?|letters?|characters?|constants?"
    r"|notation|regex|upper-?case|lower-?case|capital|flags?|options?|units?)\b",
    re.IGNORECASE,
)
_ELEMENT = re.compile(r"(?<![\w.])(?:Co|No|Hf|Cs|Sn|Os|Po|Pb|Ho|In|Bi|Si|Ni|Sc|Nb|Cf|Na|Pu|Hg)(?!\w)", re.IGNORECASE)
_OF_MATTER = re.compile(
    r"\b(?:elements?|atom\w*|mol\w+|melting|boiling|metals?|toxic|chem\w+|periodic|reacts?|reaction|formula|compounds?"
    r"|gas(?:es)?|oxid\w+|stable|isotopes?|density)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a text is written where that matters.

    Attributes:
        strange: its words and signs that are not ASCII, without regard to case.
        cased: forms whose case matters, by what they are in lower case.
    """

    strange: frozenset[str]
    cased: Mapping[str, Set[str]]


NOTHING_STRANGE = Spelling(frozenset(), MappingProxyType({}))
"""Of a text in plain letters."""


def spelling_of(text: str) -> Spelling:
    """How a text is written."""
    text = unicodedata.normalize("NFC", text)
    strange = frozenset() if text.isascii() else frozenset(_strange(text))
    cased: dict[str, set[str]] = {}
    for kind, form in _cased(text):
        cased.setdefault(f"{kind} {form.lower()}", set()).add(form)
    return Spelling(strange, cased)


def spelled_apart(one: Spelling, other: Spelling) -> bool:
    """Whether two texts differ in a word or sign that is not ASCII, or in the case of the same form."""
    if one.strange != other.strange:
        return True
    return any(one.cased[form] != other.cased[form] for form in one.cased.keys() & other.cased.keys())


def _strange(text: str) -> Iterator[str]:
    for run in _RUN.findall(text):
        if not run.isascii() and run not in _TYPOGRAPHY and unicodedata.category(run[0]) != "Cf":
            yield run.lower()


def _cased(text: str) -> Iterator[tuple[str, str]]:
    for unit in (*_UNIT.findall(text), *_ALONE.findall(text)):
        if _ambiguous(unit):
            # Of the others only the prefix says something: 5 mL are 5 ml.
            yield "unit", unit if unit.lower()[-1] == "b" else unit[0] + unit[1:].lower()
    for match in _CODE.finditer(text):
        yield "code", next(filter(None, match.groups())).strip()
    for match in _QUOTED.finditer(text):
        yield "quoted", next(filter(None, match.groups())).rstrip(".,;:?!")
    if _ABOUT_LETTERS.search(text) is not None:
        for match in _LETTER.finditer(text):
            # The article and the pronoun, unless they are what is asked about.
            if match[0] not in "aI" or not any(map(str.isalnum, text[match.end() :])):
                yield "letter", match[0]
    if _OF_MATTER.search(text) is not None:
        for symbol in _ELEMENT.findall(text):
            if not symbol.islower():
                yield "element", symbol


def _ambiguous(unit: str) -> bool:
    """Whether the unit is another one in other letters: milli and mega, pico and peta, bits and bytes."""
    lower = unit.lower()
    if lower in _NO_UNITS or lower.endswith("bps"):
        return False
    if lower[-1] == "b" and lower[:-1] in ("", "k", "m", "g", "t", "p"):
        # Who writes 5 gb means bytes.
        return len(unit) > 1 and not unit.islower()
    if lower.endswith("hz"):
        return unit != lower
    return unit in ("m", "M") or (lower[0] in "mp" and lower[1:] in _MEASURES)
