"""Negation, exceptions and bounds of a text, whatever words they are put in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headgate.cache.guards.reading import Token
from headgate.cache.guards.words import word_set

Rule = TypeVar("Rule")


def _by_first_word(rules: Iterable[tuple[str, Rule]]) -> Mapping[str, tuple[Rule, ...]]:
    """Rules by the word they begin with, each word's in their order."""
    table: dict[str, tuple[Rule, ...]] = {}
    for word, rule in rules:
        table[word] = (*table.get(word, ()), rule)
    return table


_HARD = word_set(
    "not never without w/o no nobody nothing none neither nor cannot nowhere no_one hardly barely scarcely rarely"
    " seldom unless minus sans unable impossible"
)
_SOFT = word_set(
    "stop stops stopping stopped quit quitting avoid avoiding avoids prevent prevents preventing fail fails failed"
    " failing failure lack lacks lacking missing refuse refuses refused deny denied forget forgot forgotten"
    " unsubscribe instead free anymore broken crash crashes unresponsive alternative substitute lost lose"
    " avoid nonstop non-stop ban banned forbid forbidden prohibited illegal"
)
"""Words that may stand for a negation in other words: `it fails to start`, `it does not start`."""
_EXCEPT = word_set("except excluding excepting besides exclude omit omitting ignoring")
_LEAVING_OUT = _by_first_word(
    (words.split()[0], tuple(words.split()))
    for words in (
        "not counting",
        "not including",
        "leave out",
        "leaves out",
        "leaving out",
        "leave aside",
        "keep away from",
        "stay away from",
        "do not care for",
        "do not count",
        "everyone but",
        "everybody but",
        "everything but",
        "all but",
        "aside from",
        "apart from",
        "other than",
        "rather than",
        "take out",
        "skip",
        "skips",
        "skipping",
    )
)
_ONLY = tuple((word, but) for word in ("nobody", "none", "nothing", "no_one") for but in ("but", "except"))
_NUMBERED = word_set("tracking order phone serial part model reference invoice passport account ticket booking case id")
"""Behind one of these `no` is a number."""
_COUNTED = ("number", "date")
_SAYING = ("number", "date", "code", "quoted")
_BOUNDS: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = _by_first_word(
    (words.split()[0], (tuple(words.split()), bound))
    for bound, phrases in {
        ">=": ("at least", "no less than", "no fewer than", "not less than", "not fewer than", "a minimum of",
               "minimum of", "or more", "or higher", "or older", "or above", "or over", "and above", "and over",
               "and up", "or longer", "or greater", "upwards of", "not under", "not below", "starting at"),
        "<=": ("at most", "no more than", "no greater than", "not more than", "not over", "a maximum of", "maximum of",
               "or less", "or fewer", "or lower", "or under", "or below", "or younger", "and under", "and below",
               "up to", "not exceeding", "not above", "no longer than", "no later than"),
        ">": ("more than", "greater than", "larger than", "bigger than", "higher than", "longer than", "older than",
              "over", "above", "exceeding", "exceeds", "beyond"),
        "<": ("less than", "fewer than", "smaller than", "lower than", "shorter than", "younger than", "cheaper than",
              "under", "below", "beneath"),
        "=": ("exactly", "precisely"),
    }.items()
    for words in phrases
)  # fmt: skip
_ORDINAL = re.compile("[0-9]th$")
_SIGNS = {"≥": ">=", "≤": "<=", ">": ">", "<": "<"}


@dataclass(frozen=True, slots=True)
class Polarity:
    """How often a text denies, how often it may be denying in other words, what it excepts and how it bounds."""

    denials: int
    perhaps: int
    excepts: bool
    bounds: tuple[str, ...]

    def may_agree(self, other: Polarity, opposites: int) -> bool:
        """Whether both may come to the same: an even number of denials and opposites between them."""
        least = self.denials + other.denials + opposites
        return least % 2 == 0 or (self.perhaps + other.perhaps > 0 and self.denials != other.denials)


_PLAIN = Polarity(0, 0, False, ())
_TELLING = frozenset({*_BOUNDS, *_LEAVING_OUT, *_EXCEPT, *_HARD, *_SOFT, "free", "keep"}) | {word for word, _ in _ONLY}
"""A text with none of these, and no sign, denies, excepts and bounds nothing; most are such."""
_SETTING = frozenset({"set", "sets", "setting", "tell", "telling"})
_UNKNOWN = (["know"], ["sure"], ["idea"], ["clue"], ["understand"], ["remember"], ["certain"])
_KNOWING = frozenset({"what", "which", "who", "when", "where", "why", "how", "if", "whether"})
_TALKING = frozenset({"say", "says", "said", "saying"})
_TURNING = _TELLING | _TALKING | {"or", "yes"}
"""What any of them may begin with; all other words are passed over."""


