"""Relations of two things in one form, however they are put: what exceeds what, what takes the place of what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

from headgate.cache.guards.words import word_set

_SCALES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        word: (scale, sign)
        for scale, more, less in (
            ("price", "expensive pricey pricier costly dear dearer", "cheap cheaper"),
            ("size", "large larger big bigger", "small smaller"),
            ("length", "tall taller long longer", "short shorter brief briefer"),
            ("age", "old older", "young younger new newer"),
            ("speed", "fast faster quick quicker", "slow slower"),
            ("weight", "heavy heavier", "light lighter"),
            ("heat", "hot hotter warm warmer", "cold colder cool cooler"),
            ("level", "high higher", "low lower"),
            ("worth", "good better", "bad worse"),
            ("strength", "strong stronger powerful", "weak weaker"),
            ("wealth", "rich richer", "poor poorer"),
            ("depth", "deep deeper", "shallow shallower"),
            ("width", "wide wider", "narrow narrower"),
            ("safety", "safe safer", "dangerous"),
            ("ease", "easy easier simple simpler", "hard harder difficult"),
            ("time", "late later", "early earlier"),
        )
        for words, sign in ((more, 1), (less, -1))
        for word in words.split()
    }
)
_GREATER: Mapping[str, str] = MappingProxyType(
    # A file that is lighter is smaller; no longer, and earlier calls, compare nothing.
    {
        word: "size" if scale == "weight" else scale
        for word, (scale, _) in _SCALES.items()
        if word.endswith("er") and scale != "time"
    }
)
_UTMOST: Mapping[str, str] = MappingProxyType(
    {f"{word.removesuffix('er')}est": scale for word, scale in _GREATER.items()}
)
_VAGUE = frozenset({"worth", "ease", "level", "strength"})
"""What may be said for other scales: the highest mountain is the tallest, the best way may be the quickest."""
_MEASURES: Mapping[str, str] = MappingProxyType(
    {"price": "price", "cost": "price", "pay": "price", "weigh": "weight", "heavy": "weight", "weight": "weight"}
)
"""What `more` and `less`, `higher` and `lower` are said of."""
_DEGREES: Mapping[str, int] = MappingProxyType({"more": 1, "less": -1})
_COMPARED = frozenset({"compare", "compared"})
_COMPARING = _COMPARED | {"than"}
_HAVING = frozenset({"have", "get", "make", "earn", "produce", "use", "consume", "contain", "offer", "need", "require"})
_STOPS = frozenset({"in", "on", "at", "when", "if", "with", "by", "correct", "right", "true"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left` exceeds `right` on a scale, or falls behind where the sign is -1. Things are sets of their words."""

    scale: str
    sign: int
    left: frozenset[str]
    right: frozenset[str]


def compared(words: Sequence[str], things: Sequence[bool]) -> Comparison | None:
    """What a text compares: `A is cheaper than B`, `does A cost less than B`, `compared with B, is A cheaper`.

    Args:
        words: base forms without articles, those before `than` as they are written.
        things: which of them are part of a thing.
    """
    if _COMPARING.isdisjoint(words):
        return None
    found = _scale(words)
    if found is None:
        return None
    at, scale, sign = found

    def named(start: int, end: int) -> frozenset[str]:
        return frozenset(
            words[i] for i in range(start, end) if things[i] and words[i] not in _MEASURES and words[i] not in _SCALES
        )

    if "than" in words[at:]:
        than = words.index("than", at)
        end = next((i for i in range(than + 1, len(words)) if words[i] in _STOPS), len(words))
        # A has a larger area than B, but: is it cheaper by bus than by train.
        had = at > 0 and (things[at - 1] or words[at - 1] in _HAVING)
        left, right = (had and named(0, at)) or named(at, than) or named(0, at), named(than + 1, end)
    else:
        start = next((i for i, word in enumerate(words) if word in _COMPARED), None)
        split = None if start is None else next((i for i in range(start, len(words)) if words[i] in ("be", "do")), None)
        if start is None or split is None:
            return None
        left, right = named(split, at), named(start, split)
    return Comparison(scale, sign, left, right) if left and right else None


def _scale(words: Sequence[str]) -> tuple[int, str, int] | None:
    """Where the compared property stands, which it is, and its sign."""
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        if word in _DEGREES:
            if following in _SCALES:
                scale, sign = _SCALES[following]
                return at, scale, sign * _DEGREES[word]
            measure = next((_MEASURES[w] for w in words if w in _MEASURES), None)
            if measure is not None:
                return at, measure, _DEGREES[word]
        if word in _SCALES and (word.endswith(("er", "ier")) or word in ("worse", "better")):
            scale, sign = _SCALES[word]
            if scale == "level" and following in _MEASURES:
                scale = _MEASURES[following]
            return at, scale, sign
    return None


def said_alike(one: Comparison, other: Comparison) -> bool | None:
    """Whether two comparisons of the same things come to the same; None where they are of other things."""
    # The economy of A against B, the economy of B against A: what is compared of both stands on one side.
    of_both = one.left & other.left, one.right & other.right
    lefts = [side - of_both[0] for side in (one.left, other.left)]
    rights = [side - of_both[1] for side in (one.right, other.right)]
    if all(lefts) and all(rights) and (lefts[0] & rights[1] or rights[0] & lefts[1]):
        return None if one.scale != other.scale else one.sign != other.sign
    straight = bool(one.left & other.left) or bool(one.right & other.right)
    crossed = bool(one.left & other.right) or bool(one.right & other.left)
    if one.scale != other.scale or straight == crossed:
        return None
    return straight == (one.sign == other.sign)


