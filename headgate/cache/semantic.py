"""Semantic look-up: the same question in other words, if it is certain that it is the same question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headgate.cache.audits.watch import Watch
from headgate.cache.bound import Evidence
from headgate.cache.exact import find
from headgate.cache.freshness import time_sensitive
from headgate.cache.guards import (
    NOTHING_STRANGE,
    Comparison,
    Reading,
    Spelling,
    broken,
    comparable,
    compare,
    foreign,
    reading_of,
    seal_of,
    spelled_apart,
    spelling_of,
)
from headgate.cache.index import Vector, VectorIndex
from headgate.cache.judge import Judge, Traffic, evidence
from headgate.cache.store.base import Entries
from headgate.cache.verdict import Entry, Hit, Miss, Near, Verdict

Stored = TypeVar("Stored")

CANDIDATES = 8
"""Near misses are often closer than a true paraphrase, so the first few say little."""
MARGIN = 2.0
"""Log odds: of two questions told apart by the guards that fit within so much of each other, neither is served."""


@dataclass(frozen=True, slots=True)
class SemanticRule:
    """When a candidate is served, and when it is near."""

    max_error: float = 0.02
    """Share of wrong answers accepted among hits served by meaning, unless a request accepts fewer or more."""
    near_similarity: float = 0.60
    """Cosine from which a candidate is looked at: to be served, or else handed on as a draft."""
    max_chars: int = 1000
    """Longer texts are never served: the embedding sees only their beginning."""
    traffic: Traffic = "natural"
    """The traffic whose certified thresholds are used: the more near misses, the fewer answers can be served."""

    def __post_init__(self) -> None:
        if not 0.0 < self.max_error < 1.0:
            raise ValueError(f"max_error is {self.max_error}; more than 0 and less than 1 is accepted")
        if not 0.0 <= self.near_similarity <= 1.0:
            raise ValueError(f"near_similarity is {self.near_similarity}; 0 to 1 is accepted")


def barred(text: str, rule: SemanticRule) -> str | None:
    """Why no stored answer may be served for this text unless it is exactly the same one; None where one may."""
    if len(text) > rule.max_chars:
        return "length"
    if not any(character.isalnum() for character in text):
        return "empty"
    if time_sensitive(text):
        return "time_sensitive"
    if foreign(text):
        return "foreign"
    return None


@dataclass(frozen=True, slots=True)
class Asked:
    """A text as it is decided about: made while it is embedded, for that takes longer."""

    barred: str | None
    """Why no stored answer may be served for it, as `barred` says."""
    reading: Reading | None
    """None where it is barred."""
    seal: bytes
    spelling: Spelling = NOTHING_STRANGE


def asked_of(text: str, rule: SemanticRule, judge: Judge | None, scope: str = "") -> Asked:
    """What can be told of a text before anything close to it is known."""
    reason = barred(text, rule)
    if reason is not None:
        return Asked(reason, None, b"")
    seen = (reading_of(text) if judge is None else judge.read(text, scope)).foreseen()
    return Asked(None, seen, seal_of(seen), spelling_of(text))


async def find_similar(
    store: Entries,
    index: VectorIndex,
    rule: SemanticRule,
    judge: Judge | None,
    *,
    bucket: str,
    scope: str,
    asked: Asked,
    vector: Vector,
    sketch: bytes,
    now: float,
    max_age: float | None,
    max_error: float | None = None,
    watch: Watch | None = None,
) -> Verdict:
    """The likeliest right of the close entries if that is likely enough, or the closest one that is near, or a miss.

    Without a judge, as for an embedding model nobody fitted one on, only what reads alike to the last word is served.
    """
    close: list[Close[Entry]] = []
    for key, similarity in index.search(bucket, vector, CANDIDATES):
        if similarity < rule.near_similarity:
            break
        entry = await find(store, key, now=now, max_age=max_age)
        if entry is not None:
            close.append(Close(entry.text, similarity, entry.sketch, entry, entry.seal))
        elif await store.get(key) is None:
            # Another process may have dropped it; the index is only a view of the store.
            index.remove(key)
    if not close:
        return Miss()
    found = choose(asked, sketch, close, rule, judge, max_error, scope=scope)
    reason = found.reason
    for at, score in found.servable:
        chosen = close[at]
        held = None if watch is None else await watch.holds(chosen.entry, score)
        if held is None:
            return Hit("semantic", chosen.entry, chosen.similarity, found.bound, found.evidence(at))
        reason = reason or held
    return Near(close[0].entry, close[0].similarity, reason, found.evidence(0))


@dataclass(frozen=True, slots=True)
class Close(Generic[Stored]):
    """A stored text that is close to the one asked."""

    text: str
    similarity: float
    sketch: bytes
    entry: Stored
    seal: bytes = b""
    """As `guards.sealed` made it; empty where the text must be read."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the close texts' answers may be served.

    Attributes:
        servable: their places and scores, the best first, none told apart from it by the guards. A score is the log
            odds above the threshold; without a judge the similarity.
        bound: on the share of wrong ones among hits like these, where one is certified.
        reason: why the closest is not served; empty where it may be.
        weighed: what the model was asked about, by place: similarity, the comparator's log odds, what the guards say.
    """

    servable: tuple[tuple[int, float], ...]
    bound: float | None
    reason: str
    weighed: Mapping[int, tuple[float, float, Comparison]] = field(default_factory=dict)

    def evidence(self, at: int) -> Evidence | None:
        """What the model was asked about the text at a place; None where it was not."""
        known = self.weighed.get(at)
        return None if known is None else evidence(known[0], 0.0, known[1], known[2])


def choose(
    asked: Asked,
    sketch: bytes,
    close: Sequence[Close[Stored]],
    rule: SemanticRule,
    judge: Judge | None,
    max_error: float | None,
    *,
    scope: str = "",
) -> Choice:
    """Decide between close texts of one scope, the closest first; there is at least one."""
    accepted = rule.max_error if max_error is None else max_error
    level = judge.level(rule.traffic, accepted) if judge is not None else None
    # Where nothing may be served, only the closest is asked why.
    served = level is not None or (judge is None and accepted >= rule.max_error)
    reading, mark = asked.reading, asked.seal
    if asked.barred is not None or reading is None:
        return Choice((), None, asked.barred or "empty")
    # What asks about now was given no seal; how long a text may be is another matter in another process.
    against = [
        broken(other.seal, mark)
        if comparable(other.seal, mark) and len(other.text) <= rule.max_chars
        else barred(other.text, rule)
        for other in close
    ]
    odds = [0.0] * len(close)
    if judge is not None and level is not None:
        # Quicker than the guards, and spares them most of what is not alike.
        sketches = [
            judge.comparator.unpack(other.sketch) if why is None else None
            for other, why in zip(close, against, strict=True)
        ]
        odds = judge.align(judge.comparator.unpack(sketch), sketches, [other.similarity for other in close])
        against = [
            why or (None if value > -math.inf else "alignment") for why, value in zip(against, odds, strict=True)
        ]
    seen: dict[int, Comparison] = {}
    for at, other in enumerate(close):
        if against[at] is None and (served or not at):
            if spelled_apart(spelling_of(other.text), asked.spelling):
                against[at] = "spelling"
                continue
            stored = reading_of(other.text) if judge is None else judge.read(other.text, scope, other.seal)
            seen[at] = compare(stored, reading, whole=False)
            against[at] = seen[at].veto
    left = [at for at in seen if against[at] is None]
    if judge is None:
        if accepted < rule.max_error:
            return Choice((), None, against[0] or "max_error")
        alike = [at for at in left if seen[at].same]
        return Choice(tuple((at, close[at].similarity) for at in alike), None, against[0] or _unless(0 in alike))
    if level is None:
        return Choice((), None, against[0] or "max_error")
    weighed = {at: (close[at].similarity, odds[at], seen[at]) for at in left}
    scored = sorted(
        ((at, judge.log_odds(*known) - level.threshold) for at, known in weighed.items()), key=lambda pair: -pair[1]
    )
    if not scored or scored[0][1] < 0.0:
        return Choice((), level.bound, against[0] or "bound", weighed)
    best, most = scored[0]
    first = judge.read(close[best].text, scope, close[best].seal)
    servable = [(best, most)]
    for at, score in scored[1:]:
        if score < min(0.0, most - MARGIN):
            break
        if compare(first, judge.read(close[at].text, scope, close[at].seal), whole=False).veto is None:
            servable += [(at, score)] if score >= 0.0 else []
        elif score >= most - MARGIN:
            # One answer at most is right for both, and the text asked does not say which.
            return Choice((), level.bound, against[0] or "ambiguous", weighed)
    return Choice(tuple(servable), level.bound, against[0] or _unless(any(at == 0 for at, _ in servable)), weighed)


def _unless(served: bool) -> str:
    return "" if served else "bound"
