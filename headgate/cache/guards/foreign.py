"""Texts that are not English: what the guards know, the encoder and every certificate are of English alone."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from headgate.cache.guards.english import lines
from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.vocabulary import part_of_speech, weight
from headgate.cache.guards.words import word_set

_ASIDE = re.compile(
    r"```.*?```|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|‘[^’\n]+’|(?<!\w)'[^'\n]+'(?!\w)|\w+://\S+", re.DOTALL
)
"""What stands in a text as it is: how does one say "guten Morgen"."""
_WORD = re.compile(r"(?<!\w)[^\W\d_]+(?:-[^\W\d_]+)*(?!\w)")
_SHARED = word_set("a i in on an am was will is of do to no me so we he over had her also up now it or us as at")
"""English function words that are words elsewhere too."""
_KNOWN = 1 / 3
"""Share of English words below which a text with no function word of any language, but with letters that English has
not, is taken for another language's."""


@lru_cache(maxsize=1)
def _elsewhere() -> frozenset[str]:
    return frozenset(word for line in lines("elsewhere.txt") for word in line.split())


def foreign(text: str) -> bool:
    """Whether a text asks in another language than English, what it quotes aside.

    Told by function words, English against others; a text without any by its letters and by how many of its words are
    English ones.
    """
    plain = _ASIDE.sub(" ", unicodedata.normalize("NFC", text))
    shouting = plain.upper() == plain
    found = [word for word in _WORD.findall(plain) if shouting or len(word) == 1 or not word.isupper()]
    words = [word.lower() for word in found]
    ours = sum(weight(word) == 0 and word not in _SHARED for word in words)
    theirs = sum(word in _elsewhere() for word in words)
    told = [word for word in words if word not in _SHARED and not _symbol(word)]
    if theirs == 1 and not ours and all(map(str.isascii, told)):
        # One may be a name, a format or an abbreviation: chi, sans, MIT.
        rest = [word for word in told if word not in _elsewhere()]
        return 2 * sum(map(_english, rest)) < max(1, len(rest))
    if theirs != ours:
        return theirs > ours
    if ours:
        return False
    if not all(map(_latin, told)):
        return True
    # Names of products and short words of a trade are no English words either.
    return not all(map(str.isascii, told)) and sum(map(_english, told)) < _KNOWN * len(told)


def _symbol(word: str) -> bool:
    """A lone letter of the Greek alphabet, as formulas have it."""
    return len(word) == 1 and unicodedata.name(word, "").startswith(("GREEK", "MICRO"))


def _latin(word: str) -> bool:
    return word.isascii() or all(
        unicodedata.name(letter, "").startswith("LATIN") for letter in word if letter.isalpha()
    )


def _english(word: str) -> bool:
    return weight(word) < 2 or part_of_speech(base_form(word)) != "?"
