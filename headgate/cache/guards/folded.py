"""A reading in some forty bytes beside its text, taken apart in a tenth of the time that reading the text takes.

Tokens and atoms are mostly words of the text in its order, so the text itself is the dictionary that they are deflated
with. What is found only when a guard asks for it is not kept.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import get_args

from headgate.cache.guards.evidence import Reading
from headgate.cache.guards.meaning import meaning_of
from headgate.cache.guards.reading import Kind, Token

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
        f"{seen.asks:d}{seen.meaning.past:d}",
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
        return Reading(tokens, meaning_of(atoms.split(" ") if atoms else [], past=ends[1] == "1"), ends[0] == "1")
    except (ValueError, IndexError, zlib.error):
        return None


_LONGEST = 1 << 14
"""Bytes that a reading may take unfolded: texts that are longer are not compared."""


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
