"""What two texts have in common and what keeps them apart, by kind: the account a decision is learned from."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "numbers", "dates", "quoted", "code", "names", "negation", "polarity", "comparators", "quantifiers", "temporal",
    "tense", "language", "format", "aspect", "answer", "question", "subject", "statement", "condition", "content",
    "direction", "order",
)  # fmt: skip
"""The kinds of evidence, in the order in which a veto is named."""
WEIGHED = frozenset({"question", "content"})
"""Kinds in which people who mean the same differ too often for a veto: the model weighs what they say."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Typed evidence for a pair of texts.

    A kind is in at most one of `agree`, `conflict` and `one_sided`; in none if neither text says anything of it.

    Attributes:
        agree: kinds of which both texts say the same.
        conflict: kinds of which they say what cannot both be meant; any of them vetoes, but for those in `WEIGHED`.
        one_sided: kinds of which only one of them says something.
        shared: how many content words have a counterpart, after inflection and synonyms.
        missing: how many specific words of the stored text (names, nouns, rare words) have none in the asked one.
        extra: how many specific words of the asked text have none in the stored one.
        loose: how many other content words, of both, have none: common verbs, adverbs, adjectives.
        same: both read alike to the last word, by base forms, synonyms and openings: strong evidence that one answer
            serves both. That it is False says little.
    """

    agree: frozenset[str]
    conflict: frozenset[str]
    one_sided: frozenset[str]
    shared: int
    missing: int
    extra: int
    loose: int
    same: bool

    @property
    def veto(self) -> str | None:
        """The first kind that forbids, in the order of `KINDS`; None if nothing does."""
        return next((kind for kind in KINDS if kind in self.conflict and kind not in WEIGHED), None)
