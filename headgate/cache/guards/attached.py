"""What is said of one thing in the one text and of another in the other, where both texts name both: which of the two
does not work, who of two people asks."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.cache.guards.evidence import Reading
from headgate.cache.guards.vocabulary import classes, nameable, part_of_speech, related, weight

_DENIALS = frozenset({"not", "never", "without"})
_REACH = 4
"""Words beside a denial among which what it is said of is looked for."""
_CLAUSES = frozenset({"but", "and", "when", "while", "if", "because", "although", "though", "or", "whereas"}) | {
    *("which", "what"),
}
"""Beyond one of these is another clause."""
_ENDS = _CLAUSES | {"i", "we", "you", "it", "they", "on", "in", "at", "for", "to", "with", "from", "by"}
_I = frozenset({"i", "we"})


def attached_elsewhere(one: Reading, other: Reading) -> bool:
    """Whether what the one text says of one thing the other says of another."""
    return _denied_elsewhere(one, other) or _asks_as(one, other) or _asks_as(other, one)


def _denied_elsewhere(one: Reading, other: Reading) -> bool:
    """It heats but does not run, it runs but does not heat; the lid without the pan, the pan without the lid; the
    freezer works but the fridge does not cool, the freezer does not cool while the fridge works."""
    if one.polarity.denials != 1 or other.polarity.denials != 1:
        return False
    here, there = (
        next((at for at, word in enumerate(words) if word in _DENIALS), 0) for words in (one.plain, other.plain)
    )
    if not here or not there:
        return False
    mine, yours = _first(one.plain[here + 1 :]), _first(other.plain[there + 1 :])
    if mine and yours and not related(mine, yours) and yours in one.plain[:here] and mine in other.plain[:there]:
        return True
    mine, yours = _first(one.plain[here - 1 :: -1]), _first(other.plain[there - 1 :: -1])
    return (
        "without" not in (one.plain[here], other.plain[there])
        and nameable(mine)
        and nameable(yours)
        and not related(mine, yours)
        and _beside(one.plain, here, yours)
        and _beside(other.plain, there, mine)
    )


def _beside(words: Sequence[str], at: int, thing: str) -> bool:
    """Whether a text names the thing, and not in the clause of the denial at this place."""
    start = next((i + 1 for i in range(at, 0, -1) if words[i] in _CLAUSES), 0)
    end = next((i for i in range(at, len(words)) if words[i] in _CLAUSES), len(words))
    return thing in words[:start] or thing in words[end:]


def _first(words: Sequence[str]) -> str:
    """The first specific word of the clause."""
    for word in words[:_REACH]:
        if word in _ENDS:
            return ""
        if weight(word) == 2:
            return word
    return ""


def _asks_as(one: Reading, other: Reading) -> bool:
    """As a teacher, what do I ask the parents; what do I ask the teacher."""
    if "as" not in one.spoken or "as" in other.spoken or _I.isdisjoint(other.spoken):
        return False
    for way, article, person in zip(one.spoken, one.spoken[1:], one.spoken[2:], strict=False):
        if way == "as" and article in ("a", "an") and classes(person)[:1] == "P":
            met = next((at for at, word in enumerate(other.spoken) if word in (person, f"{person}s")), 0)
            told = _I.isdisjoint(other.spoken[max(0, met - 2) : met])
            # A tourist visa is nobody.
            if met and told and not any(_thing(word) for word in other.spoken[met + 1 : met + 2]):
                return True
    return False


def _thing(word: str) -> bool:
    return weight(word) == 2 and part_of_speech(word) in "n?"
