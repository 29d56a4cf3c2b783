"""Guards over what a text states as facts: numbers, dates, quotations and code, names, languages."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from fractions import Fraction
from itertools import repeat
from types import MappingProxyType

from headgate.cache.guards.casing import as_name
from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.lexicon import CASE_MATTERS, LANDS
from headgate.cache.guards.reading import Token
from headgate.cache.guards.statements import Counted
from headgate.cache.guards.vocabulary import classes, related, weight

Judge = Callable[[Reading, Reading], Verdict]


def sets(one: Counted, other: Counted, *, one_side: Verdict = "one side") -> Verdict:
    """Two bags of which both texts have something must be equal."""
    if one == other:
        return True if one else None
    return False if one and other else one_side


def facts(kind: str, *, one_side: Verdict = "one side") -> Judge:
    """A guard over the facts of one kind."""

    def judge(one: Reading, other: Reading) -> Verdict:
        return sets(one.facts[kind], other.facts[kind], one_side=one_side)

    return judge


def numbers(one: Reading, other: Reading) -> Verdict:
    """Numbers with their units, in one form."""
    if one.facts["numbers"] == other.facts["numbers"]:
        return True if any(form != "#1" for form, _ in one.facts["numbers"]) else None
    if _exchanged(one.facts["numbers"], other.facts["numbers"]):
        return False
    # One is an article in other words.
    ours, theirs = ({form for form, _ in seen.facts["numbers"]} - {"#1"} for seen in (one, other))
    for mine, yours in ((ours, theirs), (theirs, ours)):
        # Pounds are money or weight.
        for form in [form for form in mine if form.endswith("gbp")]:
            weight_of_it = f"#{Fraction(form[1:-3]) * 16}oz"
            if weight_of_it in yours:
                mine.remove(form)
                yours.remove(weight_of_it)
    if ours ^ theirs == {"#1th"}:
        if not _FINAL.isdisjoint({*one.spoken} ^ {*other.spoken}):
            return False
        # What comes first may be early, and who comes first the former.
        return "one side"
    return either_way(ours, theirs)


def _exchanged(one: Counted, other: Counted) -> bool:
    """Whether each says a number more often than the other, and one of these is in both texts: 2 times 4 plus 4, and
    4 times 4 plus 4; game 1 of season 2, and game 2 of season 2."""
    ours, theirs = Counter(dict(one)), Counter(dict(other))
    more, fewer = ours - theirs, theirs - ours
    if not more or not fewer or any(form.endswith("gbp") for form in more | fewer):
        return False
    both = {_value(form) for form in ours} & {_value(form) for form in theirs} - {"#1"}
    return any(_value(form) in both for form in more | fewer)


def _value(form: str) -> str:
    """Of a number, whether it counts or orders: a game 2 and a season 2."""
    return form.removesuffix("th")


def either_way(ours: Set[str], theirs: Set[str]) -> Verdict:
    """Sets of which each has something that the other lacks cannot both be meant; who says more may mean the same."""
    if ours == theirs:
        return True if ours else None
    return False if ours - theirs and theirs - ours else "one side"


_FINAL = frozenset({"last", "latest", "final", "newest"})


_ITS_DAYS = frozenset({"saturday", "sunday"})
_WEEKEND = _ITS_DAYS | {"weekend"}


def dates(one: Reading, other: Reading) -> Verdict:
    """Dates, weekdays and times of the day."""
    if _one_day_only(one, other) or _one_day_only(other, one):
        return False
    if not one.facts["dates"] and not other.facts["dates"]:
        return None
    ours, theirs = ({form for form, _ in seen.facts["dates"]} for seen in (one, other))
    if (_daily(one) and _weekly(theirs, other)) or (_daily(other) and _weekly(ours, one)):
        return False
    if "weekend" in ours ^ theirs:
        ours, theirs = (said - _WEEKEND | {"weekend"} if said >= _ITS_DAYS else said for said in (ours, theirs))
    if ours == theirs:
        return True if ours else None
    if "weekday" in ours ^ theirs and (ours | theirs).isdisjoint(_WEEKEND):
        # On weekdays, on Tuesdays.
        ours, theirs = ours - {"weekday"}, theirs - {"weekday"}
        return "one side" if ours == theirs else either_way(ours, theirs)
    if any("-" in form for form in ours & theirs) and all(form.endswith("day") for form in ours ^ theirs):
        # Sunday, 18 July 2027: the date says which day it is.
        return not (ours - theirs and theirs - ours)
    return either_way(ours, theirs)


_EVERY = frozenset({"every", "each"})
_DAYS = frozenset({"day", "night", "morning", "evening"})


def _one_day_only(once: Reading, often: Reading) -> bool:
    """May she come for one day, may she come every day; but how much a day is how much in one day."""
    if not once.facts["numbers"]:
        return False
    one_day = any(form == "#86400s" for form, _ in once.facts["numbers"])
    return one_day and "yes" in once.kinds | often.kinds and _daily(often) and not _daily(once)


def _daily(seen: Reading) -> bool:
    return not {"daily", "nightly"}.isdisjoint(seen.spoken) or any(
        word in _EVERY and span in _DAYS for word, span in itertools.pairwise(seen.spoken)
    )


def _weekly(days: Set[str], seen: Reading) -> bool:
    """Every Monday."""
    return any(word in _EVERY and day in days for word, day in itertools.pairwise(seen.spoken))


def written(kind: str) -> Judge:
    """Code and quotations: what one text marks may stand unmarked in the other."""

    def judge(one: Reading, other: Reading) -> Verdict:
        ours, theirs = one.facts[kind], other.facts[kind]
        if kind == "code" and ours and theirs and _formula(one) != _formula(other):
            return False
        if ours == theirs:
            return True if ours else None
        here, there = _unspoken(ours - theirs, other), _unspoken(theirs - ours, one)
        if not here and not there:
            return True
        # A sign, or a line of code, is never said beside the question.
        slight = all(_NAMED.fullmatch(form) for form in (*here, *there))
        return "one side" if slight and not (here and there) else False

    return judge


def _formula(seen: Reading) -> list[str]:
    """Signs, numbers and code in order, where there is a sign."""
    signs = [token.kind == "symbol" for token in seen.tokens]
    if not any(signs):
        return []
    beside = [*signs[1:], False], [False, *signs[:-1]]
    return [
        token.form
        for token, sign, before, after in zip(seen.tokens, signs, *beside, strict=True)
        if sign or (token.kind in ("number", "code") and (before or after))
    ]


_NAMED = re.compile(r"[^\W\d][\w.:/()-]*")
"""A name in code, as people drop it: `useState`, `config.yaml`."""


_SIGNS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        sign: frozenset(words.split())
        for sign, words in {
            "+": "plus", "@": "at", "€": "euro euros eur", "→": "to into", "=": "equals equal", "&": "and",
            "#": "hash", "°": "degree degrees", "$": "dollar dollars usd", "£": "pound pounds gbp",
        }.items()
    }
)  # fmt: skip
"""Signs that others write as words."""
_PUNCTUATION = "-–—/()&*_'’.•"


def _unspoken(items: Counted, seen: Reading) -> list[str]:
    """What of one text's code or quotations the other does not say, marked or not."""
    written = " ".join([token.form for token in seen.tokens])
    text = written.lower()
    return [
        form
        for form, _ in items
        if form not in _PUNCTUATION
        and _SIGNS.get(form, frozenset()).isdisjoint(seen.spoken)
        and (form not in written if "\\" in form else form.lower().strip("`") not in text)
    ]


