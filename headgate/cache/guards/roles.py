"""Who does what to whom, from where to where: what the order of words says."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.cache.guards.content import swapped
from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.exchange import converse, exchanged
from headgate.cache.guards.lexicon import POLARITY
from headgate.cache.guards.vocabulary import related

_OPPOSITE_WAYS = {("from", "to"), ("from", "into"), ("before", "after")}


def _compared(words: Sequence[str]) -> list[str]:
    """Greater than is bigger than: what is compared is one word for more and one for less."""
    return [
        POLARITY.get(word, word) if behind == "than" else word
        for word, behind in zip(words, (*words, "")[1:], strict=True)
    ]


def turned_alike(one: Reading, other: Reading) -> bool:
    """Whether what changed places does not matter: A is as far from B, and what is smaller, turned, is larger."""
    if sorted(one.plain) == sorted(other.plain):
        return exchanged(one.plain, other.plain, one.things) is False
    return converse(one.plain, other.plain, one.things)


def direction(one: Reading, other: Reading) -> Verdict:
    """What stands behind `from` in one text does not stand behind `to` in the other; no things change places."""
    if exchanged(_compared(one.plain), _compared(other.plain), one.things):
        return False
    if not one.placed or not other.placed:
        return "one side" if one.placed or other.placed else None
    for way, goal in one.placed:
        for its_way, its_goal in other.placed:
            meet = related(goal, its_goal)
            if meet and ((way, its_way) in _OPPOSITE_WAYS or (its_way, way) in _OPPOSITE_WAYS):
                return False
            if way == its_way and not meet and way != "by":
                if way == "for":
                    if _before_for(other, goal) and _before_for(one, its_goal):
                        return False
                elif _has(other, goal) or _has(one, its_goal):
                    return False
    return True


def _before_for(seen: Reading, word: str) -> bool:
    """Ginger in `swap ginger for honey`; where `for` stands twice it stands for too much."""
    atoms = seen.meaning.atoms
    return atoms.count("for") == 1 and any(related(word, atom) for atom in atoms[: atoms.index("for")])


def _has(seen: Reading, word: str) -> bool:
    return any(related(word, atom) for atom in seen.meaning.atoms)


_ONE_WAY = frozenset(
    {"minus", "divide", "to", "from", "than", "by", "symbol:-", "symbol:/", "symbol:^", "symbol:%", "of"}
)


def _joined(seen: Reading) -> bool:
    """Two numbers with a word between them that is read one way: `80% of 15`."""
    atoms = seen.meaning.atoms
    return any(
        atoms[at - 1].startswith("number:") and atom in _ONE_WAY and atoms[at + 1].startswith("number:")
        for at, atom in enumerate(atoms[1:-1], start=1)
    )


def order(one: Reading, other: Reading) -> Verdict:
    """The same words in another order, where the order says who does what to whom, or what is taken from what."""
    ours, theirs = ([token.form for token in seen.tokens if token.kind == "number"] for seen in (one, other))
    turned = len(ours) > 1 and ours != theirs and sorted(ours) == sorted(theirs)
    if turned and _joined(one) and _joined(other):
        return False
    if swapped(one.meaning.atoms, other.meaning.atoms, {name for name, _ in one.facts["names"]}):
        return False
    return True if one.words == other.words and len(one.words) > 1 else None
