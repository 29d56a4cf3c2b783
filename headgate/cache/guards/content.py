"""Which words of two texts have a counterpart in the other, and whether one was put in another's place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import product, repeat

from headgate.cache.guards.exchange import holds_both_ways
from headgate.cache.guards.lexicon import LANGUAGES
from headgate.cache.guards.vocabulary import (
    acts,
    light,
    nameable,
    opposed,
    part_of_speech,
    parts_of_speech,
    related,
    rivals,
    weight,
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Words of two texts against each other.

    Attributes:
        shared: words with a counterpart.
        missing: those of the first without one.
        extra: those of the second without one.
        opposites: how many pairs of those are opposites.
    """

    shared: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    opposites: int


def align(stored: Sequence[str], asked: Sequence[str]) -> Alignment:
    """Match the words of two texts, each of which says something: equal ones first, then those that may stand for each
    other."""
    mine, theirs = dict.fromkeys(stored), dict.fromkeys(asked)
    # A word said once may be said twice by who explains more.
    left = [word for word in mine if word not in theirs]
    right = [word for word in theirs if word not in mine]
    shared = len(mine) - len(left)
    if len(mine) < len(stored) and len(theirs) < len(asked):
        shared = sum([min(stored.count(word), asked.count(word)) for word in mine if word in theirs])
    missing: list[str] = []
    # What is left was compared with all that is right.
    telling = [word for word in theirs if word in mine] if left else []
    for word in left:
        for other in right:
            if related(word, other):
                right.remove(other)
                telling.append(other)
                shared += 1
                break
        else:
            if _has_related(word, telling):
                shared += 1
            else:
                missing.append(word)
    telling = [word for word in mine if word not in missing] if right else []
    extra = [word for word in right if not _has_related(word, telling)]
    if not missing and not extra:
        return Alignment(shared, (), (), 0)
    # `Show it` against `make the hidden one visible`, though both say hide. But who speeds up a slow one says slow too.
    ours, yours = [
        [word for word in said if word not in others or "a" not in parts_of_speech(word)]
        for said, others in ((mine, theirs), (theirs, mine))
    ]
    met = [word for word in missing if _has_opposite(word, yours)]
    alone = [word for word in extra if _has_opposite(word, ours) and not _has_opposite(word, met)]
    return Alignment(shared, tuple(missing), tuple(extra), len(met) + len(alone))


def _has_related(word: str, others: Iterable[str]) -> bool:
    return any(map(related, repeat(word), others))


def _has_opposite(word: str, others: Iterable[str]) -> bool:
    return any(map(opposed, repeat(word), others))


_FREE = frozenset({"of", "in", "on", "at", "be", "have", "that", "and", "'s"})
"""Words that come and go where the same is asked."""
_DIRECTIONS = frozenset({"from", "to", "into", "than", "before", "after", "over", "by", "without", "with"})
_ASKING = frozenset({"why", "how", "what", "do", "can", "i", "be", "it", "should", "could", "my"})
_PERMITTED = frozenset(
    {"can", "may", "i", "my", "be", "it", "legal", "legally", "allow", "ok", "fine", "possible", "to", "you"}
)
_LEGAL = frozenset({"may", "legal", "legally", "allow"})
_OTHER_WAY = frozenset(
    pair for other in ("obtain", "receive", "take", "ask", "want") for pair in (("give", other), (other, "give"))
) | {("send", "obtain"), ("obtain", "send")}
"""Light words that say who has it in the end."""
_OPENERS = frozenset({"why", "how", "what", "which", "who", "when", "where", "in", "do", "be"})
_MEANS = frozenset({"with", "use", "using", "in", "via"})
_REWRITTEN = frozenset({"howto", "whatis", "whatdo", "price", "when", "count", "duration", "differ", "translate"})
"""A form that an opening was brought to: what it replaces in the other text is judged as a kind of question."""


