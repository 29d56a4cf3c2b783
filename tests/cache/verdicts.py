"""Verdicts on two texts by what the guards compare."""

from __future__ import annotations

from headgate.cache.guards import KINDS, Reading, compare, reading_of


def check(stored: str | Reading, asked: str | Reading) -> str | None:
    """The kind of evidence that forbids serving the answer to `stored` for `asked`; None if nothing speaks against."""
    return compare(_read(stored), _read(asked), whole=False).veto


def certain(stored: str | Reading, asked: str | Reading) -> str | None:
    """As `check`, but for what is only weighed there, and for `wording`: a text must read alike to the last word."""
    seen = compare(_read(stored), _read(asked))
    return next((kind for kind in KINDS if kind in seen.conflict), None if seen.same else "wording")


def _read(text: str | Reading) -> Reading:
    return text if isinstance(text, Reading) else reading_of(text)