def names_agree(one: Reading, other: Reading) -> Verdict:
    """Not each of two texts has a name that the other lacks, in any case."""
    ours, theirs = one.facts["names"], other.facts["names"]
    if not ours and not theirs:
        return None
    alone = 0
    for names, seen in ((ours, other), (theirs, one)):
        atoms = seen.meaning.atoms
        for name, _ in names:
            if name in seen.spoken or weight(name) < 2 or any(map(related, repeat(name), atoms)):
                continue
            if (
                (2 <= len(name) <= 5 and name in seen.initials)
                or name in _TITLES
                or _rest_of_name(name, one, other)
                or _abbreviated(name, one, seen)
                or _abbreviated(name, other, seen)
                or (name in LANDS and LANDS[name] in _lands(seen))
            ):
                continue
            alone += 1
            break
    if alone:
        return False if alone == 2 else "one side"
    if CASE_MATTERS.isdisjoint(one.spoken) or CASE_MATTERS.isdisjoint(other.spoken):
        return True
    # Polish and polish: the order of appearance tells which is which.
    mine, yours = (
        [
            (at, token)
            for at, token in enumerate(seen.tokens)
            if token.form in CASE_MATTERS and token.kind == "word" and not token.opens
        ]
        for seen in (one, other)
    )
    for (here, written), (there, twin) in zip(mine, yours, strict=False):
        if written.form == twin.form and written.capital != twin.capital:
            if _how_often(written.form, mine) != _how_often(twin.form, yours) and _both_write(
                written.form, mine, yours
            ):
                # I've got it from IT, and: it is from IT.
                continue
            small, large = ((one, here), (other, there)) if twin.capital else ((other, there), (one, here))
            if not as_name(small[0].tokens, small[1], large[0].tokens, large[1]):
                return False
    return True