def said_otherwise(stored: Sequence[str], asked: Sequence[str]) -> bool:
    """Two texts that are alike but for one place, and what stands in that place is not the same.

    Who asks freely changes the frame of a question; who keeps the frame means what differs, be it a small word.
    """
    if stored[:1] == asked[:1] == ["howto"] and not _OTHER_WAY.isdisjoint(product(stored[1:2], asked[1:2])):
        return True
    start = 0
    shorter = min(len(stored), len(asked))
    while start < shorter and (stored[start] == asked[start] or related(stored[start], asked[start])):
        start += 1
    end = 0
    while end < shorter - start and (stored[~end] == asked[~end] or related(stored[~end], asked[~end])):
        end += 1
    ours, theirs = stored[start : len(stored) - end], asked[start : len(asked) - end]
    if max(len(ours), len(theirs)) > min(3, start + end):
        return False
    frame = (*stored[:start], *stored[len(stored) - end :])
    said = sum(weight(word) > 0 for word in frame)
    if not said:
        return False
    mine, yours = [word for word in ours if word not in _FREE], [word for word in theirs if word not in _FREE]
    if start == 0 and not (ours and theirs) and {*mine, *yours} <= _ASKING:
        # A statement and a question after it: the kinds of question tell.
        return False
    if said > 1 and not _OTHER_WAY.isdisjoint(product(mine, yours)):
        return True
    if start == 0 and (_permitted({*mine} ^ {*yours}) or (mine and yours and {*mine, *yours} <= _OPENERS)):
        # Is it legal to, may I; how does it form, why does it form.
        return False
    if said > 2 and stored[0] != "whatis" and {*mine, *yours} <= {"my", "our"}:
        return False
    tool = stored[len(stored) - end] if end else ""
    if (
        {*mine, *yours} <= _MEANS
        and len(mine) <= 1
        and len(yours) <= 1
        and (part_of_speech(tool) == "?" or tool in LANGUAGES)
    ):
        # With CSS, using CSS, in CSS.
        return False
    if Counter(mine) == Counter(yours):
        return mine != yours and bool(_DIRECTIONS & {*mine})
    if said > 2 and all(light(word) or word == "to" for word in (*mine, *yours)):
        return False
    beside = (start > 0 and stored[start - 1] != asked[start - 1]) or (end > 0 and stored[-end] != asked[-end])
    if (start == 0 and _REWRITTEN & {*ours, *theirs}) or beside or _reworded(mine, yours):
        # Request leave, apply for leave; got rejected, was declined.
        least = 2 if start == 0 or len(frame) > 3 else 1
        mine = [word for word in mine if weight(word) >= least]
        yours = [word for word in yours if weight(word) >= least]
        mine, yours = (
            [word for word in mine if word not in _REWRITTEN],
            [word for word in yours if word not in _REWRITTEN],
        )
    return not _covered(mine, yours) or not _covered(yours, mine)


def _permitted(words: Set[str]) -> bool:
    """Whether they only ask whether something may be done; what is safe may be forbidden."""
    return words <= _PERMITTED or (words - {"safe"} <= _PERMITTED and words.isdisjoint(_LEGAL))


_HELPERS = frozenset({"be", "do", "have"})
_IN_FRAMES = {"many": "much", "do": "be", "have": "be"}
"""What follows from the word behind it: how many calories, how much sugar; when was it built, when did it fall."""


def one_word_exchanged(stored: Sequence[str], asked: Sequence[str]) -> bool:
    """Two texts that are alike to the last word but for one, behind the first, and the two do not mean the same.

    Looked at as they are written: how much a horse weighs is its weight, how much it eats is no such thing.
    """
    if len(stored) != len(asked) or len(stored) < 3:
        return False
    places = [
        at
        for at, (mine, yours) in enumerate(zip(stored, asked, strict=True))
        if _IN_FRAMES.get(mine, mine) != _IN_FRAMES.get(yours, yours)
    ]
    if len(places) != 1 or not places[0]:
        return False
    mine, yours = stored[places[0]], asked[places[0]]
    if (mine, yours) in _OTHER_WAY:
        return True
    if not weight(mine) or not weight(yours) or (light(mine) and light(yours)) or related(mine, yours):
        return False
    verbs = part_of_speech(mine) == part_of_speech(yours) == "v"
    if not verbs and [word for word in stored if word in _HELPERS] != [word for word in asked if word in _HELPERS]:
        # Why does it hurt, why is it painful.
        return False
    # What is told apart by numbers, dates and names has kinds of its own.
    return mine.isalpha() and yours.isalpha()


