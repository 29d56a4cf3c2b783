"""Which side of a pair of things a text asks for: what differs or what is shared, causes or effects, pros or cons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.reading import Token

_SIDES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        word: (pair, side)
        for pair, sides in {
            "likeness": {
                "differ": "difference differ different distinguish distinction dissimilar dissimilarity",
                "shared": "similarity similar alike commonality resemble resemblance",
            },
            "worth": {
                "pro": "pro advantage benefit upside strength merit perk",
                "con": "con disadvantage drawback downside weakness risk danger harm pitfall demerit",
            },
            "course": {
                "cause": "cause reason",
                "effect": "effect consequence aftermath impact",
                "symptom": "symptom sign",
                "treatment": "treatment treat cure remedy therapy",
                "prevention": "prevention prevent",
            },
            "sense": {"synonym": "synonym synonymous", "antonym": "antonym antonymous"},
            "result": {
                "win": "win wins victory victories",
                "loss": "loss losses defeat defeats",
                "draw": "draws",
                "goal": "goals",
            },
            "meal": {"breakfast": "breakfast", "lunch": "lunch", "dinner": "dinner supper"},
            "years": {"grown": "adult grown-up", "young": "child kid toddler infant"},
            "sorting": {"up": "ascending asc", "down": "descending desc"},
            "venue": {"home": "home", "away": "away"},
            "turn": {"question": "questions", "answer": "answers"},
            "mishap": {"lost": "lost lose", "broken": "broke broken"},
            "gain": {
                "safety": "safer",
                "speed": "faster quicker perform performs performance",
                "price": "cheaper",
                "health": "healthier",
            },
            "level": {"novice": "starter beginner novice newbie", "expert": "experienced advanced expert"},
            "pull": {"to": "attract", "off": "repel repellent deter deterrent"},
            "sight": {"shown": "unhide", "hidden": "hide invisible"},
        }.items()
        for side, words in sides.items()
        for word in words.split()
    }
)
_ENDS: Mapping[str, str] = MappingProxyType(
    {
        word: side
        for side, words in {
            "up": "smallest lowest least oldest shortest earliest first cheapest lightest slowest youngest",
            "down": "largest biggest highest most newest longest latest last greatest heaviest fastest",
        }.items()
        for word in words.split()
    }
)
"""Ends of a sorted list: where it begins says which way it is sorted."""
_NUMBERED: Mapping[str, str] = MappingProxyType({"#1th": "first", "#1": "one"})
_MOVING = frozenset({"come", "go", "put", "pull", "take", "turn", "bring", "move", "scroll", "scale"})
_AFTER_CAUSE = frozenset({"of", "for", "behind"})
_ASKED = frozenset({"what", "which"})
_BEHIND_LIKENESS = frozenset({"", "from", "than", "to", "about", "between"})
_BEFORE_LIKENESS = frozenset({"how", "make", "makes"})
_WHOLE = frozenset({"likeness", "worth"})
"""Pairs of which a text that names both sides asks for more than one that names one."""

_ENDING = frozenset({"stop", "close", "delete", "remove", "cancel", "kill", "restart", "mute", "disable", "hide"})
_TELLING = frozenset({"set", "sets", "setting", "tell", "telling", "tells"})
_MORE = frozenset({"more", "most"})
_ENTRIES = frozenset({"common", "up", "down"})
_ACTING = frozenset({"i", "we", "who", "somebody", "someone"})
_WAS_HIDDEN = frozenset({"hid", "hides"})
_GETTING = frozenset({"get", "find", "obtain"})
_USING = frozenset({"use", "enter", "redeem"})
_ONE = frozenset({"a", "an", "one"})
_BESIDE = _GETTING | _USING | {"early", "late", "schedule", "work", "all", "one", "recently", "first", "apart"}
"""What tells a side together with the words beside it."""
_TO_WORK = frozenset({"work", "working", "works", "run", "running", "out", "off", "rid"})

Sides = Mapping[str, frozenset[str]]
_NONE: Sides = MappingProxyType({})


@lru_cache(maxsize=8192)
def _side(word: str) -> tuple[str, str] | None:
    return _SIDES.get(word) or _SIDES.get(base_form(word))


def sides_of(tokens: Sequence[Token]) -> Sides:
    """For each pair the sides that a text names; pairs it says nothing of are absent."""
    words = [token.form if token.kind == "word" else _NUMBERED.get(token.form, "") for token in tokens]
    found = {} if _BESIDE.isdisjoint(words) else _by_neighbours(words)
    if not found and _ENTRIES.isdisjoint(words) and _ENDS.keys().isdisjoint(words) and not any(map(_side, words)):
        return _NONE
    for at, word in enumerate(words):
        known = _side(word)
        before, behind = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        to_another = behind == "to" and not _ENDS.keys().isdisjoint(words[at + 2 : at + 5])
        if word in _ENDS and (behind == "first" or to_another):
            # From the oldest to the newest, oldest first.
            known = "sorting", _ENDS[word]
        if word == "common" and before in _MORE:
            # Which is more common is not how they differ.
            known = "likeness", "rate"
        if word in ("up", "down") and not _MOVING.isdisjoint(map(base_form, words[max(0, at - 2) : at])):
            known = "way", word
        if known is None and word != "common":
            continue
        pair, side = known or (("likeness", "shared") if before == "in" else ("", ""))
        if not pair or (pair == "turn" and word != f"{side}s"):
            continue
        if (pair == "mishap" and word != side and before not in _ACTING) or word in _WAS_HIDDEN:
            # How to break a lease; the columns that I hid.
            continue
        if side == "home" and before != "at":
            # Away from home.
            continue
        if side == "cause" and behind not in _AFTER_CAUSE and before not in _ASKED:
            # What stress causes are effects.
            continue
        if word in ("different", "similar") and behind not in _BEHIND_LIKENESS and before not in _BEFORE_LIKENESS:
            # Different colors, but: how different are they.
            continue
        found.setdefault(pair, set()).add(side)
    return {pair: frozenset(sides) for pair, sides in found.items()}


def _by_neighbours(words: Sequence[str]) -> dict[str, set[str]]:
    """Sides that only words beside each other name: ahead of schedule, too late, get a card or use one."""
    found: dict[str, set[str]] = {}
    for at, word in enumerate(words):
        before, behind = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        if word in ("early", "late") and before == "too":
            found.setdefault("hour", set()).add(word)
        elif word == "schedule" and before in ("of", "behind") and words[at - 2 : at] != ["out", "of"]:
            found.setdefault("pace", set()).add("behind" if before == "behind" else "ahead")
        elif word in _USING or (word in _GETTING and behind in _ONE and _TO_WORK.isdisjoint(words)):
            for thing in words[at + 2 : at + 5]:
                found.setdefault(f"having {thing}", set()).add("used" if word in _USING else "got")
        elif word == "work" and words[0] in ("do", "does", "can", "will"):
            for thing in words[max(2, at - 2) : at]:
                found.setdefault(f"having {thing}", set()).add("used")
        elif word == "all" and before == "them":
            found.setdefault("many", set()).add("all")
        elif word == "one" and before in _ENDING:
            found.setdefault("many", set()).add("one")
        elif word == "recently" and before == "most":
            found.setdefault("turn taken", set()).add("last")
        elif word == "first" and behind.endswith("ed"):
            found.setdefault("turn taken", set()).add("first")
        elif word == "apart" and not _TELLING.isdisjoint(words[max(0, at - 7) : at]):
            found.setdefault("likeness", set()).add("differ")
    return found


def contrary(one: Sides, other: Sides) -> bool:
    """Whether the texts ask for different sides of something."""
    for pair in one.keys() & other.keys():
        if not one[pair] & other[pair] or (pair in _WHOLE and one[pair] != other[pair]):
            return True
    return False
