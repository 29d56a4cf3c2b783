"""Two things that have changed places, with all between them the same: another question, whatever else is said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set

from headgate.cache.guards.dates import MONTHS
from headgate.cache.guards.vocabulary import nameable
from headgate.cache.guards.words import word_set

_BOTH_WAYS = word_set(
    "difference differ compare comparison distance far sum relationship versus vs intersect intersection multiply"
)
"""Words of a relation that holds both ways, wherever they stand."""
_BETWEEN_THEM = _BOTH_WAYS | word_set(
    "different between equal same similar similarity alike marry mean common share rhyme relate relation related"
    " identical border friend cousin sibling sister brother twin near close neighbor neighbour meet compatible overlap"
    " parallel perpendicular synonymous equivalent correlate correlation coincide date divorce adjacent opposite"
    " alongside together interchangeable plus add"
)
"""Those that say so only between two things: Anna is the sister of Beth, but my sister sends my brother a letter."""
_INSTEAD = word_set("replace substitute exchange swap cover fill")
"""What is replaced with what is told by the order."""
_MIXING = word_set("mix combine merge")
_LISTING = frozenset({"and", "or", "nor", "with", "beside", "vs"})
_MILES = frozenset({"mile", "kilometer", "kilometre", "km"})
_JOINING = _LISTING | {",", "&", "+", "*", "×", "·", "="}
_CONVERSE = frozenset(
    (one, other)
    for side, far in (
        ("larger bigger greater", "smaller"), ("taller longer", "shorter"), ("older", "younger newer"),
        ("faster quicker", "slower"), ("heavier", "lighter"), ("hotter warmer", "colder cooler"),
        ("higher", "lower"), ("better", "worse"), ("stronger", "weaker"), ("richer", "poorer"),
        ("deeper", "shallower"), ("wider", "narrower"), ("thicker", "thinner"), ("harder", "easier softer"),
        ("brighter", "darker"), ("more", "less fewer"), ("cheaper", "dearer pricier costlier"), ("safer", "riskier"),
        ("earlier sooner", "later"),
    )
    for one in side.split()
    for other in far.split()
)  # fmt: skip
_COMPARATIVES = frozenset(word for pair in _CONVERSE for word in pair)
_SPAN = 3
_BETWEEN = 5


def holds_both_ways(frame: Sequence[str], between: Sequence[str]) -> bool:
    """Whether a relation holds both ways: married to, far from, equal to.

    Args:
        frame: all words of the text.
        between: those between the two things.
    """
    if "than" in between:
        return False
    # Compared with the one, is the other larger?
    if _COMPARATIVES.isdisjoint(frame) and not (_BOTH_WAYS.isdisjoint(frame) and _BETWEEN_THEM.isdisjoint(between)):
        return True
    if list(between) == ["time"]:
        # Three times four.
        return True
    if "from" in between and "to" not in frame and not _MILES.isdisjoint(frame):
        return True
    if "with" in between and not _INSTEAD.isdisjoint(frame):
        return False
    return _JOINING.issuperset(between) or ("with" in between and not _MIXING.isdisjoint(frame))


def exchanged(one: Sequence[str], other: Sequence[str], things: Sequence[bool]) -> bool | None:
    """Whether two things that stand left and right of the same words in one text stand right and left in the other.

    A passive has other words between the two.

    Args:
        one: base forms without articles; what is compared alike (`greater than`, `bigger than`) is written alike.
        other: those of the other text.
        things: for each of `one`, whether it may be (part of) a thing: a noun, a name, a number, a date.

    Returns:
        True where it makes another question of it, False where what is said holds both ways, None where no two things
        have changed places.
    """
    # Texts with other words have no such runs in common; most pairs end here.
    both = {*one} & {*other}
    if len(both) < 3:
        return None
    # Nothing has changed places where what both say stands in one order.
    if [word for word in one if word in both] == [word for word in other if word in both]:
        return None
    turned: bool | None = None
    for here, between, there in _turned(one, other, things, both):
        if not holds_both_ways(one, between) and not (_WHERE.issuperset(between) and _when(here) != _when(there)):
            return True
        turned = False
    return turned


def changed_ends(one: Sequence[str], other: Sequence[str], things: Sequence[bool]) -> bool:
    """Whether the texts are alike to the last word but for two things that have changed places, however much stands
    between them: another question, unless what is said holds both ways. Arguments as `exchanged`."""
    if len(one) != len(other) or one == other:
        return False
    start = next(at for at in range(len(one)) if one[at] != other[at])
    end = next(at for at in range(len(one), 0, -1) if one[at - 1] != other[at - 1])
    mine, yours = list(one[start:end]), list(other[start:end])
    for first in range(1, min(_SPAN, len(mine) - 1) + 1):
        for last in range(1, min(_SPAN, len(mine) - first - 1) + 1):
            here, between, there = mine[:first], mine[first:-last], mine[-last:]
            of_things = all(things[at] or nameable(one[at]) for at in (start + first - 1, end - 1))
            if of_things and yours == [*there, *between, *here] and not holds_both_ways(one, between):
                return True
    return False


_WHERE = frozenset({"in", "on", "at", "for"})
_TIMES = frozenset({*MONTHS, "spring", "summer", "autumn", "winter"})


def _when(thing: Sequence[str]) -> bool:
    """Whether it is a time: in July in Dubai, in Dubai in July."""
    return not _TIMES.isdisjoint(thing) or any(word[:1].isdigit() or word.startswith("at·") for word in thing)


def _turned(
    one: Sequence[str], other: Sequence[str], things: Sequence[bool], both: Set[str]
) -> Iterator[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
    """Two things of up to three words and the up to five words between them, as the one text has them, where the other
    has the second thing, the same words and the first.

    Of `both` those count that are said once in either text: otherwise both orders may be said in both.
    """
    alone = [
        (at, other.index(word))
        for at, word in enumerate(one)
        if things[at] and word in both and one.count(word) == 1 and other.count(word) == 1
    ]
    for (start, its_start), (second, its_second) in itertools.combinations(alone, 2):
        # So many words are the second thing and what stands between.
        size = its_start - its_second
        if size < 2 or second - start > _SPAN + _BETWEEN:
            continue
        for end in range(max(start + 1, second - _BETWEEN), min(start + _SPAN, second - 1) + 1):
            last = end + size
            if not second < last <= min(second + _SPAN, len(one)):
                continue
            here, between, there = one[start:end], one[end:second], one[second:last]
            if (
                all(things[start:end])
                and all(things[second:last])
                and [*there, *between, *here] == [*other[its_second : its_second + last - start]]
                and {*here}.isdisjoint(there)
            ):
                yield here, between, there


def converse(one: Sequence[str], other: Sequence[str], things: Sequence[bool]) -> bool:
    """Whether the texts say the same from either end: Jupiter is bigger than Saturn, Saturn is smaller than Jupiter.

    Arguments as `exchanged`, with the words before `than` as they are written.
    """
    if one.count("than") != 1 or other.count("than") != 1 or len(one) != len(other):
        return False
    mine, yours = one.index("than") - 1, other.index("than") - 1
    ends = one[mine], other[yours]
    if mine < 0 or yours < 0 or (ends not in _CONVERSE and ends[::-1] not in _CONVERSE):
        return False
    turned = [*other[:yours], one[mine], *other[yours + 1 :]]
    return sorted(one) == sorted(turned) and bool(exchanged(one, turned, things))
