"""What one text asks under a condition, and the other without: can I cancel, can I cancel if I paid with a voucher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from headgate.cache.guards.vocabulary import weight
from headgate.cache.guards.words import word_set

_CLAUSES = word_set("if when unless while once because although whenever during")
_SUBJECTS = word_set("i my you your it we our they their there one somebody someone")
_ASKED_BEFORE = word_set(
    "whatdo whatis what know tell see check find wonder determine ask say sure idea when how why do be"
)
"""`How can I tell if`, `what if`: there the clause is what is asked."""


def _limiting(atoms: Sequence[str]) -> Iterator[str]:
    """The specific words that stand in a clause."""
    inside = False
    for at, word in enumerate(atoms):
        told = atoms[at - 1] in ("me", "us") and at > 1 and atoms[at - 2] == "tell"
        if word in _CLAUSES and at and atoms[at - 1] not in _ASKED_BEFORE and not told:
            # When I pay by card, but: when the train leaves.
            inside = inside or word != "when" or {*atoms[at + 1 : at + 2]} <= _SUBJECTS
        elif inside and weight(word) == 2 and atoms[at + 1 : at + 2] not in (["than"], ("than",)):
            # What is higher than a number bounds it.
            yield word


def narrowed(atoms: Sequence[str], missing: Set[str], extra: Set[str]) -> bool:
    """Whether a text says all that another one says, and has a clause with something more.

    Args:
        atoms: of the text that says more, as `meaning` has them.
        missing: specific words of the other text without a counterpart in it.
        extra: its own specific words without one.
    """
    return bool(extra) and not missing and not extra.isdisjoint(_limiting(atoms))
