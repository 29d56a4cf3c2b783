"""The guards themselves: each says whether two texts agree in one respect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from headgate.cache.guards.lexicon import (
    ARTICLES,
    ASPECTS,
    AUXILIARIES,
    CASE_MATTERS,
    COMPARATORS,
    DIRECTION,
    FORMAT,
    LANGUAGES,
    NEGATING_PREFIXES,
    NEGATION,
    POLARITY,
    QUANTIFIERS,
    TEMPORAL,
    WH,
)
from headgate.cache.guards.reading import Kind, Token, read
from headgate.cache.guards.wording import core, signature, verbs


@dataclass(frozen=True, slots=True)
class Reading:
    """What the guards look at in one text."""

    tokens: list[Token]
    """All tokens; greetings included."""
    core: list[Token]
    """The tokens that ask."""
    words: list[str]
    """Forms of the words of the core."""
    asks: bool
    """It ends with a question mark."""


Guard = Callable[[Reading, Reading], bool]


def check(stored: str, asked: str) -> str | None:
    """The name of the first guard that keeps the answer to `stored` from serving `asked`; None if all agree."""
    one, other = _reading(stored), _reading(asked)
    for name, agree in GUARDS:
        if not agree(one, other):
            return name
    return None


def _reading(text: str) -> Reading:
    tokens = read(text)
    asking = core(tokens)
    words = [token.form for token in asking if token.kind == "word"]
    return Reading(tokens, asking, words, text.rstrip().endswith("?"))


def _equal(extract: Callable[[Reading], Hashable]) -> Guard:
    def agree(one: Reading, other: Reading) -> bool:
        return extract(one) == extract(other)

    return agree


def _of_kind(*kinds: Kind) -> Guard:
    """The tokens of these kinds are the same, in the same order."""
    return _equal(lambda reading: tuple(token.form for token in reading.tokens if token.kind in kinds))


def _in_table(table: Mapping[str, str]) -> Guard:
    """The words of the table occur alike, in the same order; words of one group count as the same."""
    return _equal(lambda reading: tuple(table[word] for word in reading.words if word in table))


def _names(one: Reading, other: Reading) -> bool:
    """What either text writes as a name stands in both, in the same order, in any case."""
    names = {token.form for reading in (one, other) for token in reading.core if token.capital}
    if not names:
        return True
    mine = [token for token in one.core if token.form in names]
    theirs = [token for token in other.core if token.form in names]
    if [token.form for token in mine] != [token.form for token in theirs]:
        return False
    return all(
        a.capital == b.capital or a.opens or b.opens or a.form not in CASE_MATTERS
        for a, b in zip(mine, theirs, strict=True)
    )


def _polarity(one: Reading, other: Reading) -> bool:
    """No word meets its opposite: neither one of the table's nor one made by a prefix (lock, unlock)."""
    if [POLARITY[w] for w in one.words if w in POLARITY] != [POLARITY[w] for w in other.words if w in POLARITY]:
        return False
    mine, theirs = set(one.words) - set(other.words), set(other.words) - set(one.words)
    return not any(_opposed(a, b) or _opposed(b, a) for a in mine for b in theirs)


def _opposed(word: str, longer: str) -> bool:
    if len(word) < 3 or not longer.endswith(word):
        return False
    return longer.removesuffix(word).rstrip("-") in NEGATING_PREFIXES


def _directions(reading: Reading) -> tuple[tuple[str, str, str], ...]:
    """Each directional word with the word on either side, articles aside."""
    forms = [token.form for token in reading.core if token.form not in ARTICLES]
    padded = ["", *forms, ""]
    return tuple(
        (padded[at - 1], form, padded[at + 1]) for at, form in enumerate(padded) if form in DIRECTION and at > 0
    )


def _aspect(reading: Reading) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """How it asks (yes or no, which question words) and which property it asks for."""
    asked = tuple(word for word in reading.words if word in WH)
    first = reading.words[0] if reading.words else ""
    closed = first in AUXILIARIES or (reading.asks and not asked)
    return "closed" if closed else "open", asked, tuple(ASPECTS[w] for w in reading.words if w in ASPECTS)


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
    ("language", _equal(lambda reading: tuple(word for word in reading.words if word in LANGUAGES))),
    ("format", _in_table(FORMAT)),
    ("aspect", _equal(_aspect)),
    ("direction", _equal(_directions)),
    (
        "content",
        _equal(lambda reading: (frozenset(Counter(signature(reading.core)).items()), tuple(verbs(reading.core)))),
    ),
    ("order", _equal(lambda reading: tuple(signature(reading.core)))),
)
"""Name and test, in the order in which they are asked. The last two alone would be enough for safety; the typed ones
before them say why, and stay when `content` is relaxed."""
