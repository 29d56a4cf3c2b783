"""What one text says of the kinds that compare as sets: numbers, dates, quotations, code, names, quantifiers, ..."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from headgate.cache.guards.distinctions import (
    COUNTED_FORMAT,
    DEICTIC,
    PROPERTIES,
    SHAPES,
    SPANS,
    STRICT_FORMAT,
    STRICT_QUANTIFIERS,
)
from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.lexicon import AMBIGUOUS_LANGUAGES, LANGUAGES
from headgate.cache.guards.meaning import Meaning
from headgate.cache.guards.numbers import UNITS, unit_of
from headgate.cache.guards.once import once
from headgate.cache.guards.reading import Kind, Token
from headgate.cache.guards.vocabulary import kept

Counted = frozenset[tuple[str, int]]

_BEFORE_LANGUAGE = frozenset({"in", "into", "using", "with"})
_TIMES_OVER = frozenset({"a", "per", "every", "in", "more", "again", "or", "and", "upon", "each", "only", ""})
"""Behind these `once` counts; elsewhere it is as soon as."""
_MEASURED = frozenset({"max", "maximum", "min", "minimum", "average", "normal", "usual", "typical", "total"})
_SHORT_UNITS = frozenset({"cm", "mm", "km", "kg", "lbs", "lb", "oz", "mph", "kmh", "usd", "eur", "gbp"})
_ANSWERING = frozenset({"answer", "reply", "respond"})
_GIVING = frozenset({"give", "make", "write", "create", "provide", "show"})
_SHIFTING = frozenset({"back", "backward", "backwards", "forward", "forwards"})
"""Two hours back."""
_MONEY = frozenset({"krona", "kronor", "krone", "kroner", "yen", "won", "lira", "zloty", "rubles", "forint", "dong"})
"""A Swedish krona is no Swedish."""


class Facts(dict[str, Counted]):
    """Facts by their kind, each found when it is asked for: of most pairs the first few kinds decide."""

    def __init__(self, tokens: tuple[Token, ...], sense: Meaning) -> None:
        super().__init__()
        self._said = Said(tokens, sense)

    def __missing__(self, kind: str) -> Counted:
        found = self[kind] = FACTS[kind](self._said)
        return found


@dataclass(frozen=True)
class Said:
    """A text as the kinds look at it."""

    tokens: tuple[Token, ...]
    sense: Meaning

    @once
    def words(self) -> list[str]:
        """The forms of its words."""
        return _only([token.form for token in self.tokens if token.kind == "word"])

    @once
    def others(self) -> list[Token]:
        """Its tokens that are no words; few have any."""
        return [token for token in self.tokens if token.kind != "word"]


_NOTHING: Counted = frozenset()


def counted(items: Iterable[str]) -> Counted:
    """A bag that hashes."""
    # By hand: most bags are empty, and making a Counter takes longer than filling it.
    bag: dict[str, int] = {}
    for item in items:
        bag[item] = bag.get(item, 0) + 1
    return frozenset(bag.items()) if bag else _NOTHING


def of_kind(tokens: Iterable[Token], *kinds: Kind) -> Counted:
    """The forms of the tokens of some kinds."""
    return counted([token.form for token in tokens if token.kind in kinds])


def in_table(atoms: Iterable[str], table: Mapping[str, str]) -> Counted:
    """What a table has for the atoms."""
    return counted([table[atom] for atom in atoms if atom in table])


def _quantifiers(said: Said) -> Counted:
    words = said.words
    if STRICT_QUANTIFIERS.keys().isdisjoint(words):
        return _NOTHING
    return counted(
        {
            STRICT_QUANTIFIERS[word]
            for word, following in zip(words, [*words[1:], ""], strict=False)
            if word in STRICT_QUANTIFIERS
            and following != "if"
            and not (word == "only" and following == "have")
            and not (word in ("each", "every") and following in SPANS)
        }
    )


def _temporal(said: Said) -> Counted:
    words = said.words
    if DEICTIC.keys().isdisjoint(words):
        return _NOTHING
    # Three days later.
    counted_off = {token.form for before, token in itertools.pairwise(said.tokens) if before.kind == "number"}
    return counted(
        {
            "after" if word == "ahead" and following != "of" else DEICTIC[word]
            for word, following in zip(words, [*words[1:], ""], strict=False)
            if word in DEICTIC
            and (word != "last" or following in SPANS)
            and (word != "same" or following == "time")
            and (word != "together" or following == "with")
            and (word != "once" or following not in _TIMES_OVER)
            and (word != "ahead" or following == "of" or word in counted_off)
            and (word not in ("earlier", "later") or following == "than" or word in counted_off)
            and (word not in _SHIFTING or word in counted_off)
            and (word != "prior" or following == "to")
        }
    )


def _format(said: Said) -> Counted:
    """How it is to be put: as a table, in feet, per year, in ten lines."""
    words = said.words
    asked = {STRICT_FORMAT[word] for word in words if word in STRICT_FORMAT}
    if "a" in words or "an" in words:
        asked.update(_shapes(words))
    if said.others:
        for count, unit_said in itertools.pairwise(said.tokens):
            if count.kind == "number" and unit_said.form in COUNTED_FORMAT:
                asked.add(COUNTED_FORMAT[unit_said.form])
    if "in" in words or "per" in words:
        for before, word in itertools.pairwise(words):
            if (
                before in ("in", "per")
                and (len(word) > 3 or word in _SHORT_UNITS)
                and (unit := unit_of(word)) is not None
            ):
                asked.add(f"{before} {UNITS[unit]}")
    if words[-1:] and words[-1] in _SHORT_UNITS and (unit := unit_of(words[-1])) is not None:
        # Height of the tower cm.
        asked.add(f"in {UNITS[unit]}")
    return counted(asked)


def _shapes(words: Sequence[str]) -> Iterator[str]:
    """The kind of text asked for: as an email, answer with a letter, give me a list of."""
    for at, word in enumerate(words):
        if word not in ("a", "an") or not at:
            continue
        before, behind = words[at - 1], words[at + 1 : at + 4]
        shape = next((noun for noun in behind if noun in SHAPES), "")
        named = (
            before == "as"
            or words[at - 2 : at] == ["form", "of"]
            or (before == "with" and not _ANSWERING.isdisjoint(words[max(0, at - 2) : at - 1]))
        )
        given = ("list", "of") in itertools.pairwise(words[at + 1 : at + 5]) and not _GIVING.isdisjoint(words[:at])
        # A numbered list is named by what is special of it.
        if shape and (named or given) and STRICT_FORMAT.keys().isdisjoint(behind):
            yield SHAPES[shape]


def _plural(said: Said) -> Counted:
    if "number" not in said.words:
        return _NOTHING
    spoken = [word for word in said.words if word not in ("a", "an", "the")]
    return counted(
        spoken[at + 2]
        for at in range(len(spoken) - 2)
        if spoken[at : at + 2] == ["number", "of"] and base_form(spoken[at + 2]) != spoken[at + 2]
    )


FACTS: Mapping[str, Callable[[Said], Counted]] = {
    "numbers": lambda said: of_kind(said.others, "number"),
    "dates": lambda said: of_kind(said.others, "date"),
    "quoted": lambda said: of_kind(said.others, "quoted"),
    "code": lambda said: of_kind(said.others, "code", "symbol"),
    "names": lambda said: counted(_named(said.tokens).intersection(said.sense.atoms)),
    "quantifiers": _quantifiers,
    "temporal": _temporal,
    "language": lambda said: _NOTHING if LANGUAGES.isdisjoint(said.words) else counted(_languages(said.tokens)),
    "format": _format,
    "aspect": lambda said: counted(_aspects(said.sense.atoms)),
    "plural": _plural,
}


def _only(words: list[str]) -> list[str]:
    """`Nobody but Ann`, `nobody except Ann` is only Ann."""
    if "but" not in words and "except" not in words:
        return words
    out = list(words)
    for at in range(len(out) - 1):
        if out[at] in ("nobody", "none", "nothing", "no_one") and out[at + 1] in ("but", "except"):
            out[at : at + 2] = ["only", "but"]
    return out


def _aspects(atoms: tuple[str, ...]) -> set[str]:
    """Properties asked for: `price of it`, `a larger area than`, `max weight`, not `the high price`."""
    if PROPERTIES.keys().isdisjoint(atoms):
        return set()
    return {
        PROPERTIES[atom]
        for at, atom in enumerate(atoms)
        if atom in PROPERTIES
        and (at < 2 or atoms[at + 1 : at + 2] in (("of",), ("than",)) or not _MEASURED.isdisjoint(atoms[at - 1 : at]))
    }


def _named(tokens: tuple[Token, ...]) -> set[str]:
    """What is written as a name, in the form in which `meaning` has it."""
    return {kept(token.form) for token in tokens if token.capital and token.kind == "word"}


_ALSO_CALLED: Mapping[str, str] = MappingProxyType({"golang": "go"})


def _languages(tokens: tuple[Token, ...]) -> set[str]:
    return {
        _ALSO_CALLED.get(token.form, token.form)
        for at, token in enumerate(tokens)
        if token.kind == "word"
        and token.form in LANGUAGES
        and (
            token.form not in AMBIGUOUS_LANGUAGES
            or token.capital
            or (token.form != "go" and at and tokens[at - 1].form in _BEFORE_LANGUAGE)
        )
        and not (at + 1 < len(tokens) and tokens[at + 1].form in _MONEY)
    }
