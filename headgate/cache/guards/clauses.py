"""What a text counts of which thing, and what it says before and behind a `when`: one for two, cause for effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.reading import Token
from headgate.cache.guards.vocabulary import parts_of_speech, weight

_JOINTS = frozenset({"when", "while", "if", "because", "whenever"})
_SINGLE = frozenset({"a", "an", "single"})
_RUN = 3
"""How many words behind a number may name what it counts."""


def causes_exchanged(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether what the one text says before its `when` the other says behind it, and the other way round: why does the
    music stop when the screen goes off, why does the screen go off when the music stops.

    Args:
        one: base forms of the one text in order.
        other: those of the other.
    """
    if _JOINTS.isdisjoint(one) or _JOINTS.isdisjoint(other):
        return False
    mine, yours = _halves(one), _halves(other)
    if mine is None or yours is None:
        return False
    there, back = mine[0] & yours[1], mine[1] & yours[0]
    return min(len(there), len(back)) > 1 and not (mine[0] & yours[0] or mine[1] & yours[1])


def _halves(words: Sequence[str]) -> tuple[Set[str], Set[str]] | None:
    """What is said before and behind the word that joins two sentences; None where there is none inside."""
    at = next((at for at, word in enumerate(words) if at > 2 and word in _JOINTS and words[at - 1] != "by"), None)
    if at is None:
        return None
    before, behind = ({word for word in half if weight(word)} for half in (words[:at], words[at + 1 :]))
    return before, behind


def counted_crosswise(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether both texts count the same two things, and each of them otherwise: one card on two orders, two cards on
    one. Of each what `counts_of` found."""
    shared = one.keys() & other.keys()
    return len(shared) > 1 and all(one[thing] != other[thing] for thing in shared)


def counts_of(tokens: Sequence[Token]) -> Mapping[str, str]:
    """Number by the thing it counts; a single one is one. Nothing where it counts one thing only, for then none has
    changed places."""
    found: dict[str, str] = {}
    for at, token in enumerate(tokens):
        if (token.kind != "number" and token.form not in _SINGLE) or "/" in token.form:
            continue
        number = token.form if token.kind == "number" else "#1"
        thing = ""
        for word in tokens[at + 1 : at + 1 + _RUN]:
            if word.kind != "word" or "n" not in parts_of_speech(base_form(word.form)) or not weight(word.form):
                break
            thing = base_form(word.form)
        if thing and thing not in found:
            found[thing] = number
    return found if len(found) > 1 else {}
