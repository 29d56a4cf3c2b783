"""The rule of the semantic cache and vCache's as policies of a replay."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.bench.cache.certify import Labelled
from headgate.bench.cache.policies import Candidate, Embedded, Query, replay
from headgate.bench.cache.streams import Item
from headgate.cache import vcache
from headgate.cache.comparator import Sketch
from headgate.cache.encoder import BertEncoder
from headgate.cache.guards import compare
from headgate.cache.judge import Judge, veto

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Texts:
    """All texts of some streams, encoded."""

    embedded: Embedded
    sketches: Mapping[str, Sketch | None]


def encode(texts: Iterable[str], encoder: BertEncoder, judge: Judge, batch: int = 64) -> Texts:
    """Every text's vector and sketch, once."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    vectors: list[NDArray[np.float32]] = []
    sketches: dict[str, Sketch | None] = {}
    for start in range(0, len(distinct), batch):
        part = distinct[start : start + batch]
        for text, seen in zip(part, encoder.encode(part), strict=True):
            vectors.append(seen.vector)
            sketches[text] = judge.comparator.sketch(seen.ids, seen.states)
    return Texts(Embedded({text: row for row, text in enumerate(distinct)}, np.stack(vectors)), sketches)


class Scores:
    """What a judge says of pairs of texts. Every pair is judged once, so that many thresholds can be replayed."""

    def __init__(self, judge: Judge, sketches: Mapping[str, Sketch | None], near: float) -> None:
        """`near` is the cosine from which on a candidate is looked at."""
        self._judge = judge
        self._sketches = sketches
        self._near = near
        self._odds: dict[Pair, float] = {}
        self._vetoes: dict[Pair, str | None] = {}

    def veto(self, stored: str, asked: str) -> str | None:
        """The guard that forbids serving the one text's answer for the other; None where there is none."""
        self._judge_all(asked, [(stored, 1.0)], score=False)
        return self._vetoes[stored, asked]

    def best(self, query: Query, candidates: Sequence[Candidate]) -> tuple[float, Candidate] | None:
        """The likeliest right candidate and its log odds; None where the guards forbid all."""
        close = [candidate for candidate in candidates if candidate.similarity >= self._near]
        self._judge_all(query.text, [(candidate.text, candidate.similarity) for candidate in close])
        scored = [(self._odds[other.text, query.text], other) for other in close]
        found = max(scored, key=lambda pair: pair[0], default=None)
        return None if found is None or found[0] == -math.inf else found

    def _judge_all(self, asked: str, stored: Sequence[tuple[str, float]], *, score: bool = True) -> None:
        judge, mine = self._judge, self._sketches[asked]
        fresh = [(text, cosine) for text, cosine in stored if (text, asked) not in self._odds]
        seen = {text: compare(judge.read(text), judge.read(asked)) for text, _ in fresh}
        left: list[tuple[str, float, Sketch]] = []
        for text, cosine in fresh:
            why = self._vetoes[text, asked] = veto(seen[text])
            theirs = self._sketches[text]
            if why is None and mine is not None and theirs is not None:
                left.append((text, cosine, theirs))
            elif score:
                self._odds[text, asked] = -math.inf
        if not score or not left or mine is None:
            return
        odds = judge.log_odds(mine, [s for _, _, s in left], [c for _, c, _ in left], [seen[t] for t, _, _ in left])
        for (text, _, _), found in zip(left, odds, strict=True):
            self._odds[text, asked] = found


class Judged:
    """Serves the likeliest right candidate from a threshold on. Learns nothing."""

    def __init__(self, scores: Scores, threshold: float) -> None:
        """`threshold` in log odds; infinity serves nothing."""
        self._scores = scores
        self._threshold = threshold

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        """The best candidate, if it is good enough."""
        found = self._scores.best(query, candidates)
        return found[1] if found is not None and found[0] >= self._threshold else None

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        """Nothing is learnt from a label."""


class VCache:
    """vCache's rule: an explored request's label goes to the entry that was the nearest."""

    def __init__(self, delta: float, seed: int) -> None:
        self._delta = delta
        self._rng = random.Random(f"{seed}/vcache")
        self._observed: dict[int, list[tuple[float, bool]]] = {}
        self._curves: dict[int, vcache.Curve | None] = {}

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:  # noqa: ARG002
        """The nearest candidate, unless the rule explores."""
        uniform = self._rng.random()
        if not candidates:
            return None
        nearest = candidates[0]
        curve = self._curves.get(nearest.entry)
        decision = vcache.decide(curve, nearest.similarity, self._delta, uniform)
        return nearest if decision.serve else None

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:  # noqa: ARG002
        """An observation, where the request was explored."""
        if not served:
            own = self._observed.setdefault(candidate.entry, [])
            own.append((max(0.0, candidate.similarity), right))
            self._curves[candidate.entry] = vcache.fit_curve(own)


class _Recorder:
    """Serves nothing and remembers how the best candidate of every request scored, and whether it was right."""

    def __init__(self, scores: Scores, keys: Mapping[str, str]) -> None:
        self._scores = scores
        self._keys = keys
        self.found: list[Labelled] = []

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        best = self._scores.best(query, candidates)
        if best is not None:
            key = self._keys[query.text]
            self.found.append(Labelled(best[0], self._keys[best[1].text] == key, key.partition("|")[0]))
        return None

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        """Nothing is learnt from a label."""


def would_be_hits(items: Sequence[Item], texts: Texts, scores: Scores, candidates: int) -> list[Labelled]:
    """The best candidate of every request of a stream, nothing being served."""
    recorder = _Recorder(scores, {item.text: item.key for item in items})
    replay(items, texts.embedded, recorder, candidates=candidates)
    return recorder.found
