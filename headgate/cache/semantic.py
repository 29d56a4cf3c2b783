"""Semantic look-up: the same question in other words, if it is certain that it is the same question."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.cache.exact import find
from headgate.cache.freshness import time_sensitive
from headgate.cache.guards import certain, reading_of
from headgate.cache.index import Vector, VectorIndex
from headgate.cache.store.base import Entries
from headgate.cache.verdict import Hit, Miss, Near, Verdict
from headgate.cache.watch import Watch

_CANDIDATES = 8
"""Near misses are often closer than a true paraphrase, so the first few say little."""


@dataclass(frozen=True, slots=True)
class SemanticRule:
    """When a candidate is served, and when it is near."""

    max_error: float = 0.02
    """Share of wrong answers accepted among hits served by meaning, unless a request accepts fewer or more."""
    min_similarity: float = 0.70
    """Cosine below which no candidate is served, whatever the guards say."""
    near_similarity: float = 0.60
    """Cosine from which a candidate that is not served is worth handing on as a draft."""
    max_chars: int = 1000
    """Longer texts are never served: the embedding sees only their beginning."""

    def __post_init__(self) -> None:
        if not 0.0 < self.max_error < 1.0:
            raise ValueError(f"max_error is {self.max_error}; more than 0 and less than 1 is accepted")
        for name in ("min_similarity", "near_similarity"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}; 0 to 1 is accepted")
        if self.near_similarity > self.min_similarity:
            raise ValueError(
                f"near_similarity is {self.near_similarity}; at most min_similarity ({self.min_similarity}) is accepted"
            )


def barred(text: str, rule: SemanticRule) -> str | None:
    """Why no stored answer may be served for this text unless it is exactly the same one; None where one may."""
    if len(text) > rule.max_chars:
        return "length"
    if not any(character.isalnum() for character in text):
        return "empty"
    if time_sensitive(text):
        return "time_sensitive"
    return None


async def find_similar(
    store: Entries,
    index: VectorIndex,
    rule: SemanticRule,
    *,
    bucket: str,
    text: str,
    vector: Vector,
    now: float,
    max_age: float | None,
    max_error: float | None = None,
    watch: Watch | None = None,
) -> Verdict:
    """The closest entry of the bucket that every guard lets through, or the closest one that is near, or a miss."""
    reason, asked = barred(text, rule), reading_of(text)
    near: Near | None = None
    for key, similarity in index.search(bucket, vector, _CANDIDATES):
        if similarity < rule.near_similarity:
            break
        entry = await find(store, key, now=now, max_age=max_age)
        if entry is None:
            if await store.get(key) is None:
                # Another process may have dropped it; the index is only a view of the store.
                index.remove(key)
            continue
        against = reason or barred(entry.text, rule) or certain(entry.text, asked)
        if against is None and similarity < rule.min_similarity:
            against = "similarity"
        if against is None and max_error is not None and max_error < rule.max_error:
            against = "max_error"
        if against is None and watch is not None:
            against = await watch.holds(entry, similarity)
        if against is None:
            return Hit("semantic", entry, similarity)
        near = near or Near(entry, similarity, against)
    return near or Miss()
