"""The guards themselves: what two texts agree in, what keeps them apart, and whether the one may answer the other."""

from __future__ import annotations

from collections.abc import Callable, Set
from fractions import Fraction

from headgate.cache.guards.casing import as_name
from headgate.cache.guards.comparison import Comparison
from headgate.cache.guards.content import Alignment, align, one_word_exchanged, replaced, said_otherwise
from headgate.cache.guards.contrasts import contrary
from headgate.cache.guards.evidence import Counted, Reading, Verdict, reading_of
from headgate.cache.guards.lexicon import CASE_MATTERS
from headgate.cache.guards.polarity import same_bounds
from headgate.cache.guards.questions import OPEN, agree
from headgate.cache.guards.roles import direction, order, turned_alike
from headgate.cache.guards.vocabulary import classes, related, weight


def check(stored: str | Reading, asked: str | Reading) -> str | None:
    """The kind of evidence that forbids serving the answer to `stored` for `asked`; None if nothing speaks against.

    That nothing speaks against is no reason to serve yet: `compare` gives the evidence, `certain` a cautious verdict.
    Who asks for one text again and again passes what `reading_of` made of it.
    """
    return compare(_read(stored), _read(asked)).veto


def certain(stored: str | Reading, asked: str | Reading) -> str | None:
    """As `check`, but a text that does not read alike to the last word is kept out as well, as `wording`."""
    seen = compare(_read(stored), _read(asked))
    return seen.veto or (None if seen.same else "wording")


def _read(text: str | Reading) -> Reading:
    return text if isinstance(text, Reading) else reading_of(text)


def compare(stored: Reading, asked: Reading) -> Comparison:
    """The typed evidence for serving the answer to `stored` for `asked`."""
    same = stored.alike == asked.alike and _names(stored, asked) is not False
    found = align(stored.words, asked.words)
    verdicts = {kind: judge(stored, asked) for kind, judge in _JUDGES.items()}
    for kind, matched in _BY_ALIGNMENT.items():
        verdicts[kind] = matched(stored, asked, found)
    if turned_alike(stored, asked):
        verdicts |= {kind: True for kind in _TURNED if verdicts[kind] is False}
    if same:
        verdicts = {kind: None if verdict is False else verdict for kind, verdict in verdicts.items()}
    missing, extra = _specific(found.missing), _specific(found.extra)
    return Comparison(
        agree=frozenset(kind for kind, verdict in verdicts.items() if verdict is True),
        conflict=frozenset(kind for kind, verdict in verdicts.items() if verdict is False),
        one_sided=frozenset(kind for kind, verdict in verdicts.items() if verdict == "one side"),
        shared=found.shared,
        missing=missing,
        extra=extra,
        loose=len(found.missing) + len(found.extra) - missing - extra,
        same=same,
    )


def _specific(words: tuple[str, ...]) -> int:
    return sum(weight(word) == 2 for word in words)


Judge = Callable[[Reading, Reading], Verdict]


def _sets(one: Counted, other: Counted, *, one_side: Verdict = "one side") -> Verdict:
    if one == other:
        return True if one else None
    return False if one and other else one_side


def _facts(kind: str, *, one_side: Verdict = "one side") -> Judge:
    def judge(one: Reading, other: Reading) -> Verdict:
        return _sets(one.facts[kind], other.facts[kind], one_side=one_side)

    return judge


def _numbers(one: Reading, other: Reading) -> Verdict:
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
        # What comes first may be early, and who comes first the former.
        return "one side"
    return (True if ours else None) if ours == theirs else False


