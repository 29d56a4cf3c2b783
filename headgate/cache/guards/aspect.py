"""What is asked of a thing: its size or its price, the widest or the longest, who made it or who paid for it."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.cache.guards.contrasts import contrary
from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.lexicon import COLORS
from headgate.cache.guards.relations import other_scale
from headgate.cache.guards.vocabulary import parts_of_speech, related, weight

_DOERS = frozenset(
    [
        "author",
        "inventor",
        "founder",
        "director",
        "painter",
        "discoverer",
        "actor",
        "composer",
        "producer",
        "designer",
        "singer",
    ]
)


def aspect(one: Reading, other: Reading) -> Verdict:
    """Whether both texts ask for the same of it; False where they ask for different things."""
    if contrary(one.sides, other.sides):
        return False
    if _other_color(one.words, other.words):
        return False
    if other_scale(one.spoken, other.spoken) or _other_difference(one, other):
        return False
    if _other_property(one, other) or _other_deed(one, other) or _other_deed(other, one):
        return False
    if one.amount_of and other.amount_of and not related(one.amount_of, other.amount_of):
        # How many grams, how many ounces.
        return False
    if not one.facts["aspect"] and not other.facts["aspect"]:
        return None
    ours, theirs = ({word for word, _ in seen.facts["aspect"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    if ours - theirs and theirs - ours:
        return False
    return "one side"


def _other_color(one: Sequence[str], other: Sequence[str]) -> bool:
    if COLORS.keys().isdisjoint(one) or COLORS.keys().isdisjoint(other):
        return False
    mine, yours = ({COLORS[word] for word in words if word in COLORS} for words in (one, other))
    return mine.isdisjoint(yours)


def _other_difference(one: Reading, other: Reading) -> bool:
    """What is the difference between crows and ravens, between crows and rooks."""
    mine, yours = one.differing, other.differing
    if mine is None or yours is None:
        return False
    return (
        [_named_in(other, word) for word in mine].count(False)
        == [_named_in(one, word) for word in yours].count(False)
        == 1
    )


def _named_in(seen: Reading, word: str) -> bool:
    """Ultra in ultramarathon, PO in purchase order."""
    return word in seen.initials or any(
        related(word, twin) or (len(word) > 3 and word in twin) or (len(twin) > 3 and twin in word)
        for twin in seen.plain
    )


def _other_property(one: Reading, other: Reading) -> bool:
    """The capital of Peru, the anthem of Peru."""
    mine, yours = one.property_of, other.property_of
    if not mine or not yours or related(mine[0], yours[0]) or not weight(mine[0]) or not weight(yours[0]):
        return False
    if mine[0] in other.meaning.atoms or yours[0] in one.meaning.atoms:
        # Grams of flour in a cup, a cup of flour in grams.
        return False
    return not {*mine[1]}.isdisjoint(yours[1])


def _other_deed(one: Reading, other: Reading) -> bool:
    """Who designed it, who paid for it."""
    doer, asker = one.meaning.atoms[:1], other.meaning.atoms[:1]
    return (
        asker == ("who",)
        and not _DOERS.isdisjoint(doer)
        and not any(related(doer[0], word) for word in other.words)
        and any("v" in parts_of_speech(word) and weight(word) == 2 for word in other.words)
    )
