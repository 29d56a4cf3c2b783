"""A reading in some forty bytes beside its text, taken apart in a tenth of the time that reading the text takes.

Tokens and atoms are mostly words of the text in its order, so the text itself is the dictionary that they are deflated
with. Of what is found only when a guard asks for it a bit is kept: of most a text says nothing, and so much need not be
found again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import get_args

from headgate.cache.guards.evidence import Reading
from headgate.cache.guards.meaning import Meaning
from headgate.cache.guards.reading import Kind, Token
from headgate.cache.guards.statements import FACTS, Counted

_KINDS: tuple[Kind, ...] = get_args(Kind)
_FIRST = 64
"""A token's flags are one character from here on: the place of its kind, and these."""
_CAPITAL, _OPENS = 8, 16
_SPACE = "\x1f"
"""Stands for a space in a form."""
_WINDOW = -10
"""Plain deflate, looking back 1024 bytes."""


def fold(seen: Reading, text: str) -> bytes:
    """What `unfold` makes the reading of a text from; empty where it would come out otherwise."""
    lines = (
        " ".join([token.form.replace(" ", _SPACE) for token in seen.tokens]),
        " ".join(seen.meaning.atoms),
        "".join([_flags(token) for token in seen.tokens]),
        f"{seen.asks:d}{seen.meaning.past:d}{_silent(seen):x} {' '.join(sorted(seen.kinds))}",
    )
    deflate = zlib.compressobj(9, zlib.DEFLATED, _WINDOW, 8, zlib.Z_FIXED, zdict=_dictionary(text))
    folded = deflate.compress("\n".join(lines).encode("utf-8", "surrogatepass")) + deflate.flush()
    return folded if unfold(folded, text) == seen else b""


def unfold(folded: bytes, text: str) -> Reading | None:
    """The reading that was folded beside the text; None where it is no such thing."""
    try:
        plain = zlib.decompressobj(_WINDOW, zdict=_dictionary(text)).decompress(folded, _LONGEST)
        forms, atoms, flags, ends = plain.decode("utf-8", "surrogatepass").split("\n")
        written = forms.split(" ") if flags else []
        tokens = tuple([_token(flag, form) for flag, form in zip(flags, written, strict=True)])
        sense = Meaning(tuple(atoms.split(" ")) if atoms else (), ends[1] == "1")
        bits, kinds = ends[2:].split(" ", 1)
        found, facts = _found(bits, kinds)
        return Reading(tokens, sense, ends[0] == "1").knowing(found, facts)
    except (ValueError, IndexError, zlib.error):
        return None


_LONGEST = 1 << 14
"""Bytes that a reading may take unfolded: texts that are longer are not compared."""


_NOTHING = Reading((), Meaning((), past=False), asks=False)
_ASKED_FOR = (
    *("polarity", "placed", "sides", "time", "times", "grain", "modal", "full_names", "property_of"),
    *("amount_of", "comparison", "replaced", "differing", "counts"),
)
"""What guards ask a reading for besides its facts and the kinds of answer it asks for, the lowest bit first."""


def _silent(seen: Reading) -> int:
    """A bit for each of these, and then of `FACTS`, that is as in a text which says nothing."""
    bits = [getattr(seen, name) == getattr(_NOTHING, name) for name in _ASKED_FOR]
    bits += [not seen.facts[kind] for kind in FACTS]
    return sum(bit << at for at, bit in enumerate(bits))


# A few hundred are all that most texts have.
@lru_cache(maxsize=4096)
def _found(bits: str, kinds: str) -> tuple[Mapping[str, object], Mapping[str, Counted]]:
    """What is known of a text with these bits that asks for these kinds of answer: by name, and its facts by kind."""
    silent = int(bits, 16)
    found = {name: getattr(_NOTHING, name) for at, name in enumerate(_ASKED_FOR) if silent >> at & 1}
    facts = {kind: _NOTHING.facts[kind] for at, kind in enumerate(FACTS, len(_ASKED_FOR)) if silent >> at & 1}
    return {**found, "kinds": frozenset(kinds.split(" "))}, facts


def _dictionary(text: str) -> bytes:
    return text.lower().encode("utf-8", "surrogatepass")


def _flags(token: Token) -> str:
    return chr(_FIRST + _KINDS.index(token.kind) + _CAPITAL * token.capital + _OPENS * token.opens)


# As `reading` does for words: most are met again and again.
@lru_cache(maxsize=8192)
def _token(flag: str, form: str) -> Token:
    bits = ord(flag) - _FIRST
    kind = _KINDS[bits & (_CAPITAL - 1)]
    return Token(kind, form.replace(_SPACE, " "), bool(bits & _CAPITAL), bool(bits & _OPENS))
