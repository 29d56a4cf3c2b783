"""Whether a word in lower case may be the name that another text writes with a capital letter."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.cache.guards.lexicon import PRODUCTS
from headgate.cache.guards.reading import Token
from headgate.cache.guards.vocabulary import part_of_speech, parts_of_speech

_AT_A_NAME = frozenset({"in", "from", "via", "near", "across", "using"})
_DOES = frozenset({"i", "you", "we", "they", "to", "not", "should", "can", "must", "will", "could"})
_ONE_OF_MANY = frozenset({"a", "an", "some", "many", "this", "that", "these", "those"})
_NAMING = frozenset("na?")


def as_name(small: Sequence[Token], at: int, large: Sequence[Token], there: int) -> bool:
    """Whether the word at `at`, in lower case, is read as the name at `there` of the other text.

    Who asks about python or excel often leaves the capital letter out: there a word is a common one only where its
    place says so (`a python in the garden`, `to excel`). Polish, china and turkey are common words unless their place
    is a name's (`in turkey`) or they are part of a longer name.
    """
    form = small[at].form
    before, behind = _form(small, at - 1), _form(small, at + 1)
    if _part_of_a_name(small, at, large, there):
        return True
    acts = before in _DOES and "v" in parts_of_speech(form)
    if form not in PRODUCTS and not _careless(small, large, there):
        return (before in _AT_A_NAME or (before == "to" and not acts)) and behind not in ("a", "an", "the")
    if acts:
        return before == _form(large, there - 1)
    # A python script, but not a python.
    alone = not behind or part_of_speech(behind) not in _NAMING
    return not (before in _ONE_OF_MANY and alone)


def _form(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].form if 0 <= at < len(tokens) and tokens[at].kind == "word" else ""


def _careless(small: Sequence[Token], large: Sequence[Token], there: int) -> bool:
    """Other names stand in small letters too: `is turkey in the eu`."""
    lower = {token.form for token in small if not token.capital}
    return any(token.capital and token.form in lower for at, token in enumerate(large) if at != there)


def _part_of_a_name(small: Sequence[Token], at: int, large: Sequence[Token], there: int) -> bool:
    """`amazon prime` beside `Amazon Prime`."""
    for step in (-1, 1):
        word = _form(small, at + step)
        if word and word == _form(large, there + step) and large[there + step].capital:
            return True
    return False
