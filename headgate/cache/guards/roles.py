"""From where to where, what is more than what, what is taken for what: what the order of words says."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from headgate.cache.guards.attached import attached_elsewhere
from headgate.cache.guards.clauses import causes_exchanged, counted_crosswise
from headgate.cache.guards.content import swapped
from headgate.cache.guards.doers import doer_exchanged, done_by_the_other, turned_on_me
from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.exchange import changed_ends, converse, exchanged
from headgate.cache.guards.lexicon import POLARITY
from headgate.cache.guards.relations import moved_back, said_alike
from headgate.cache.guards.vocabulary import parts_of_speech, related

_OPPOSITE_WAYS = {("from", "to"), ("before", "after")}
_TOWARDS: Mapping[str, str] = MappingProxyType({"into": "to", "onto": "to"})


def _compared(words: Sequence[str]) -> Sequence[str]:
    """Greater than is bigger than: what is compared is one word for more and one for less."""
    if "than" not in words:
        return words
    return [
        POLARITY.get(word, word) if behind == "than" else word
        for word, behind in zip(words, (*words, "")[1:], strict=True)
    ]


def turned_alike(one: Reading, other: Reading) -> bool:
    """Whether what changed places does not matter: A is as far from B, and what is smaller, turned, is larger."""
    mine, yours = one.comparison, other.comparison
    if mine is not None and yours is not None and said_alike(mine, yours) is True:
        return True
    if sorted(one.plain) == sorted(other.plain):
        return exchanged(one.plain, other.plain, one.things) is False
    return converse(one.plain, other.plain, one.things)


def compares_alike(one: Reading, other: Reading) -> bool:
    """Whether both compare one way, so that nothing is turned: numbers smaller than 5, numbers smaller than 5."""
    mine, yours = one.comparison, other.comparison
    return mine is not None and yours is not None and mine.sign == yours.sign


def direction(one: Reading, other: Reading) -> Verdict:
    """What stands behind `from` in one text does not stand behind `to` in the other; no things change places."""
    mine, yours = _compared(one.plain), _compared(other.plain)
    if exchanged(mine, yours, one.things) or changed_ends(mine, yours, one.things):
        return False
    if not one.placed or not other.placed:
        return "one side" if one.placed or other.placed else None
    full_names = (*one.full_names, *other.full_names)
    ours, theirs = ([(_TOWARDS.get(way, way), goal) for way, goal in seen.placed] for seen in (one, other))
    for way, goal in ours:
        for its_way, its_goal in theirs:
            meet = _meet(goal, its_goal, full_names)
            if meet and ((way, its_way) in _OPPOSITE_WAYS or (its_way, way) in _OPPOSITE_WAYS):
                return False
            if way == its_way and not meet and way != "by" and not (_or(one, goal) and _or(other, its_goal)):
                if _said_too(way, goal, theirs, full_names) or _said_too(way, its_goal, ours, full_names):
                    # To my boss and to a price, where the other text says to my boss.
                    continue
                if way == "for" and ":" not in goal + its_goal:
                    if _before_for(other, goal) and _before_for(one, its_goal):
                        return False
                elif (
                    way != "for" and (_has(other, goal) or _has(one, its_goal)) and not (_apart(one) and _apart(other))
                ):
                    return False
    return True


def _meet(goal: str, its_goal: str, full_names: Sequence[frozenset[str]]) -> bool:
    """Whether both are one thing; Nelson and Mandela are where a text says Nelson Mandela."""
    return related(goal, its_goal) or (bool(full_names) and any({goal, its_goal} <= full for full in full_names))


def _said_too(way: str, goal: str, placed: Iterable[tuple[str, str]], full_names: Sequence[frozenset[str]]) -> bool:
    return any(way == its_way and _meet(goal, its_goal, full_names) for its_way, its_goal in placed)


def _or(seen: Reading, goal: str) -> bool:
    """As PNG or JPEG, as JPEG or PNG."""
    return ("or", goal) in itertools.pairwise(seen.meaning.atoms) or (goal, "or") in itertools.pairwise(
        seen.meaning.atoms
    )


def _apart(seen: Reading) -> bool:
    """How far one is from the other is how far the other is from the one."""
    return not _APART.isdisjoint(seen.meaning.atoms)


_APART = frozenset({"distance", "far", "apart"})


def _before_for(seen: Reading, word: str) -> bool:
    """Ginger in `swap ginger for honey`; where `for` stands twice it stands for too much."""
    atoms = seen.meaning.atoms
    return atoms.count("for") == 1 and any(related(word, atom) for atom in atoms[: atoms.index("for")])


def _has(seen: Reading, word: str) -> bool:
    return any(map(related, itertools.repeat(word), seen.meaning.atoms))


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
    if one.facts["numbers"] and one.facts["numbers"] == other.facts["numbers"]:
        ours, theirs = ([token.form for token in seen.tokens if token.kind == "number"] for seen in (one, other))
        if ours != theirs and _joined(one) and _joined(other):
            return False
    if swapped(one.meaning.atoms, other.meaning.atoms, {name for name, _ in one.facts["names"]}):
        return False
    if _exchanged_for(one, other) or _deeds_exchanged(one.meaning.atoms, other.meaning.atoms):
        return False
    if _elsewhere(one, other):
        return False
    if one.facts["dates"] and other.facts["dates"] and moved_back(one.meaning.atoms, other.meaning.atoms):
        return False
    mine, yours = one.comparison, other.comparison
    if mine is not None and yours is not None and said_alike(mine, yours) is False:
        return False
    (ours_out, ours_in), (theirs_out, theirs_in) = one.replaced, other.replaced
    if ours_out & theirs_in or ours_in & theirs_out:
        return False
    each_given_up = bool(ours_out and theirs_out and not ours_in | theirs_in and ours_out.isdisjoint(theirs_out))
    if each_given_up and ours_out <= {*other.plain} and theirs_out <= {*one.plain}:
        # Garlic in place of basil, basil in place of garlic.
        return False
    if turned_on_me(one, other) or turned_on_me(other, one):
        return False
    if doer_exchanged(one, other) or causes_exchanged(one.plain, other.plain):
        return False
    if counted_crosswise(one.counts, other.counts):
        return False
    if done_by_the_other(one, other) or attached_elsewhere(one, other):
        return False
    return True if one.words == other.words and len(one.words) > 1 else None


_INTO = frozenset({"to", "into", "in"})


def _exchanged_for(one: Reading, other: Reading) -> bool:
    """`20 pesos in won` and `20 won to pesos`: what is counted in the one is what the other asks for."""
    if one.facts["numbers"].isdisjoint(other.facts["numbers"]):
        return False
    mine = _counted(one.meaning.atoms)
    yours = _counted(other.meaning.atoms) if mine else mine
    for number, thing in mine.items():
        twin = yours.get(number, thing)
        if twin != thing and (_asked_in(twin, one.meaning.atoms) or _asked_in(thing, other.meaning.atoms)):
            return twin in one.meaning.atoms and thing in other.meaning.atoms
    return False


_WHERE = frozenset({"in", "at", "for", "from", "of"})


def _elsewhere(one: Reading, other: Reading) -> bool:
    """`5 pm in Lima` and `5 pm in Manila`, where both texts name both: another name stands behind the same number."""
    names = one.capitals | other.capitals
    mine = _beside_names(one, names) if names else {}
    yours = _beside_names(other, names) if mine else mine
    for said, name in mine.items():
        twin = yours.get(said, name)
        if twin != name and twin in one.spoken and name in other.spoken:
            return True
    return False


def _beside_names(seen: Reading, names: Set[str]) -> dict[str, str]:
    """Each number, date or time and the name right behind it, or behind `in` or `at`."""
    found: dict[str, str] = {}
    for at, token in enumerate(seen.tokens):
        if token.kind in ("number", "date"):
            behind = [word for word in seen.tokens[at + 1 : at + 3] if word.form not in _WHERE][:1]
            if behind and behind[0].kind == "word" and behind[0].form in names:
                found[token.form] = behind[0].form
    return found


def _counted(atoms: Sequence[str]) -> dict[str, str]:
    """Each number and the word behind it."""
    return {
        atom: behind
        for atom, behind in itertools.pairwise(atoms)
        if atom.startswith("number:") and ":" not in behind and behind not in _ONE_WAY and behind not in _INTO
    }


def _deeds_exchanged(one: Sequence[str], other: Sequence[str]) -> bool:
    """Recover deleted photos, delete recovered photos."""
    if one[:1] != ("howto",) or other[:1] != ("howto",) or len(one) < 3 or len(other) < 3:
        return False
    mine, yours = one[1], other[1]
    return (
        yours in one[2:]
        and mine in other[2:]
        and "v" in parts_of_speech(mine)
        and "v" in parts_of_speech(yours)
        and not related(mine, yours)
    )


def _asked_in(thing: str, atoms: Sequence[str]) -> bool:
    return any(before in _INTO and word == thing for before, word in itertools.pairwise(atoms))