def _how_often(form: str, tokens: Iterable[tuple[int, Token]]) -> int:
    return sum(token.form == form for _, token in tokens)


def _both_write(form: str, *sides: Iterable[tuple[int, Token]]) -> bool:
    """Whether all write it with a capital letter somewhere."""
    return all(any(token.form == form and token.capital for _, token in side) for side in sides)


def _lands(seen: Reading) -> set[str]:
    return {LANDS[form] for form in seen.spoken if form in LANDS}


_TITLES = frozenset({"mr", "mrs", "ms", "miss", "dr", "madame", "madam", "sir", "lord", "lady", "saint", "st", "prof"})


def _rest_of_name(name: str, one: Reading, other: Reading) -> bool:
    """`Vincent` where the other text says van Gogh alone: the rest of a person's name, and no other one instead."""
    if classes(name) not in ("", "P"):
        return False
    ours, theirs = ({form for form, _ in seen.facts["names"]} for seen in (one, other))
    said = {token.form for token in one.tokens} & {token.form for token in other.tokens}
    for full in (*one.full_names, *other.full_names):
        # What both say of the name, and neither says another part of it.
        if name in full and full & said and (ours <= theirs or theirs <= ours or not (ours ^ theirs) - full - _TITLES):
            return True
    return False


def _abbreviated(name: str, named: Reading, seen: Reading) -> bool:
    """`Los Angeles` where the other text says LA."""
    return any(
        name in full
        and any(token.capital and sorted(token.form) == sorted(word[0] for word in full) for token in seen.tokens)
        for full in named.full_names
    )


def language(one: Reading, other: Reading) -> Verdict:
    """Languages to speak or to program in."""
    if not one.facts["language"] and not other.facts["language"]:
        return None
    ours, theirs = ({word for word, _ in seen.facts["language"]} for seen in (one, other))
    # Swift is quick where it is read as a word.
    spoken, said = ({token.form for token in seen.tokens} | {*seen.meaning.atoms} for seen in (one, other))
    here, there = _lands(one), _lands(other)
    mine, yours = (
        {word for word in words if LANDS.get(word) not in lands} for words, lands in ((ours, there), (theirs, here))
    )
    return mine <= said | theirs and yours <= spoken | ours
