"""Who does what to whom, from where to where: what the order of words says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from headgate.cache.guards.content import swapped
from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.exchange import changed_ends, converse, exchanged
from headgate.cache.guards.lexicon import POLARITY
from headgate.cache.guards.relations import Comparison as Compared
from headgate.cache.guards.relations import compared, moved_back, replaced_by, said_alike
from headgate.cache.guards.vocabulary import acts, classes, kept, part_of_speech, parts_of_speech, related, weight

_ACTING = frozenset({"i", "we"})
_ME = frozenset({"me", "us"})
_MINE = _ME | {"my", "our"}
_I = _MINE | _ACTING
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
    mine, yours = _comparison(one), _comparison(other)
    if mine is not None and yours is not None and said_alike(mine, yours) is True:
        return True
    if sorted(one.plain) == sorted(other.plain):
        return exchanged(one.plain, other.plain, one.things) is False
    return converse(one.plain, other.plain, one.things)


def compares_alike(one: Reading, other: Reading) -> bool:
    """Whether both compare one way, so that nothing is turned: numbers smaller than 5, numbers smaller than 5."""
    mine, yours = _comparison(one), _comparison(other)
    return mine is not None and yours is not None and mine.sign == yours.sign


def direction(one: Reading, other: Reading) -> Verdict:
    """What stands behind `from` in one text does not stand behind `to` in the other; no things change places."""
    mine, yours = _compared(one.plain), _compared(other.plain)
    if exchanged(mine, yours, one.things) or changed_ends(mine, yours, one.things):
        return False
    if not one.placed or not other.placed:
        return "one side" if one.placed or other.placed else None
    for way, goal in one.placed:
        way = _TOWARDS.get(way, way)
        for its_way, its_goal in other.placed:
            its_way = _TOWARDS.get(its_way, its_way)
            meet = related(goal, its_goal)
            if meet and ((way, its_way) in _OPPOSITE_WAYS or (its_way, way) in _OPPOSITE_WAYS):
                return False
            if way == its_way and not meet and way != "by":
                if way == "for" and ":" not in goal + its_goal:
                    if _before_for(other, goal) and _before_for(one, its_goal):
                        return False
                elif (
                    way != "for" and (_has(other, goal) or _has(one, its_goal)) and not (_apart(one) and _apart(other))
                ):
                    return False
    return True


def _apart(seen: Reading) -> bool:
    """How far one is from the other is how far the other is from the one."""
    return not _APART.isdisjoint(seen.meaning.atoms)


_APART = frozenset({"distance", "far", "apart"})


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
    if _exchanged_for(one, other) or _deeds_exchanged(one.meaning.atoms, other.meaning.atoms):
        return False
    if _elsewhere(one, other):
        return False
    if moved_back(one.meaning.atoms, other.meaning.atoms):
        return False
    mine, yours = _comparison(one), _comparison(other)
    if mine is not None and yours is not None and said_alike(mine, yours) is False:
        return False
    (ours_out, ours_in), (theirs_out, theirs_in) = (replaced_by(seen.plain, seen.things) for seen in (one, other))
    if ours_out & theirs_in or ours_in & theirs_out:
        return False
    if _turned_on_me(one, other) or _turned_on_me(other, one):
        return False
    if doer_exchanged(one, other):
        return False
    if _done_by_the_other(one, other):
        return False
    return True if one.words == other.words and len(one.words) > 1 else None


def doer_exchanged(one: Reading, other: Reading) -> bool:
    """Whether the one asks who does it and the other to whom it is done."""
    (mine_does, my_deed), (yours_does, your_deed) = _who(one.plain), _who(other.plain)
    return bool(my_deed) and my_deed == your_deed and mine_does != yours_does


_INTO = frozenset({"to", "into", "in"})


def _exchanged_for(one: Reading, other: Reading) -> bool:
    """`20 pesos in won` and `20 won to pesos`: what is counted in the one is what the other asks for."""
    if one.facts["numbers"].isdisjoint(other.facts["numbers"]):
        return False
    mine, yours = _counted(one.meaning.atoms), _counted(other.meaning.atoms)
    if not mine or not yours:
        return False
    for number, thing in mine.items():
        twin = yours.get(number, thing)
        if twin != thing and (_asked_in(twin, one.meaning.atoms) or _asked_in(thing, other.meaning.atoms)):
            return twin in one.meaning.atoms and thing in other.meaning.atoms
    return False


_WHERE = frozenset({"in", "at", "for", "from", "of"})


def _elsewhere(one: Reading, other: Reading) -> bool:
    """`5 pm in Lima` and `5 pm in Manila`, where both texts name both: another name stands behind the same number."""
    mine, yours = _beside_names(one), _beside_names(other)
    for said, name in mine.items():
        twin = yours.get(said, name)
        if twin != name and twin in one.spoken and name in other.spoken:
            return True
    return False


def _beside_names(seen: Reading) -> dict[str, str]:
    """Each number, date or time and the name right behind it, or behind `in` or `at`."""
    found: dict[str, str] = {}
    for at, token in enumerate(seen.tokens):
        if token.kind in ("number", "date"):
            behind = [word for word in seen.tokens[at + 1 : at + 3] if word.form not in _WHERE][:1]
            if behind and behind[0].kind == "word" and behind[0].capital:
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


def _comparison(seen: Reading) -> Compared | None:
    return compared(seen.plain, seen.things)


def _done_by_the_other(one: Reading, other: Reading) -> bool:
    """`If the landlord refuses`, `when the tenant refuses`, where both are named in both; or I am one of them."""
    if "by" in one.plain or "by" in other.plain:
        return False
    if _i_or(one.plain, other.plain) or _i_or(other.plain, one.plain):
        return True
    if "be" in one.plain or "be" in other.plain:
        return False
    for at, deed in enumerate(one.plain):
        if not at or part_of_speech(deed) != "v" or not weight(deed) or deed not in other.plain[1:]:
            continue
        there = other.plain.index(deed, 1)
        doers = one.plain[at - 1], other.plain[there - 1]
        if all("P" in classes(doer) for doer in doers) and not related(*doers):
            return doers[0] in other.plain and doers[1] in one.plain
    return False


def _person(word: str) -> bool:
    return weight(word) == 2 and classes(word)[:1] == "P"


def _i_do(words: Sequence[str], deed: str) -> bool:
    return any(word == deed and doer in _ACTING for doer, word in itertools.pairwise(words))


def _i_or(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """`If I paid`, `if my parents paid`, where both texts name the parents and me, and this is all that is done."""
    if _I.isdisjoint(theirs):
        return False
    for whose, other, deed in zip(theirs, theirs[1:], theirs[2:], strict=False):
        # Can I cancel it, can my provider cancel it.
        somebody = whose in _MINE and part_of_speech(other) == "n" and acts(other)
        if somebody and "v" in parts_of_speech(deed) and weight(deed) and _i_do(mine, deed) and not _i_do(theirs, deed):
            return True
    for doer, deed in itertools.pairwise(mine):
        if doer not in _ACTING or part_of_speech(deed) != "v" or weight(deed) < 2 or mine.count(deed) > 1:
            continue
        for other, done in itertools.pairwise(theirs):
            if done == deed and theirs.count(deed) == 1 and _person(other) and other in mine:
                return True
    return False


_HELPING = frozenset({"do", "will", "can", "should", "could", "would", "have", "may", "must", "might"})


def _who(words: Sequence[str]) -> tuple[bool, str]:
    """Whether who (or which team) is asked for does it (who taught him) or has it done to them (whom did he teach, who
    was taught by him), and what is done; nothing where nobody is asked for, and in a passive that names no doer."""
    if len(words) < 3 or words[0] not in ("who", "whom", "which", "what"):
        return False, ""
    if words[0] in ("which", "what"):
        if not acts(words[1]) or part_of_speech(words[1]) == "?":
            return False, ""
        words = ("who", *words[2:])
    if "be" in words:
        at = words.index("be") + 1
        done = at < 4 and "by" in words[at + 1 : at + 3] and part_of_speech(words[at]) == "v"
        return (False, words[at]) if done else (False, "")
    if "by" in words or len(words) < 3:
        return False, ""
    if words[1] == "have" and words[2] == "to":
        return True, next(iter(words[3:]), "")
    if words[1] not in _HELPING:
        return True, words[1]
    if part_of_speech(words[2]) == "v":
        return True, words[2]
    return False, next((word for word in words[3:] if part_of_speech(word) == "v"), "")


_BEHIND = frozenset({"in", "on", "at", "for", "with", "to", "from", "by", "about", "using", "via", "into", "as"})
"""Behind one of these stands nobody to whom it is done."""
_HAVING = frozenset({"get", "have", "want", "need", "like", "obtain", "make", "let", "create"})


_OWED = {"have": (("to",),), "need": (("to",),), "be": (("allow", "to"), ("able", "to"), ("oblige", "to"))}


def _said_plainly(words: Sequence[str]) -> Sequence[str]:
    """Without `have to`, `need to`, `be allowed to`: who has to do it does it."""
    if "to" not in words:
        return words
    out: list[str] = []
    at = 0
    while at < len(words):
        owed = [run for run in _OWED.get(words[at], ()) if tuple(words[at + 1 : at + 1 + len(run)]) == run]
        if not owed:
            out.append(words[at])
        at += 1 + (len(owed[0]) if owed else 0)
    return out


def _turned_on_me(one: Reading, other: Reading) -> bool:
    """Somebody does in the one text to me, or to mine, what I do to them in the other: can my landlord sue me."""
    if _ACTING.isdisjoint(other.plain):
        return False
    mine, theirs = _said_plainly(one.plain), _said_plainly(other.plain)
    if {"by", "whom"} & {*mine, *theirs}:
        return False
    for there, deed in enumerate(theirs):
        if "v" not in parts_of_speech(deed) or not weight(deed) or deed not in mine:
            continue
        here = mine.index(deed)
        if not _ACTING & {*theirs[max(0, there - 2) : there]}:
            continue
        if not _does_it(one, mine, here):
            # Is my visa extended, how do I get my visa extended: it is done to them there too.
            continue
        for thing in _done_to(theirs, there, mine, here):
            able = (
                thing != deed
                and thing in mine[:here]
                and acts(thing)
                and weight(thing)
                and part_of_speech(thing) in "n?"
            )
            if able and _subject_of(mine, mine.index(thing), here):
                return True
    return False


_CLAUSE = _BEHIND | {
    "after",
    "before",
    "when",
    "if",
    "that",
    "how",
    "once",
    "while",
    "and",
    "or",
    "than",
    "then",
    *_ACTING,
}


def _subject_of(words: Sequence[str], doer: int, deed: int) -> bool:
    """Whether the thing at a place stands before the deed as who does it: no other thing and no other clause between,
    and something behind that it is done to. In `google sheets pivot table make` no table makes anything."""
    between = words[doer + 1 : deed]
    if not _CLAUSE.isdisjoint(between) or any(weight(word) == 2 and part_of_speech(word) in "n?" for word in between):
        return False
    return any(weight(word) or word in _MINE for word in words[deed + 1 :])


def _does_it(seen: Reading, words: Sequence[str], at: int) -> bool:
    """Whether who stands before the deed does it: it is told as going on, or I stand behind it."""
    if _ME & {*words[at + 1 : at + 2]}:
        return True
    if "be" in words[:at]:
        # She is tracking it, but: where is her order's tracking number.
        return words[at - 1] != "'s" and any(form.endswith("ing") and kept(form) == words[at] for form in seen.spoken)
    if _HAVING & {*words[:at]}:
        return False
    # Photos deleted last year.
    return not _ME.isdisjoint(seen.spoken) or not any(
        form.endswith("ed") and kept(form) == words[at] for form in seen.spoken
    )


def _done_to(theirs: Sequence[str], there: int, mine: Sequence[str], here: int) -> Iterator[str]:
    """Those to whom I do it; behind a preposition those that stand where the other text has me or mine: she waits
    for me, I wait for her."""
    way = ""
    turned = {before for before, word in itertools.pairwise(mine[here + 1 :]) if word in _MINE}
    for word in theirs[there + 1 :]:
        if word in _BEHIND:
            way = word
        elif not way or way in turned:
            yield word