def _reworded(words: Sequence[str], others: Sequence[str]) -> bool:
    """Some word stands for another one: then the small words around it follow."""
    return any(weight(word) and word not in others and _has_related(word, others) for word in words)


def _covered(words: Sequence[str], others: Sequence[str]) -> bool:
    return all(_has_related(word, others) for word in words)


_TURNING = frozenset({"by", "whom"})


def swapped(stored: Sequence[str], asked: Sequence[str], names: Set[str]) -> bool:
    """Whether who does it and to whom it is done have changed places.

    Two things on either side of a verb stand the other way round, or one thing stands before the verb in one text and
    behind it in the other while somebody is asked for. A passive (`by`, `be`) turns things round and is let through.
    `names` are things whatever the vocabulary says.
    """
    if not _TURNING.isdisjoint(stored) or not _TURNING.isdisjoint(asked):
        return False
    theirs = {*asked}
    both = [word for word in dict.fromkeys(stored) if word in theirs and (weight(word) or word in names)]
    places = [asked.index(word) for word in both]
    if places == sorted(places):
        # None has changed places.
        return False
    things = [word for word in both if word in names or nameable(word)]
    if not things:
        return False
    deeds = [
        word
        for word in both
        if word not in names
        and "v" in parts_of_speech(word)
        and (part_of_speech(word) == "v" or (_does(stored, word, things) and _does(asked, word, things)))
    ]
    asking = stored[:1] == asked[:1] and stored[:1] and stored[0] in ("who", "what", "which")
    at = {word: (stored.index(word), place) for word, place in zip(both, places, strict=True)}
    for deed in deeds:
        here, there = at[deed]
        turned = [thing for thing in things if (at[thing][0] < here) != (at[thing][1] < there)]
        if not turned or holds_both_ways((), (deed,)):
            continue
        if _attributive(stored, here, asked, there) or _attributive(asked, there, stored, here):
            continue
        if (
            len(turned) > 1
            and any(thing in names or acts(thing) for thing in turned)
            and len({at[thing][0] < here for thing in turned}) > 1
            and _beside(stored, asked, deed, turned, things)
        ):
            return True
        if asking and not (_passive(stored, here) or _passive(asked, there)):
            return True
    return False


def _attributive(one: Sequence[str], here: int, other: Sequence[str], there: int) -> bool:
    """A cancelled flight in one text, a flight that was cancelled in the other."""
    return here + 1 < len(one) and one[here + 1] in other[:there] and "be" in other[other.index(one[here + 1]) : there]


def _beside(
    stored: Sequence[str], asked: Sequence[str], deed: str, turned: Sequence[str], things: Sequence[str]
) -> bool:
    """The nearest on either side of the deed are those that have changed sides."""
    found = []
    for words in (stored, asked):
        at = words.index(deed)
        left = next((word for word in reversed(words[:at]) if word in things), None)
        right = next((word for word in words[at + 1 :] if word in things and word != deed), None)
        found.append((left, right))
    (left, right), (other_left, other_right) = found
    return {left, right} <= {*turned} and (left == other_right or right == other_left)


def _does(words: Sequence[str], word: str, things: Sequence[str]) -> bool:
    """A noun that may be a verb, and is one between two things: `the moon orbits the earth`."""
    at = words.index(word)
    return at > 0 and all(beside in things for beside in (*words[at - 1 : at], *words[at + 1 : at + 2]))


def _passive(words: Sequence[str], at: int) -> bool:
    return "be" in words[:at]


def replaced(missing: Sequence[str], extra: Sequence[str], shared: int) -> bool:
    """Whether a specific word of one text stands where the other has another one of its class."""
    ours = [word for word in missing if weight(word) == 2]
    theirs = [word for word in extra if weight(word) == 2]
    if not ours or not theirs:
        return False
    nouns = (
        [word for word in ours if part_of_speech(word) in "na?"],
        [word for word in theirs if part_of_speech(word) in "na?"],
    )
    # Where little is shared, similarity is low and tells more than a word list: a near miss keeps most of the words.
    return shared + 2 > len(ours) + len(theirs) and any(rivals(one, other) for one in nouns[0] for other in nouns[1])
