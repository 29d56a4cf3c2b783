"""The guards themselves: each says whether two texts agree in one respect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from headgate.cache.guards.comparison import Comparison
from headgate.cache.guards.lexicon import (
    ABOUT_WORDS,
    ASPECTS,
    CASE_MATTERS,
    COMPARATORS,
    FORMAT,
    LANGUAGES,
    NEGATING_PREFIXES,
    NEGATION,
    POLARITY,
    QUANTIFIERS,
    TEMPORAL,
    WH,
)
from headgate.cache.guards.meaning import Meaning, meaning
from headgate.cache.guards.reading import Kind, Token, read
from headgate.cache.guards.wording import core


@dataclass(frozen=True, slots=True)
class Reading:
    """What the guards look at in one text."""

    tokens: tuple[Token, ...]
    """All tokens that ask."""
    meaning: Meaning
    asks: bool
    """It ends with a question mark."""


Guard = Callable[[Reading, Reading], bool]


def check(stored: str, asked: str | Reading) -> str | None:
    """The name of the first guard that keeps the answer to `stored` from serving `asked`; None if all agree.

    Who asks for one text again and again passes what `reading_of` made of it.
    """
    one, other = reading_of(stored), asked if isinstance(asked, Reading) else reading_of(asked)
    for name, agree in GUARDS:
        if not agree(one, other):
            return name
    return None


def compare(stored: Reading, asked: Reading) -> Comparison:
    """The typed evidence for serving the answer to `stored` for `asked`."""
    agree, conflict, one_sided = set(), set(), set()
    for name, extract in _KINDS.items():
        one, other = extract(stored), extract(asked)
        if one == other:
            if one:
                agree.add(name)
        elif one and other:
            conflict.add(name)
        else:
            one_sided.add(name)
    same = all(guard(stored, asked) for _, guard in GUARDS)
    mine, theirs = stored.meaning.bag, asked.meaning.bag
    return Comparison(
        agree=frozenset(agree),
        conflict=frozenset(conflict),
        one_sided=frozenset(one_sided),
        shared=(mine & theirs).total(),
        missing=(mine - theirs).total(),
        extra=(theirs - mine).total(),
        loose=0,
        same=same,
    )


def reading_of(text: str) -> Reading:
    """A text as the guards look at it."""
    tokens = read(text)
    asking = core(tokens)
    courtesy = not any(token.form in ABOUT_WORDS for token in tokens)
    return Reading(tuple(asking), meaning(asking, courtesy=courtesy), text.rstrip().endswith("?"))


def _equal(extract: Callable[[Reading], Hashable]) -> Guard:
    def agree(one: Reading, other: Reading) -> bool:
        return extract(one) == extract(other)

    return agree


def _of_kind(*kinds: Kind) -> Guard:
    """The tokens of these kinds are the same."""
    return _equal(lambda seen: _counted(token.form for token in seen.tokens if token.kind in kinds))


def _in_table(table: Mapping[str, str]) -> Guard:
    """The words of the table occur alike; words of one group count as the same."""
    return _equal(lambda seen: _counted(table[atom] for atom in seen.meaning.atoms if atom in table))


def _counted(items: Iterable[str]) -> frozenset[tuple[str, int]]:
    return frozenset(Counter(items).items())


def _names(one: Reading, other: Reading) -> bool:
    """What either text writes as a name stands in both, in any case."""
    names = {token.form for seen in (one, other) for token in seen.tokens if token.capital}
    if not names:
        return True
    mine = [token for token in one.tokens if token.form in names]
    theirs = [token for token in other.tokens if token.form in names]
    if _counted(token.form for token in mine) != _counted(token.form for token in theirs):
        return False
    # polish and Polish: here the order of appearance tells which is which.
    return all(
        a.capital == b.capital or a.opens or b.opens
        for a, b in zip(
            [token for token in mine if token.form in CASE_MATTERS],
            [token for token in theirs if token.form in CASE_MATTERS],
            strict=True,
        )
    )


def _polarity(one: Reading, other: Reading) -> bool:
    """No word meets its opposite: neither one of the table's nor one made by a prefix (lock, unlock)."""
    mine, theirs = one.meaning.bag, other.meaning.bag
    only_mine, only_theirs = list(mine - theirs), list(theirs - mine)
    if _counted(POLARITY[a] for a in only_mine if a in POLARITY) != _counted(
        POLARITY[a] for a in only_theirs if a in POLARITY
    ):
        return False
    return not any(_opposed(a, b) or _opposed(b, a) for a in only_mine for b in only_theirs)


