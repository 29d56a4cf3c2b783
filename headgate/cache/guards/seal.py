"""What an entry keeps of a reading: enough to see that another text says other numbers or other dates, and the reading.

Most of what is close to a question differs from it in one of these two; a text whose seal breaks is not looked at. Of
the others the reading is taken from the seal, for to read the text takes longer than all else that is done to decide
about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from headgate.cache.guards.evidence import Reading
from headgate.cache.guards.folded import fold, unfold

_DIGEST = 4
_MARK = 12
_SEALED = ("numbers", "dates")
"""Kinds of which two texts must not each say something else, in the order in which a veto is named."""
_SHIFTS = tuple((kind, 8 * _DIGEST * left) for left, kind in zip(range(len(_SEALED))[::-1], _SEALED, strict=True))
_MARKS = (1 << 8 * _DIGEST) - 1


def seal_of(seen: Reading) -> bytes:
    """Twelve bytes, the same in every process that has the same guards: who they are by, and the marks of each kind."""
    return _version() + b"".join(_marks(kind, {form for form, _ in seen.facts[kind]}) for kind in _SEALED)


def sealed(seen: Reading, text: str) -> bytes:
    """A seal, and in some forty bytes more what `unsealed` takes the reading of the text from."""
    return seal_of(seen) + fold(seen, text)


def unsealed(seal: bytes, text: str) -> Reading | None:
    """The reading of a text as `sealed` keeps it; None where there is none, or it is by other guards."""
    return unfold(seal[_MARK:], text) if len(seal) > _MARK and seal[:_DIGEST] == _version() else None


def comparable(stored: bytes, asked: bytes) -> bool:
    """Whether both seals are by the same guards; an empty one is not."""
    return min(len(stored), len(asked)) >= _MARK and stored[:_DIGEST] == asked[:_DIGEST]


def broken(stored: bytes, asked: bytes) -> str | None:
    """The kind in conflict that `compare` would name first, where two seals tell; None where the texts must be read.

    An empty seal, and one by other guards, tells nothing.
    """
    if not comparable(stored, asked):
        return None
    # All marks are one number, those of the first kind at its upper end.
    mine, yours = int.from_bytes(stored[_DIGEST:_MARK], "big"), int.from_bytes(asked[_DIGEST:_MARK], "big")
    here, there = mine & ~yours, yours & ~mine
    if here and there:
        for kind, shift in _SHIFTS:
            if here >> shift & _MARKS and there >> shift & _MARKS:
                return kind
    return None


def _marks(kind: str, forms: Set[str]) -> bytes:
    """Two of 32 bits for everything said, so that a bit which only one text has shows that only it says something.

    Forms which `facts` lets stand for others, or for nothing, are made one.
    """
    if kind == "numbers":
        forms = {f"#{Fraction(form[1:-3]) * 16}oz" if form.endswith("gbp") else form for form in forms - {"#1", "#1th"}}
    elif any("-" in form for form in forms):
        # A date says which day of the week it is.
        forms = {form for form in forms if not form.endswith("day")}
    else:
        # Tuesday is one.
        forms = forms - {"weekday"}
    marks = 0
    for form in forms:
        for byte in hashlib.blake2b(form.encode(), digest_size=2).digest():
            marks |= 1 << byte % 32
    return marks.to_bytes(_DIGEST, "big")


@lru_cache(maxsize=1)
def _version() -> bytes:
    """Of the guards' code and word lists, and of what tells a text about now: others may see it otherwise."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    here = Path(__file__).parent
    of_now = ("freshness.py", "freshness_words.py", "data/now_words.txt")
    for path in (*(here.parent / name for name in of_now), *sorted(here.rglob("*"))):
        if path.suffix in (".py", ".txt"):
            digest.update(path.read_bytes())
    return digest.digest()
