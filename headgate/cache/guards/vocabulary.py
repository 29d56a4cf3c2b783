"""Words and how they relate: who stands for whom, who is whose opposite, who says much and who says little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from types import MappingProxyType

from headgate.cache.guards.english import lines
from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.lexicon import NEGATING_PREFIXES
from headgate.cache.guards.synonyms import WORDS

_WORDS = 16384
"""Answers remembered of each of the questions below: they are asked a hundred times about a pair of texts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the vocabulary knows of a base form.

    Attributes:
        parts: n, v, a, r by frequency.
        classes: capital letters as english/wordnet.txt explains them.
        related: words that share a frequent sense or a root with it.
        opposites: its opposites.
    """

    parts: str
    classes: str
    related: frozenset[str]
    opposites: frozenset[str]


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, Entry]:
    table: dict[str, Entry] = {}
    for line in lines("wordnet.txt"):
        word, kinds, *others = line.split()
        near = next((part for part in others if part[0] != "!"), "")
        far = next((part[1:] for part in others if part[0] == "!"), "")
        lower = "".join(letter for letter in kinds if letter.islower())
        upper = "".join(letter for letter in kinds if letter.isupper())
        table[word] = Entry(lower, upper, frozenset(near.split(",")), frozenset(far.split(",")))
    return MappingProxyType(table)


@lru_cache(maxsize=1)
def _related() -> frozenset[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    for line in lines("related.txt"):
        for one, other in combinations(sorted({kept(word) for word in line.split()}), 2):
            pairs |= {(one, other), (other, one)}
    return frozenset(pairs)


@lru_cache(maxsize=1)
def _opposites() -> frozenset[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    for line in lines("opposites.txt"):
        ours, theirs = (side.split() for side in line.split("/"))
        for one, other in product(map(kept, ours), map(kept, theirs)):
            pairs |= {(one, other), (other, one)}
    return frozenset(pairs)


@lru_cache(maxsize=1)
def _plain() -> Mapping[str, str]:
    table: dict[str, str] = {}
    section = ""
    for line in lines("plain.txt"):
        if line.startswith("["):
            section = line.strip("[]")
        else:
            for word in line.split():
                table.setdefault(word, section)
                table.setdefault(WORDS.get(word, word), section)
    return MappingProxyType(table)


@lru_cache(maxsize=_WORDS)
def kept(word: str) -> str:
    """The form in which `meaning` has a word: its base form, first of its synonyms."""
    base = base_form(word)
    return WORDS.get(base, base)


@lru_cache(maxsize=_WORDS)
def weight(word: str) -> int:
    """0 for a word that says nothing of its own, 1 for one that may be said or left out, 2 for a specific one."""
    section = _plain().get(word)
    if section is not None:
        return 0 if section == "function" else 1
    entry = _entries().get(word)
    return 1 if entry is not None and entry.parts[0] == "r" else 2


def light(word: str) -> bool:
    """Whether it is one of the words that may be said or left out."""
    return _plain().get(word) == "light"


@lru_cache(maxsize=_WORDS)
def parts_of_speech(word: str) -> str:
    """All common parts of speech of a base form, by frequency; ? for a word that is not known."""
    entry = _entries().get(word)
    return "?" if entry is None else entry.parts


@lru_cache(maxsize=_WORDS)
def nameable(word: str) -> bool:
    """Whether a base form may be a noun; one that is not known may be."""
    return not {"n", "?"}.isdisjoint(parts_of_speech(word))


def classes(word: str) -> str:
    """The classes of a noun; empty for other words and those that are not known."""
    entry = _entries().get(word)
    return "" if entry is None else entry.classes


_ACTING = frozenset({
    "hotel", "shop", "store", "restaurant", "airline", "hospital", "museum", "library", "pharmacy", "bank", "gym",
    "someone", "somebody", "anyone", "anybody", "everyone", "everybody", "people",
})  # fmt: skip


def acts(word: str) -> bool:
    """Whether it may do something to somebody: a person, an animal, people together or a house that stands for them;
    words that are not known may be names."""
    return word in _ACTING or part_of_speech(word) == "?" or not {"P", "G", "N"}.isdisjoint(classes(word))


@lru_cache(maxsize=_WORDS)
def part_of_speech(word: str) -> str:
    """The commonest part of speech: n, v, a or r; ? for a word that is not known."""
    entry = _entries().get(word)
    return "?" if entry is None else entry.parts[0]


@lru_cache(maxsize=65536)
def opposed(one: str, other: str) -> bool:
    """Whether two base forms are opposites: by a list, by a prefix (lock, unlock) or by -ful and -less."""
    if one == other:
        return False
    if (one, other) in _opposites():
        return True
    # A prefix makes a word longer.
    if len(one) != len(other) and (_prefixed(one, other) if len(one) < len(other) else _prefixed(other, one)):
        return True
    if (one.endswith("less") and other.endswith("ful")) or (one.endswith("ful") and other.endswith("less")):
        return one[:4] == other[:4]
    mine, theirs = _entries().get(one), _entries().get(other)
    return (mine is not None and other in mine.opposites) or (theirs is not None and one in theirs.opposites)


def _prefixed(word: str, longer: str) -> bool:
    if len(word) < 3 or not longer.endswith(word) or (longer in _entries() and word not in _entries()):
        return False
    prefix = longer.removesuffix(word).rstrip("-")
    return prefix in NEGATING_PREFIXES and (len(prefix) > 1 or len(word) > 5)


@lru_cache(maxsize=65536)
def related(one: str, other: str) -> bool:
    """Whether one of two base forms may stand for the other where the same is asked."""
    if one == other:
        return True
    # Few are alike at all, and only those need to be asked whether they are opposites.
    return _alike(one, other) and not opposed(one, other)


def _alike(one: str, other: str) -> bool:
    if (one, other) in _related() or (one[:3] == other[:3] and _same_root(one, other)):
        return True
    if len(one) == len(other) and _mistyped(one, other):
        return True
    entries = _entries()
    mine, theirs = entries.get(one), entries.get(other)
    return (mine is not None and other in mine.related) or (theirs is not None and one in theirs.related)


_ENDINGS = (
    "ations", "ation", "ition", "ments", "ment", "ings", "ing", "ion", "ions", "ally", "ily", "ly", "ance", "ence",
    "ancy", "ency", "ant", "ent", "ness", "ity", "ary", "ery", "al", "ed", "able", "ible", "ive", "ous", "ic",
    "ical", "or", "er", "en", "ened", "ening", "ful", "ize", "ise", "ify", "th", "ian", "an", "y", "e", "s",
)  # fmt: skip


def _same_root(one: str, other: str) -> bool:
    """Whether the longer word is the shorter one with an ending: install, installation; germany, german."""
    short, long = sorted((one, other), key=len)
    if len(short) < 4 or short[:3] != long[:3]:
        return False
    stems = {short, short[:-1] if short[-1] in "ey" else short, short + short[-1]}
    return any(long.removesuffix(ending) in stems for ending in _ENDINGS if long.endswith(ending))


def _mistyped(one: str, other: str) -> bool:
    """Whether, of two as long as each other, one is no word and the other what it becomes when two letters in a row
    change places."""
    if len(one) < 5 or one[0] != other[0] or _known(one) == _known(other):
        return False
    at = next(at for at in range(len(one)) if one[at] != other[at])
    return one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]


def _known(word: str) -> bool:
    return word in _entries() or word in _plain()


_THINGS = "BDFIJN"


@lru_cache(maxsize=65536)
def rivals(one: str, other: str) -> bool:
    """Whether two unrelated words name things of one class, so that one instead of the other asks something else.

    Things that can be touched only: of acts, ideas and messages (a charge, a payment; a menu, a language) paraphrases
    name as many as near misses do. A word that is not known may be a thing.
    """
    mine, theirs = _entries().get(one), _entries().get(other)
    ours = _THINGS if mine is None else mine.classes if mine.parts[0] == "n" else ""
    yours = _THINGS if theirs is None else theirs.classes if theirs.parts[0] == "n" else ""
    return any(letter in yours and letter in _THINGS for letter in ours)
