"""Negation, exceptions and bounds of a text, whatever words they are put in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.cache.guards.reading import Token


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HARD = _words(
    "not never without w/o no nobody nothing none neither nor cannot nowhere no_one hardly barely scarcely rarely"
    " seldom unless minus sans unable impossible"
)
_SOFT = _words(
    "stop stops stopping stopped quit quitting avoid avoiding avoids prevent prevents preventing fail fails failed"
    " failing failure lack lacks lacking missing refuse refuses refused deny denied forget forgot forgotten"
    " unsubscribe instead free anymore broken crash crashes unresponsive alternative substitute lost lose keep"
)
"""Words that may stand for a negation in other words: `it fails to start`, `it does not start`."""
_EXCEPT = _words("except excluding excepting besides apart exclude omit ignoring")
_SAYING = ("number", "date", "code", "quoted")
_BOUNDS: tuple[tuple[tuple[str, ...], str], ...] = tuple(
    (tuple(words.split()), bound)
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
    }.items()
    for words in phrases
)  # fmt: skip
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


def polarity_of(tokens: Sequence[Token]) -> Polarity:
    """The polarity of a text that was read."""
    words = [token.form if token.kind == "word" else "" for token in tokens]
    bounds: list[str] = []
    denials = perhaps = 0
    excepts = False
    at = 0
    while at < len(words):
        found = next((rule for rule in _BOUNDS if tuple(words[at : at + len(rule[0])]) == rule[0]), None)
        if tokens[at].kind == "symbol" and tokens[at].form in _SIGNS:
            bounds.append(_SIGNS[tokens[at].form])
        if found is not None and (found[0][0] == "at" or _near_number(tokens, at, len(found[0]))):
            bounds.append(found[1])
            at += len(found[0])
            continue
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        next_kind = tokens[at + 1].kind if at + 1 < len(tokens) else ""
        if word == "or" and following == "not":
            at += 2
            continue
        if word in _EXCEPT or (word in ("other", "rather") and following == "than") or (word == "but" and at > 2):
            excepts = excepts or word != "but" or words[at - 1] not in ("", "do", "it")
        if (word == "free" and following in ("of", "from")) or (
            word in _HARD and not (word in ("no", "nos") and next_kind in _SAYING)
        ):
            denials += 1
        elif word in _SOFT:
            perhaps += 1
        at += 1
    return Polarity(denials, perhaps, excepts, tuple(sorted(bounds)))


def _near_number(tokens: Sequence[Token], at: int, taken: int) -> bool:
    """A bound is one where a number stands beside it."""
    around = [*tokens[max(0, at - 2) : at], *tokens[at + taken : at + taken + 2]]
    return any(token.kind in ("number", "date") for token in around)