def _dates(one: Reading, other: Reading) -> Verdict:
    ours, theirs = ({form for form, _ in seen.facts["dates"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    if any("-" in form for form in ours & theirs) and all(form.endswith("day") for form in ours ^ theirs):
        # Sunday, 18 July 2027: the date says which day it is.
        return not (ours - theirs and theirs - ours)
    return False


def _written(kind: str) -> Judge:
    """Code and quotations: what one text marks may stand unmarked in the other."""

    def judge(one: Reading, other: Reading) -> Verdict:
        ours, theirs = one.facts[kind], other.facts[kind]
        if kind == "code" and ours and theirs and _formula(one) != _formula(other):
            return False
        if ours == theirs:
            return True if ours else None
        return _spoken(ours - theirs, other) and _spoken(theirs - ours, one)

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


def _spoken(items: Counted, seen: Reading) -> bool:
    text = " ".join(token.form.lower() for token in seen.tokens)
    return all(form.lower().strip("`") in text for form, _ in items if form not in "-–—/()&*_")


def _names(one: Reading, other: Reading) -> Verdict:
    """What either text writes as a name stands in both, in any case."""
    ours, theirs = one.facts["names"], other.facts["names"]
    if not ours and not theirs:
        return None
    for names, seen in ((ours, other), (theirs, one)):
        forms = {token.form for token in seen.tokens}
        atoms = set(seen.meaning.atoms)
        for name, _ in names:
            if name in forms or weight(name) < 2 or any(related(name, atom) for atom in atoms):
                continue
            if name in seen.initials or name in _TITLES or _rest_of_name(name, one, other):
                continue
            return False
    # Polish and polish: the order of appearance tells which is which.
    mine, yours = (
        [(at, token) for at, token in enumerate(seen.tokens) if token.form in CASE_MATTERS and not token.opens]
        for seen in (one, other)
    )
    for (here, written), (there, twin) in zip(mine, yours, strict=False):
        if written.form == twin.form and written.capital != twin.capital:
            small, large = ((one, here), (other, there)) if twin.capital else ((other, there), (one, here))
            if not as_name(small[0].tokens, small[1], large[0].tokens, large[1]):
                return False
    return True


_TITLES = frozenset({"mr", "mrs", "ms", "miss", "dr", "madame", "madam", "sir", "lord", "lady", "saint", "st", "prof"})


def _rest_of_name(name: str, one: Reading, other: Reading) -> bool:
    """`Vincent` where the other text says van Gogh alone: the rest of a person's name, and no other one instead."""
    if classes(name) not in ("", "P"):
        return False
    ours, theirs = ({form for form, _ in seen.facts["names"]} for seen in (one, other))
    for full in (*one.full_names, *other.full_names):
        # What both say of the name, and neither says another part of it.
        if (
            name in full
            and full & ours & theirs
            and (ours <= theirs or theirs <= ours or not (ours ^ theirs) - full - _TITLES)
        ):
            return True
    return False


def _negation(one: Reading, other: Reading, found: Alignment) -> Verdict:
    a, b = one.polarity, other.polarity
    if a.excepts != b.excepts:
        # Without the museums: all but the museums.
        return (a.denials + a.excepts + b.denials + b.excepts) % 2 == 0 or a.perhaps + b.perhaps > 0
    if not a.denials and not b.denials:
        return None
    return a.may_agree(b, found.opposites)


def _polarity(one: Reading, other: Reading, found: Alignment) -> Verdict:
    if not found.opposites:
        return None
    return (one.polarity.denials + other.polarity.denials + found.opposites) % 2 == 0 and bool(
        one.polarity.denials + other.polarity.denials
    )


def _comparators(one: Reading, other: Reading) -> Verdict:
    ours, theirs = one.polarity.bounds, other.polarity.bounds
    if not ours and not theirs:
        return None
    return same_bounds(ours, theirs)


def _quantifiers(one: Reading, other: Reading) -> Verdict:
    ours, theirs = ({word for word, _ in seen.facts["quantifiers"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    if "only" in ours ^ theirs and any(token.form == "just" for seen in (one, other) for token in seen.tokens):
        ours, theirs = ours - {"only"}, theirs - {"only"}
    if {"only", "half", "none", "few"} & (ours ^ theirs):
        return False
    ours, theirs = ours - {"any"}, theirs - {"any"}
    return False if ours and theirs else "one side"


def _temporal(one: Reading, other: Reading) -> Verdict:
    ours, theirs = ({word for word, _ in seen.facts["temporal"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    loose = {"before", "after", "during", "current", "since", "until"}
    periods = {"daily", "weekly", "monthly", "yearly"}
    orders = {"before", "after", "together"}
    if (ours ^ theirs) - loose - periods - orders or len(orders & (ours ^ theirs)) > 1:
        return False
    return False if ours & periods and theirs & periods and ours & periods != theirs & periods else "one side"


def _tense(one: Reading, other: Reading) -> Verdict:
    if not one.time or not other.time:
        return None
    if one.time.split()[0] == other.time.split()[0]:
        return True
    if one.told or other.told or not {one.time, other.time} & {"past", "past deed"}:
        return "one side"
    # Is it, was it; does it, did it; will it, did it. But: was that much, does it have much.
    crossed = {"past", "present deed"}, {"past deed", "present"}
    return "one side" if {one.time, other.time} in crossed else False


def _question(one: Reading, other: Reading) -> Verdict:
    if one.grain and other.grain and one.grain != other.grain:
        return False
    if one.modal and other.modal and one.modal != other.modal:
        return False
    if one.kinds == OPEN and other.kinds == OPEN:
        return None
    if one.kinds == OPEN or other.kinds == OPEN:
        return "one side"
    return agree(one.kinds, other.kinds)


def _aspect(one: Reading, other: Reading) -> Verdict:
    if contrary(one.sides, other.sides):
        return False
    ours, theirs = ({word for word, _ in seen.facts["aspect"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    if ours - theirs and theirs - ours:
        return False
    return "one side"


def _language(one: Reading, other: Reading) -> Verdict:
    ours, theirs = ({word for word, _ in seen.facts["language"]} for seen in (one, other))
    if not ours and not theirs:
        return None
    # Swift is quick where it is read as a word.
    spoken, said = ({token.form for token in seen.tokens} | {*seen.meaning.atoms} for seen in (one, other))
    return ours <= said | theirs and theirs <= spoken | ours


_PERSONS = {"i": "my", "my": "my", "me": "my", "mine": "my", "we": "our", "our": "our", "us": "our"} | {
    "your": "your", "his": "his", "her": "her", "their": "their"
}  # fmt: skip


def _subject(one: Reading, other: Reading) -> Verdict:
    if (
        one.kinds == other.kinds == {"yes"}
        and _third(one) == _third(other)
        and {_second(one), _second(other)} in ({"i", "you"}, {"we", "you"})
    ):
        return False
    numbered = [seen for seen in (one, other) if "number" in seen.meaning.atoms]
    if len(numbered) == 2 and one.facts["plural"] != other.facts["plural"]:
        # The number of the planet, the number of planets.
        return False
    ours, theirs = (
        {_PERSONS[atom] for atom in seen.meaning.atoms if atom in _PERSONS and atom not in ("i", "me", "we", "us")}
        for seen in (one, other)
    )
    if ours == theirs:
        return True if ours else None
    return False if ours and theirs else "one side"


def _second(seen: Reading) -> str:
    return seen.tokens[1].form if len(seen.tokens) > 1 else ""


def _third(seen: Reading) -> str:
    return seen.tokens[2].form if len(seen.tokens) > 2 else ""


def _statement(one: Reading, other: Reading) -> Verdict:
    """`You are happy` and `You are happy?` differ; behind a question word or a verb the mark says nothing."""
    if one.alike != other.alike and one.meaning == other.meaning and one.asks != other.asks:
        return False
    return None


def _content(one: Reading, other: Reading, found: Alignment) -> Verdict:
    if not one.words or not other.words:
        # Nothing is left to compare by: only what else is typed could tell.
        return None if one.tokens == other.tokens else False
    typed = one.facts["numbers"] & other.facts["numbers"] | one.facts["dates"] & other.facts["dates"]
    if replaced(found.missing, found.extra, found.shared + len(typed)):
        return False
    judged = _judged_elsewhere(one, other, found)
    ours, theirs = ([atom for atom in seen.meaning.atoms if atom not in judged] for seen in (one, other))
    if said_otherwise(ours, theirs) or (not found.opposites and one_word_exchanged(one.plain, other.plain)):
        return False
    if (
        found.shared < 2
        and not _typed_agree(one, other)
        and OPEN in (one.kinds, other.kinds)
        and one.kinds != other.kinds
    ):
        # One word in common and no telling what is asked of it.
        return False
    if _specific(found.missing) or _specific(found.extra):
        return "one side"
    return True if found.shared else None


_BOUNDING = frozenset({"at", "least", "most", "no", "not", "more", "less", "few", "fewer", "little", "minimum"}) | {
    *("maximum", "than", "up", "to", "or", "and", "of", "a", "over", "above", "under", "below")
}


def _judged_elsewhere(one: Reading, other: Reading, found: Alignment) -> Set[str]:
    """Words whose kind agrees although they differ: `no fewer than` for `at least`, `not open` for `closed`."""
    judged: Set[str] = {atom for seen in (one, other) for atom in seen.meaning.atoms if ":" in atom}
    if _names(one, other):
        judged |= {name for name, _ in one.facts["names"] ^ other.facts["names"]}
    if one.polarity.excepts and other.polarity.excepts:
        judged |= {
            "not",
            "count",
            "include",
            "exclude",
            "except",
            "but",
            "leave",
            "out",
            "omit",
            "other",
            "than",
            "apart",
        }
    if one.facts["quantifiers"] and one.facts["quantifiers"] == other.facts["quantifiers"]:
        judged |= {"nobody", "nothing", "but", "only", "just", "all", "every", "each"}
    if one.polarity.bounds and one.polarity.bounds == other.polarity.bounds:
        judged |= _BOUNDING
    if one.polarity.denials == other.polarity.denials > 0:
        judged |= {"not", "never", "do", "have", "no"}
    if found.opposites and _polarity(one, other, found):
        judged |= {"not", "never", *found.missing, *found.extra}
    return judged


def _typed_agree(one: Reading, other: Reading) -> bool:
    return any(one.facts[kind] and one.facts[kind] == other.facts[kind] for kind in ("numbers", "quoted", "code"))


_JUDGES: dict[str, Judge] = {
    "numbers": _numbers,
    "dates": _dates,
    "quoted": _written("quoted"),
    "code": _written("code"),
    "names": _names,
    "comparators": _comparators,
    "quantifiers": _quantifiers,
    "temporal": _temporal,
    "tense": _tense,
    "language": _language,
    "format": _facts("format"),
    "aspect": _aspect,
    "question": _question,
    "subject": _subject,
    "statement": _statement,
    "direction": direction,
    "order": order,
}
_TURNED = ("direction", "order", "polarity", "content")
"""What seems to differ where the same is said from the other end."""
_BY_ALIGNMENT: dict[str, Callable[[Reading, Reading, Alignment], Verdict]] = {
    "negation": _negation,
    "polarity": _polarity,
    "content": _content,
}