def _opposed(word: str, longer: str) -> bool:
    if len(word) < 3 or not longer.endswith(word):
        return False
    return longer.removesuffix(word).rstrip("-") in NEGATING_PREFIXES


def _aspect(seen: Reading) -> tuple[Hashable, ...]:
    """Which question words it asks with and which property it asks for."""
    atoms = seen.meaning.atoms
    asked = _counted(atom for atom in atoms if atom in WH or atom in _ASKING)
    return asked, _counted(ASPECTS[atom] for atom in atoms if atom in ASPECTS)


_ASKING = frozenset({"howto", "whatis", "duration", "exist", "whatdo", "differ"})
_SUBJECTS = frozenset(
    {"i", "you", "he", "she", "it", "we", "they", "this", "that", "these", "those", "there", "my", "your"}
)


def _statement(one: Reading, other: Reading) -> bool:
    """`You are happy` and `You are happy?` differ; behind a question word or a verb the mark says nothing."""
    return one.asks == other.asks or not (_declares(one) and _declares(other))


def _declares(seen: Reading) -> bool:
    atoms = seen.meaning.atoms
    return bool(seen.tokens) and seen.tokens[0].form in _SUBJECTS and atoms[0] not in _ASKING | WH


GUARDS: tuple[tuple[str, Guard], ...] = (
    ("numbers", _of_kind("number")),
    ("dates", _of_kind("date")),
    ("quoted", _of_kind("quoted")),
    ("code", _of_kind("code", "symbol")),
    ("names", _names),
    ("negation", _in_table(NEGATION)),
    ("polarity", _polarity),
    ("comparators", _in_table(COMPARATORS)),
    ("quantifiers", _in_table(QUANTIFIERS)),
    ("temporal", _in_table(TEMPORAL)),
    ("tense", _equal(lambda seen: seen.meaning.past)),
    ("language", _equal(lambda seen: _counted(a for a in seen.meaning.atoms if a in LANGUAGES))),
    ("format", _in_table(FORMAT)),
    ("aspect", _equal(_aspect)),
    ("statement", _statement),
    ("content", _equal(lambda seen: frozenset(seen.meaning.bag.items()))),
    ("direction", _equal(lambda seen: seen.meaning.groups)),
    ("order", _equal(lambda seen: seen.meaning.main)),
)
"""Name and test, in the order in which they are asked. The last three alone would be enough for safety; the typed ones
before them say why."""

_KINDS: Mapping[str, Callable[[Reading], frozenset[tuple[str, int]]]] = {
    "numbers": lambda seen: _counted(t.form for t in seen.tokens if t.kind == "number"),
    "dates": lambda seen: _counted(t.form for t in seen.tokens if t.kind == "date"),
    "quoted": lambda seen: _counted(t.form for t in seen.tokens if t.kind == "quoted"),
    "code": lambda seen: _counted(t.form for t in seen.tokens if t.kind in ("code", "symbol")),
    "names": lambda seen: _counted(t.form for t in seen.tokens if t.capital),
    "negation": lambda seen: _counted(NEGATION[a] for a in seen.meaning.atoms if a in NEGATION),
    "polarity": lambda seen: _counted(POLARITY[a] for a in seen.meaning.atoms if a in POLARITY),
    "comparators": lambda seen: _counted(COMPARATORS[a] for a in seen.meaning.atoms if a in COMPARATORS),
    "quantifiers": lambda seen: _counted(QUANTIFIERS[a] for a in seen.meaning.atoms if a in QUANTIFIERS),
    "temporal": lambda seen: _counted(TEMPORAL[a] for a in seen.meaning.atoms if a in TEMPORAL),
    "language": lambda seen: _counted(a for a in seen.meaning.atoms if a in LANGUAGES),
    "format": lambda seen: _counted(FORMAT[a] for a in seen.meaning.atoms if a in FORMAT),
    "aspect": lambda seen: _counted(ASPECTS[a] for a in seen.meaning.atoms if a in ASPECTS),
}
