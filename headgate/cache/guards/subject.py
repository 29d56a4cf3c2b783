"""Of whom a text speaks: my mother or my father, mine or yours, what I should do or you."""

from __future__ import annotations

from itertools import pairwise

from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.facts import either_way
from headgate.cache.guards.vocabulary import related

_KIN = frozenset({
    "mother", "father", "son", "daughter", "wife", "husband", "brother", "sister", "grandmother", "grandfather",
    "grandparent", "parent", "uncle", "aunt", "cousin", "nephew", "niece", "friend", "boss", "colleague", "baby",
    "toddler", "child", "teenager", "adult", "neighbor", "neighbour", "girlfriend", "boyfriend", "partner", "roommate",
    "grandson", "granddaughter", "stepson", "stepdaughter",
})  # fmt: skip
_PERSONS = {"my": "my", "mine": "my", "our": "our", "your": "your", "his": "his", "her": "her", "their": "their"}


def subject(one: Reading, other: Reading) -> Verdict:
    """Whose it is, whom it is about, and who is asked."""
    if (
        one.kinds == other.kinds == {"yes"}
        and "should" not in (one.modal, other.modal)
        and _third(one) == _third(other)
        and {_second(one), _second(other)} in ({"i", "you"}, {"we", "you"})
    ):
        return False
    numbered = [seen for seen in (one, other) if "number" in seen.spoken]
    if len(numbered) == 2 and one.facts["plural"] != other.facts["plural"]:
        # The number of the planet, the number of planets.
        return False
    ours, theirs = (_KIN.intersection(seen.meaning.atoms) for seen in (one, other))
    if ours and theirs and not any(related(mine, yours) for mine in ours for yours in theirs):
        return False
    if _PERSONS.keys().isdisjoint(one.meaning.atoms) and _PERSONS.keys().isdisjoint(other.meaning.atoms):
        return None
    whose, others = ({_PERSONS[atom] for atom in _PERSONS.keys() & seen.meaning.atoms} for seen in (one, other))
    if whose ^ others == {"my", "your"} and {_general(one), _general(other)} == {"i", "you"}:
        return True
    return either_way(whose, others)


def _general(seen: Reading) -> str:
    """`i` or `you` of whom it is asked what one should do: how often should you wash your hair."""
    words = seen.spoken
    return next((word for before, word in pairwise(words) if before == "should" and word in ("i", "you")), "")


def _second(seen: Reading) -> str:
    return seen.tokens[1].form if len(seen.tokens) > 1 else ""


def _third(seen: Reading) -> str:
    return seen.tokens[2].form if len(seen.tokens) > 2 else ""
