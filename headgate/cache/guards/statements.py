"""What one text says of the kinds that compare as sets: numbers, dates, quotations, code, names, quantifiers, ..."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from headgate.cache.guards.distinctions import DEICTIC, PROPERTIES, SPANS, STRICT_FORMAT, STRICT_QUANTIFIERS
from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.lexicon import AMBIGUOUS_LANGUAGES, LANGUAGES
from headgate.cache.guards.meaning import Meaning
from headgate.cache.guards.numbers import UNITS, unit_of
from headgate.cache.guards.reading import Kind, Token
from headgate.cache.guards.vocabulary import kept

Counted = frozenset[tuple[str, int]]

_BEFORE_LANGUAGE = frozenset({"in", "into", "using", "with"})
_TIMES_OVER = frozenset({"a", "per", "every", "in", "more", "again", "or", "and", "upon", "each", "only", ""})
"""Behind these `once` counts; elsewhere it is as soon as."""
_MONEY = frozenset({"krona", "kronor", "krone", "kroner", "yen", "won", "lira", "zloty", "rubles", "forint", "dong"})
"""A Swedish krona is no Swedish."""


class Facts(dict[str, Counted]):
    """Facts by their kind, each found when it is asked for: of most pairs the first few kinds decide."""

    def __init__(self, tokens: tuple[Token, ...], sense: Meaning) -> None:
        super().__init__()
        self._tokens, self._sense = tokens, sense

    def __missing__(self, kind: str) -> Counted:
        found = self[kind] = FACTS[kind](self._tokens, self._sense)
        return found


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


def _quantifiers(tokens: tuple[Token, ...], sense: Meaning) -> Counted:  # noqa: ARG001
    words = _words_of(tokens)
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


def _temporal(tokens: tuple[Token, ...], sense: Meaning) -> Counted:  # noqa: ARG001
    words = _words_of(tokens)
    # Three days later.
    counted_off = {token.form for before, token in itertools.pairwise(tokens) if before.kind == "number"}
    return counted(
        {
            DEICTIC[word]
            for word, following in zip(words, [*words[1:], ""], strict=False)
            if word in DEICTIC
            and (word != "last" or following in SPANS)
            and (word != "same" or following == "time")
            and (word != "together" or following == "with")
            and (word != "once" or following not in _TIMES_OVER)
            and (word != "ahead" or following == "of")
            and (word not in ("earlier", "later") or following == "than" or word in counted_off)
        }
    )


def _format(tokens: tuple[Token, ...], sense: Meaning) -> Counted:  # noqa: ARG001
    """How it is to be put: as a table, in feet, per year."""
    words = _words_of(tokens)
    asked = {STRICT_FORMAT[word] for word in words if word in STRICT_FORMAT}
    for before, word in itertools.pairwise(words):
        if before in ("in", "per") and len(word) > 3 and (unit := unit_of(word)) is not None:
            asked.add(f"{before} {UNITS[unit]}")
    return counted(asked)


def _plural(tokens: tuple[Token, ...], sense: Meaning) -> Counted:  # noqa: ARG001
    spoken = [word for word in _words_of(tokens) if word not in ("a", "an", "the")]
    return counted(
        spoken[at + 2]
        for at in range(len(spoken) - 2)
        if spoken[at : at + 2] == ["number", "of"] and base_form(spoken[at + 2]) != spoken[at + 2]
    )


FACTS: Mapping[str, Callable[[tuple[Token, ...], Meaning], Counted]] = {
    "numbers": lambda tokens, _: of_kind(tokens, "number"),
    "dates": lambda tokens, _: of_kind(tokens, "date"),
    "quoted": lambda tokens, _: of_kind(tokens, "quoted"),
    "code": lambda tokens, _: of_kind(tokens, "code", "symbol"),
    "names": lambda tokens, sense: counted(_named(tokens) & set(sense.atoms)),
    "quantifiers": _quantifiers,
    "temporal": _temporal,
    "language": lambda tokens, _: counted(_languages(tokens)),
    "format": _format,
    "aspect": lambda _, sense: counted(_aspects(sense.atoms)),
    "plural": _plural,
}


def _words_of(tokens: Iterable[Token]) -> list[str]:
    return _only([token.form for token in tokens if token.kind == "word"])


def _only(words: list[str]) -> list[str]:
    """`Nobody but Ann` is only Ann."""
    out = list(words)
    for at in range(len(out) - 1):
        if out[at] in ("nobody", "none", "nothing", "no_one") and out[at + 1] == "but":
            out[at : at + 2] = ["only", "but"]
    return out


def _aspects(atoms: tuple[str, ...]) -> set[str]:
    """Properties asked for: `price of it`, not `the high price`."""
    return {
        PROPERTIES[atom]
        for at, atom in enumerate(atoms)
        if atom in PROPERTIES and (at < 2 or atoms[at + 1 : at + 2] == ("of",))
    }


def _named(tokens: tuple[Token, ...]) -> set[str]:
    """What is written as a name, in the form in which `meaning` has it."""
    return {kept(token.form) for token in tokens if token.capital and token.kind == "word"}


def _languages(tokens: tuple[Token, ...]) -> set[str]:
    return {
        token.form
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
