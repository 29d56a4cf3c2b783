"""Who does it and to whom it is done: can I sue my landlord, can my landlord sue me."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from headgate.cache.guards.evidence import Reading
from headgate.cache.guards.vocabulary import acts, classes, kept, part_of_speech, parts_of_speech, related, weight

_ACTING = frozenset({"i", "we"})
_ME = frozenset({"me", "us"})
_MINE = _ME | {"my", "our"}
_I = _MINE | _ACTING


def doer_exchanged(one: Reading, other: Reading) -> bool:
    """Whether the one asks who does it and the other to whom it is done."""
    (mine_does, my_deed), (yours_does, your_deed) = _who(one.plain), _who(other.plain)
    return bool(my_deed) and my_deed == your_deed and mine_does != yours_does


def done_by_the_other(one: Reading, other: Reading) -> bool:
    """`If the landlord refuses`, `when the tenant refuses`, where both are named in both; or I am one of them."""
    if "by" in one.plain or "by" in other.plain:
        return _by_them(one.plain, other.plain) or _by_them(other.plain, one.plain)
    if _i_or(one.plain, other.plain) or _i_or(other.plain, one.plain):
        return True
    if "be" in one.plain or "be" in other.plain:
        return False
    theirs = {*other.plain[1:]}
    for doer, deed in itertools.pairwise(one.plain):
        if deed not in theirs or "P" not in classes(doer) or part_of_speech(deed) != "v" or not weight(deed):
            continue
        its_doer = other.plain[other.plain.index(deed, 1) - 1]
        if "P" in classes(its_doer) and not related(doer, its_doer):
            return doer in other.plain and its_doer in one.plain
    return False


def _by_them(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """It was cancelled by the airline, I cancelled it with the airline."""
    if "by" in theirs:
        return False
    return any(
        way == "by" and acts(doer) and _i_do(theirs, deed) and not _i_do(mine, deed) and doer in theirs
        for deed, way, doer in zip(mine, mine[1:], mine[2:], strict=False)
        if part_of_speech(deed) == "v"
    )


def _person(word: str) -> bool:
    return weight(word) == 2 and classes(word)[:1] == "P"


def _i_do(words: Sequence[str], deed: str) -> bool:
    return any(word == deed and doer in _ACTING for doer, word in itertools.pairwise(words))


def _i_or(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """`If I paid`, `if my parents paid`, where both texts name the parents and me, and this is all that is done."""
    if _ACTING.isdisjoint(mine) or _I.isdisjoint(theirs):
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
    if words[:1] == ("whose",) and not _ACTING.isdisjoint(words):
        return False, words[-1]
    if len(words) < 3 or words[0] not in ("who", "whom", "which", "what"):
        return False, ""
    if words[0] == "what" and words[1] != "be" and (words[1] == "do" or part_of_speech(words[1]) == "v"):
        # What he taught, and what eats them; what means it means what it means.
        words = ("who", *words[1:]) if "mean" not in words else words[:1]
    if words[0] in ("which", "what"):
        if len(words) < 2 or not acts(words[1]) or part_of_speech(words[1]) == "?":
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


_TURNED = frozenset({"by", "whom"})
_OWING = frozenset({"have", "need", "allow", "able", "oblige"})
_OWED = {"have": (("to",),), "need": (("to",),), "be": (("allow", "to"), ("able", "to"), ("oblige", "to"))}


def _said_plainly(words: Sequence[str]) -> Sequence[str]:
    """Without `have to`, `need to`, `be allowed to`: who has to do it does it."""
    if "to" not in words or not any(word == "to" and before in _OWING for before, word in itertools.pairwise(words)):
        return words
    out: list[str] = []
    at = 0
    while at < len(words):
        owed = [run for run in _OWED.get(words[at], ()) if tuple(words[at + 1 : at + 1 + len(run)]) == run]
        if not owed:
            out.append(words[at])
        at += 1 + (len(owed[0]) if owed else 0)
    return out


def turned_on_me(one: Reading, other: Reading) -> bool:
    """Somebody does in the one text to me, or to mine, what I do to them in the other: can my landlord sue me."""
    if _ACTING.isdisjoint(other.plain):
        return False
    mine, theirs = _said_plainly(one.plain), _said_plainly(other.plain)
    if not _TURNED.isdisjoint(mine) or not _TURNED.isdisjoint(theirs):
        return False
    acting = [at for at, word in enumerate(theirs) if word in _ACTING]
    for there in sorted({place for at in acting for place in (at + 1, at + 2) if place < len(theirs)}):
        deed = theirs[there]
        if deed not in mine or "v" not in parts_of_speech(deed) or not weight(deed):
            continue
        here = mine.index(deed)
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
    if not _ME.isdisjoint(mine[here + 1 : here + 2]):
        # They show me, I show to them.
        turned.add("to")
    for word in theirs[there + 1 :]:
        if word in _BEHIND:
            way = word
        elif not way or way in turned:
            yield word