_TAKEN_FOR = frozenset({"instead", "substitute", "replacement", "alternative", "replace", "swap", "exchange"})
_HAD = frozenset({"be", "run", "'m", "'re", "am"})
"""Before `out of`: what has run out."""
_LEFT = frozenset({"of", "leave"})
_REACH = 3


def replaced_by(words: Sequence[str], things: Sequence[bool]) -> tuple[Set[str], Set[str]]:
    """What a text leaves out and what it takes in its place; empty where it says nothing of it."""
    out: set[str] = set() if _LEFT.isdisjoint(words) else {*_given_up(words, things)}
    taken: set[str] = set()
    if _TAKEN_FOR.isdisjoint(words):
        return out, taken
    for at, word in enumerate(words):
        if word not in _TAKEN_FOR:
            continue
        behind = [(i, words[i]) for i in range(at + 1, min(at + 8, len(words)))]
        first = next((w for i, w in behind if things[i]), "")
        joint = next((i for i, w in behind if w in ("for", "with", "by", "of")), None)
        second = "" if joint is None else next((words[i] for i in range(joint + 1, len(words)) if things[i]), "")
        direct = first and (joint is None or words.index(first, at) < joint)
        if word in ("instead", "replacement", "alternative") or (word == "substitute" and not direct):
            # A instead of B, A as a substitute for B.
            out.add(second)
        elif direct and joint is not None and word == "substitute" and words[joint] == "for":
            taken.add(first)
            out.add(second)
        elif direct and joint is not None:
            out.add(first)
            taken.add(second)
    return out - {""}, taken - {""}


def _given_up(words: Sequence[str], things: Sequence[bool]) -> Iterator[str]:
    """I am out of cinnamon, leave the nuts out, garlic in place of basil."""
    for at in range(1, len(words) - 1):
        before, word, behind = words[at - 1 : at + 2]
        gone = (word, behind) == ("out", "of") and not _HAD.isdisjoint(words[max(0, at - 2) : at])
        if gone or (before, word, behind) == ("in", "place", "of"):
            first, last = at + 2, at + 2 + _REACH
        elif before == "leave" and "out" in words[at + 1 : at + 3]:
            first, last = at, words.index("out", at)
        else:
            continue
        yield from [words[i] for i in range(first, min(last, len(words))) if things[i]][:1]


_GIVEN_UP = frozenset({"from", "instead"})
_TAKEN_UP = frozenset({"to", "into", "until"})
_PLANNED = frozenset({"come", "arrive", "schedule", "book", "due", "plan", "set", "be"})
_WANTED = frozenset(
    {"want", "require", "should", "like", "prefer", "wish", "deliver", "move", "change", "rather", "can"}
)


def moved_back(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the one text moves something from a first date to a second, and the other from the second to the first.

    `one` and `other` are the texts' words as `meaning` has them.
    """
    mine, yours = _moved(one), _moved(other)
    return mine is not None and yours is not None and mine == yours[::-1]


def _moved(words: Sequence[str]) -> tuple[str, str] | None:
    """Of a text with two dates the one that is given up and the one that is taken for it: from Monday to Tuesday,
    Tuesday instead of Monday, not on Monday but Tuesday, it comes on Monday and I want it on Tuesday."""
    dates = [at for at, word in enumerate(words) if word.startswith("date:")]
    if len(dates) != 2 or words[dates[0]] == words[dates[1]]:
        return None
    first, second = (words[at] for at in dates)
    out = [_before(words, at) & _GIVEN_UP or "not" in words[max(0, at - 4) : at] for at in dates]
    into = [bool(_before(words, at) & _TAKEN_UP) for at in dates]
    between = {*words[dates[0] + 1 : dates[1]]}
    if (out[0] and not out[1]) or (into[1] and not into[0]):
        return first, second
    if (out[1] and not out[0]) or (into[0] and not into[1]):
        return second, first
    if not _PLANNED.isdisjoint(words[max(0, dates[0] - 4) : dates[0]]) and not _WANTED.isdisjoint(between):
        return first, second
    return None


def _before(words: Sequence[str], at: int) -> Set[str]:
    """The word in front of one, and the one before that where `of` or `on` stands between."""
    found = {*words[max(0, at - 1) : at]}
    return found | {*words[max(0, at - 2) : at - 1]} if found & {"of", "on"} else found


def other_scale(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the one text asks for the widest, or for what is wider, and the other for the longest.

    `one` and `other` are the texts' words as they are written.
    """
    for table in (_UTMOST, _GREATER):
        if table.keys().isdisjoint(one) or table.keys().isdisjoint(other):
            continue
        mine, yours = (
            {table[word] for before, word in zip(("", *words), words, strict=False) if word in table and before != "no"}
            for words in (one, other)
        )
        if mine and yours and mine.isdisjoint(yours) and _VAGUE.isdisjoint(mine | yours):
            return True
    return False


_AGAINST = frozenset({"vs", "versus"})
_JOINING = _AGAINST | {"between"}
_ENDING = word_set("in for on at of to when with be do explain mean difference differ how what which why")


def differing(words: Sequence[str]) -> tuple[str, str] | None:
    """The two things whose difference is asked for: a crow and a raven, merge versus join; each by its last word.

    `words` are base forms without articles.
    """
    if _JOINING.isdisjoint(words):
        return None
    middle = next((at for at, word in enumerate(words) if word in _AGAINST), None)
    if middle is None and "between" in words and ("difference" in words or "differ" in words):
        start = words.index("between")
        middle = words.index("and", start) if "and" in words[start:] else None
    if not middle or middle + 1 >= len(words):
        return None
    end = next((at for at in range(middle + 2, len(words)) if words[at] in _ENDING), len(words))
    return words[middle - 1], words[end - 1]
