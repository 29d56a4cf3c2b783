"""The guards themselves: what two texts agree in, what keeps them apart, and whether the one may answer the other."""

from __future__ import annotations

from collections.abc import Callable, Set

from headgate.cache.guards.aspect import aspect
from headgate.cache.guards.comparison import KINDS, WEIGHED, Comparison
from headgate.cache.guards.conditions import narrowed
from headgate.cache.guards.content import Alignment, align, one_word_exchanged, replaced, said_otherwise
from headgate.cache.guards.doers import doer_exchanged
from headgate.cache.guards.evidence import Reading, Verdict
from headgate.cache.guards.facts import Judge, dates, facts, language, names_agree, numbers, written
from headgate.cache.guards.inflection import base_form
from headgate.cache.guards.polarity import same_bounds
from headgate.cache.guards.questions import OPEN, agree, apart, defined_or_done
from headgate.cache.guards.roles import compares_alike, direction, order, turned_alike
from headgate.cache.guards.subject import subject
from headgate.cache.guards.temporal import temporal
from headgate.cache.guards.tenses import clash
from headgate.cache.guards.vocabulary import kept, part_of_speech, parts_of_speech, weight


def compare(stored: Reading, asked: Reading, *, whole: bool = True) -> Comparison:
    """The typed evidence for serving the answer to `stored` for `asked`.

    Without `whole` the first kind that forbids ends it: of a pair that is forbidden nothing but `veto` is known then.
    """
    # Most pairs differ in what they mean; what else must be alike takes longer to find.
    same = (
        len(stored.meaning.atoms) == len(asked.meaning.atoms)
        and stored.said == asked.said
        and stored.alike == asked.alike
        and names_agree(stored, asked) in (True, None)
        and not clash(stored.times, asked.times)
    )
    found: Alignment | None = None
    turned: bool | None = None
    agree, conflict, one_sided = [], [], []
    for kind, judge, by_alignment in _GUARDS:
        if judge is not None:
            verdict = judge(stored, asked)
        elif by_alignment is not None:
            found = found or align(stored.words, asked.words)
            verdict = by_alignment(stored, asked, found)
        if verdict is None:
            continue
        if verdict is False and kind in _TURNED and not (kind == "polarity" and compares_alike(stored, asked)):
            turned = turned_alike(stored, asked) if turned is None else turned
            verdict = turned
        if verdict is True:
            agree.append(kind)
        elif verdict == "one side":
            one_sided.append(kind)
        elif verdict is False and (not same or (kind == "order" and doer_exchanged(stored, asked))):
            conflict.append(kind)
            if not whole and kind not in WEIGHED:
                break
    found = found or align(stored.words, asked.words) if whole or WEIGHED.issuperset(conflict) else _UNKNOWN
    missing, extra = _specific(found.missing), _specific(found.extra)
    return Comparison(
        agree=frozenset(agree),
        conflict=frozenset(conflict),
        one_sided=frozenset(one_sided),
        shared=found.shared,
        missing=missing,
        extra=extra,
        loose=len(found.missing) + len(found.extra) - missing - extra,
        same=same,
    )


def _specific(words: tuple[str, ...]) -> int:
    return [weight(word) for word in words].count(2)


_SAID_ALIKE = 0.5
"""Share of the content words that have a counterpart. Where it is lower other words may say what `not` says (broken,
does not start): among written groups a denial too many is no rarer in paraphrases than in near misses there."""


def _negation(one: Reading, other: Reading, found: Alignment) -> Verdict:
    a, b = one.polarity, other.polarity
    if a.excepts != b.excepts:
        # Without the museums: all but the museums.
        return (a.denials + a.excepts + b.denials + b.excepts) % 2 == 0 or a.perhaps + b.perhaps > 0
    if not a.denials and not b.denials:
        return False if bool(a.perhaps) != bool(b.perhaps) and _refused(found, one, other) else None
    if a.may_agree(b, found.opposites):
        return True
    words = 2 * found.shared + len(found.missing) + len(found.extra)
    return False if 2 * found.shared >= _SAID_ALIKE * words else "one side"


_REFUSING = frozenset(
    map(kept, ("refuse", "avoid", "stop", "quit", "fail", "prevent", "forbid", "prohibit", "ban", "deny"))
)


def _refused(found: Alignment, one: Reading, other: Reading) -> bool:
    """Whether a word for not doing it is all that one text says more: what do they eat, what do they refuse to eat. It
    ends no text: when the rain will stop is no denial."""
    if {*one.words[-1:], *other.words[-1:]} & _REFUSING:
        return False
    missing, extra = ({word for word in words if weight(word) == 2} for words in (found.missing, found.extra))
    more = missing or extra
    return found.shared > 1 and bool(more) and not (missing and extra) and more <= _REFUSING


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
    if not one.facts["quantifiers"] and not other.facts["quantifiers"]:
        return None
    ours, theirs = ({word for word, _ in seen.facts["quantifiers"]} for seen in (one, other))
    if ours == theirs:
        return True if ours else None
    if "only" in ours ^ theirs and any(token.form == "just" for seen in (one, other) for token in seen.tokens):
        ours, theirs = ours - {"only"}, theirs - {"only"}
    if {"only", "half", "none", "few"} & (ours ^ theirs):
        return False
    if ours ^ theirs <= {"all", "both"} and (_one_of_all(one, other) or _one_of_all(other, one)):
        return False
    ours, theirs = ours - {"any"}, theirs - {"any"}
    return False if ours and theirs else "one side"


