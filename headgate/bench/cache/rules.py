"""The rule of the semantic cache and vCache's as policies of a replay."""

from __future__ import annotations

import hashlib
import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.bench.cache.certify import LADDER, Served
from headgate.bench.cache.policies import Candidate, Embedded, Labels, Query, replay
from headgate.bench.cache.streams import Item
from headgate.cache import vcache
from headgate.cache.comparator import Sketch
from headgate.cache.encoder import BertEncoder
from headgate.cache.guards import compare
from headgate.cache.judge import Judge, evidence

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Texts:
    """All texts of some streams, encoded."""

    embedded: Embedded
    sketches: Mapping[str, Sketch | None]


def encode(
    texts: Iterable[str], encoder: BertEncoder, judge: Judge, folder: Path | None = None, batch: int = 64
) -> Texts:
    """Every text's vector and sketch, once; `folder` keeps them for the next run with the same comparator."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    rows = {text: row for row, text in enumerate(distinct)}
    if folder is not None:
        of = hashlib.blake2b("\n".join(distinct).encode() + judge.comparator.digest, digest_size=12).hexdigest()
        path = folder / f"texts-{of}.npz"
        if path.is_file():
            kept = np.load(path)
            ends = np.cumsum(kept["lengths"])[:-1]
            parts = zip(np.split(kept["ids"], ends), np.split(kept["states"], ends), strict=True)
            known = [Sketch(ids, states) if len(ids) else None for ids, states in parts]
            return Texts(Embedded(rows, kept["vectors"]), dict(zip(distinct, known, strict=True)))
    vectors: list[NDArray[np.float32]] = []
    sketches: dict[str, Sketch | None] = {}
    for start in range(0, len(distinct), batch):
        part = distinct[start : start + batch]
        for text, seen in zip(part, encoder.encode(part), strict=True):
            vectors.append(seen.vector)
            sketches[text] = judge.comparator.sketch(seen.ids, seen.states)
    made = Texts(Embedded(rows, np.stack(vectors)), sketches)
    if folder is not None:
        _keep(made, [sketches[text] for text in distinct], path)
    return made


def _keep(made: Texts, sketches: Sequence[Sketch | None], path: Path) -> None:
    """Written aside and renamed, so that a run that is cut off leaves no half of a file."""
    known = [sketch for sketch in sketches if sketch is not None]
    aside = path.with_suffix(f".{os.getpid()}.npz")
    np.savez(
        aside,
        vectors=made.embedded.vectors,
        lengths=np.array([0 if sketch is None else len(sketch.ids) for sketch in sketches]),
        ids=np.concatenate([sketch.ids for sketch in known]),
        states=np.concatenate([sketch.states for sketch in known]),
    )
    aside.replace(path)


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
        pair = stored, asked
        if pair not in self._vetoes:
            self._vetoes[pair] = compare(self._judge.read(stored), self._judge.read(asked), whole=False).veto
        return self._vetoes[pair]

    def best(self, query: Query, candidates: Sequence[Candidate]) -> tuple[float, Candidate] | None:
        """The likeliest right candidate and its log odds; None where the guards forbid all."""
        close = [candidate for candidate in candidates if candidate.similarity >= self._near]
        self._judge_all(query.text, [(candidate.text, candidate.similarity) for candidate in close])
        scored = [(self._odds[other.text, query.text], other) for other in close]
        found = max(scored, key=lambda pair: pair[0], default=None)
        return None if found is None or found[0] == -math.inf else found

    def _judge_all(self, asked: str, stored: Sequence[tuple[str, float]]) -> None:
        judge, mine = self._judge, self._sketches[asked]
        fresh = [(text, cosine) for text, cosine in stored if (text, asked) not in self._odds]
        aligned = judge.align(mine, [self._sketches[text] for text, _ in fresh], [cosine for _, cosine in fresh])
        for (text, cosine), odds in zip(fresh, aligned, strict=True):
            found = -math.inf
            if odds > -math.inf:
                seen = compare(judge.read(text), judge.read(asked), whole=False)
                self._vetoes[text, asked] = seen.veto
                if seen.veto is None:
                    found = judge.model.log_odds(evidence(cosine, 0.0, odds, seen))
            self._odds[text, asked] = found


class Judged:
    """Serves the likeliest right candidate from a threshold on. Learns nothing."""

    def __init__(self, scores: Scores, threshold: float) -> None:
        """`threshold` in log odds; infinity serves nothing."""
        self._scores = scores
        self._threshold = threshold
        self.alike = ("log odds", threshold) if threshold < math.inf else ("nothing",)
        """Equal for policies that serve alike, given one model."""

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


class _Counted(Judged):
    """Counts what it serves, by the intent of the request."""

    def __init__(self, scores: Scores, threshold: float, keys: Mapping[str, str]) -> None:
        super().__init__(scores, threshold)
        self._keys = keys
        self.served: dict[str, tuple[int, int]] = {}

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:  # noqa: ARG002
        """One more hit, if it was served."""
        if served:
            intent = self._keys[query.text].partition("|")[0]
            good, bad = self.served.get(intent, (0, 0))
            self.served[intent] = (good + right, bad + (not right))


def served_by_threshold(items: Sequence[Item], texts: Texts, scores: Scores, candidates: int) -> Served:
    """What every threshold of the ladder serves in a stream, each from an empty cache."""
    keys = {item.text: item.key for item in items}
    found: dict[float, dict[str, tuple[int, int]]] = {}
    for threshold in LADDER:
        policy = _Counted(scores, threshold, keys)
        replay(items, texts.embedded, policy, labels=Labels(served=1.0, unserved=0.0), candidates=candidates)
        found[threshold] = policy.served
    return found