def polarity_of(tokens: Sequence[Token], words: Sequence[str]) -> Polarity:
    """The polarity of a text that was read; `words` as `reading.words_of` has them."""
    if _TELLING.isdisjoint(words) and _SIGNS.keys().isdisjoint([token.form for token in tokens]):
        return _PLAIN
    bounds: list[str] = []
    denials = perhaps = 0
    excepts = False
    at = 0
    while at < len(words):
        word = words[at]
        if word not in _TURNING and tokens[at].kind != "symbol":
            at += 1
            continue
        found = None
        if word in _BOUNDS:
            found = next((rule for rule in _BOUNDS[word] if _stands(rule[0], words, at)), None)
        if tokens[at].kind == "symbol" and tokens[at].form in _SIGNS:
            bounds.append(_SIGNS[tokens[at].form])
        if found is not None and _bounds(tokens, at, found[0]):
            # Over eight years may be more than eight or all through them.
            lasting = found[0] == ("over",) and _lasts(tokens, at + 1)
            bounds.append("~" if lasting else found[1])
            at += len(found[0])
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        next_kind = tokens[at + 1].kind if at + 1 < len(tokens) else ""
        if (
            (word == "or" and following in ("not", "no", "none"))
            or (word == "yes" and following == "no")
            or (word in _TALKING and following == "no")
        ):
            # Yes or no; to say no to something is to decline it.
            at += 2
            continue
        if word in ("not", "no") and _asks_to_know(words, at):
            at += 2
            continue
        out = None
        if word in _LEAVING_OUT:
            out = next((rule for rule in _LEAVING_OUT[word] if _stands(rule, words, at)), None)
        if out == ("take", "out") and (
            any(token.kind == "number" for token in tokens[at + 2 : at + 3])
            or {"loan", "mortgage", "credit", "insurance", "policy", "cash", "money"} & {*words}
        ):
            # What is taken out there is taken on.
            out = None
        if out == ("apart", "from") and not _SETTING.isdisjoint(_without_tell_me(words[max(0, at - 7) : at])):
            # What sets them apart.
            out = None
        if out is not None or word in _EXCEPT:
            excepts = True
            at += len(out or (word,))
            continue
        if (word, following) in _ONLY:
            at += 2
            continue
        if (word == "free" and following in ("of", "from")) or (
            word in _HARD
            and not (word in ("no", "nos") and (next_kind in _SAYING or (at and words[at - 1] in _NUMBERED)))
        ):
            denials += 1
        elif word in _SOFT or (word == "keep" and "from" in words[at + 2 : at + 5]):
            perhaps += 1
        at += 1
    return Polarity(denials, perhaps, excepts, tuple(sorted(bounds)))


def _without_tell_me(words: Sequence[str]) -> Sequence[str]:
    return [word for word, behind in zip(words, [*words[1:], ""], strict=False) if behind not in ("me", "us")]


def _asks_to_know(words: Sequence[str], at: int) -> bool:
    """`I do not know how`, `no idea whether`: who says so asks."""
    if words[at] == "not" and {*words[max(0, at - 2) : max(0, at - 1)]}.isdisjoint(("i", "we")):
        # Why do I not know: that is asked.
        return False
    return words[at + 1 : at + 2] in _UNKNOWN and not _KNOWING.isdisjoint(words[at + 2 : at + 4])


def _stands(phrase: tuple[str, ...], words: Sequence[str], at: int) -> bool:
    return tuple(words[at : at + len(phrase)]) == phrase


def _bounds(tokens: Sequence[Token], at: int, phrase: tuple[str, ...]) -> bool:
    """A bound is one where a number stands beside it: before `or more`, behind or before `over`."""
    before, behind = tokens[max(0, at - 2) : at], tokens[at + len(phrase) : at + len(phrase) + 2]
    if phrase[0] in ("or", "and"):
        return any(token.kind in _COUNTED for token in before) and not any(
            token.kind in _COUNTED for token in behind[:1]
        )
    if phrase[0] == "starting":
        # At a time it begins then.
        return any(token.kind == "number" for token in behind[:1])
    if phrase[0] == "at":
        return not behind or behind[0].form != "some"
    # World War II was over, the third edition is above: a place in a series bounds nothing.
    return any(token.kind in _COUNTED and not _ORDINAL.search(token.form) for token in (*before, *behind))


def _lasts(tokens: Sequence[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].kind == "number" and tokens[at].form.endswith(("s", "month"))


def same_bounds(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether both bound alike; ~ is a bound or none, and = is one only where the other text bounds otherwise."""
    if ("=" in one and "~" in other) or ("=" in other and "~" in one):
        return False
    one, other = ([bound for bound in side if bound != "="] for side in (one, other))
    if sorted(one) == sorted(other):
        return True
    ours, theirs = [bound for bound in one if bound != "~"], [bound for bound in other if bound != "~"]
    spare = len(one) - len(ours) + len(other) - len(theirs)
    return spare > 0 and abs(len(ours) - len(theirs)) <= spare and (ours == theirs or set(ours) ^ set(theirs) == {">"})