_ALL = frozenset({"all", "every", "each", "both"})
_A = frozenset({"a", "an", "another", "single"})
_SPANS = frozenset({"day", "week", "month", "year", "night", "time"})
"""Each month is how often."""


def _one_of_all(one: Reading, other: Reading) -> bool:
    """All planets against one planet."""
    whole = {
        base_form(word)
        for at, token in enumerate(one.spoken)
        if token in _ALL and not _SPANS.issuperset(one.spoken[at + 1 : at + 2])
        for word in one.spoken[at + 1 : at + 4]
    }
    single = {
        word
        for at, token in enumerate(other.spoken)
        if token in _A or token in ("#1", "one")
        for word in other.spoken[at + 1 : at + 3]
    }
    return any(base_form(word) == word and word in whole and "n" in parts_of_speech(word) for word in single)


def _tense(one: Reading, other: Reading) -> Verdict:
    if clash(one.times, other.times) or _translated_otherwise(one, other):
        return False
    if not one.time or not other.time:
        return None
    if one.time.split()[0] == other.time.split()[0]:
        return True
    if one.told or other.told or not {one.time, other.time} & {"past", "past deed"}:
        return "one side"
    # Is it, was it; does it, did it; will it, did it. But: was that much, does it have much.
    crossed = {"past", "present deed"}, {"past deed", "present"}
    return "one side" if {one.time, other.time} in crossed else False


def _translated_otherwise(one: Reading, other: Reading) -> bool:
    """What is to be translated is to be so to the word: I have an appointment, I had an appointment."""
    if "translate" not in one.spoken and "translate" not in other.spoken:
        return False
    mine, yours = ({"had"} & {*seen.spoken} or {"have", "has"} & {*seen.spoken} for seen in (one, other))
    return bool(mine and yours) and ("had" in mine) != ("had" in yours)


def _answer(one: Reading, other: Reading) -> Verdict:
    named = _named_or_counted(one, other) or _named_or_counted(other, one)
    defined = defined_or_done(one.spoken, other.spoken) or defined_or_done(other.spoken, one.spoken)
    return False if named or defined or apart(one.kinds, other.kinds) else None


def _named_or_counted(one: Reading, other: Reading) -> bool:
    """How many countries, which countries."""
    if not one.amount_of:
        return False
    for word, thing, behind in zip(other.plain, other.plain[1:], (*other.plain[2:], ""), strict=False):
        if word in ("which", "what") and one.amount_of == thing:
            # Which frame rate, how many frames.
            return behind not in ("count", "number") and part_of_speech(behind) != "n"
    return False


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


def _statement(one: Reading, other: Reading) -> Verdict:
    """`You are happy` and `You are happy?` differ; behind a question word or a verb the mark says nothing. `Can I feed
    them` and `should I feed them` differ too, where the words are the same otherwise: who keeps those means it."""
    if one.modal and other.modal and one.modal != other.modal and sorted(one.words) == sorted(other.words):
        return False
    if one.asks != other.asks and one.meaning == other.meaning and one.alike != other.alike:
        return False
    return None


def _condition(one: Reading, other: Reading, found: Alignment) -> Verdict:
    if not found.missing and not found.extra:
        return None
    missing, extra = ({word for word in words if weight(word) == 2} for words in (found.missing, found.extra))
    if narrowed(other.meaning.atoms, missing, extra) or narrowed(one.meaning.atoms, extra, missing):
        return False
    return None


def _content(one: Reading, other: Reading, found: Alignment) -> Verdict:
    if not one.words or not other.words:
        # Nothing is left to compare by: only what else is typed could tell.
        return None if one.tokens == other.tokens else False
    if found.missing and found.extra:
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
    *("longer", "shorter", "larger", "smaller", "bigger", "greater", "higher", "lower", "older", "younger"),
    *("maximum", "than", "up", "to", "or", "and", "of", "a", "over", "above", "under", "below"),
}


def _judged_elsewhere(one: Reading, other: Reading, found: Alignment) -> Set[str]:
    """Words whose kind agrees although they differ: `no fewer than` for `at least`, `not open` for `closed`."""
    judged: Set[str] = {atom for seen in (one, other) for atom in seen.meaning.atoms if ":" in atom}
    if one.facts["names"] != other.facts["names"] and names_agree(one, other) is True:
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
    "numbers": numbers,
    "dates": dates,
    "quoted": written("quoted"),
    "code": written("code"),
    "names": names_agree,
    "comparators": _comparators,
    "quantifiers": _quantifiers,
    "temporal": temporal,
    "tense": _tense,
    "language": language,
    "format": facts("format"),
    "aspect": aspect,
    "answer": _answer,
    "question": _question,
    "subject": subject,
    "statement": _statement,
    "direction": direction,
    "order": order,
}
_UNKNOWN = Alignment(0, (), (), 0)
_TURNED = ("direction", "order", "polarity", "content", "comparators")
"""What seems to differ where the same is said from the other end."""
_BY_ALIGNMENT: dict[str, Callable[[Reading, Reading, Alignment], Verdict]] = {
    "negation": _negation,
    "polarity": _polarity,
    "condition": _condition,
    "content": _content,
}
_GUARDS = tuple((kind, _JUDGES.get(kind), _BY_ALIGNMENT.get(kind)) for kind in KINDS)
