"""What the rule of the semantic cache says of pairs, and vCache's rule played through a stream."""

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

from headgate.bench.cache import vcache
from headgate.bench.cache.side_by_side import EXACT, MISSED, RIGHT, WRONG, Embedded, Floats, Rows
from headgate.bench.cache.streams import Item
from headgate.cache.embedding.comparator import Sketch
from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.guards import Comparison, compare
from headgate.cache.judge import Judge

Pair = tuple[int, int]
"""Rows of a stored text and of the one asked."""


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
    """What a judge says of pairs of texts, by their rows. Every pair is judged once, for all thresholds."""

    def __init__(self, judge: Judge, texts: Texts, near: float) -> None:
        """`near` is the cosine from which on a text is looked at."""
        self._judge = judge
        self._texts = list(texts.embedded.rows)
        self._sketches = [texts.sketches[text] for text in self._texts]
        self._near = near
        self._odds: dict[Pair, float] = {}
        self._vetoes: dict[Pair, bool] = {}

    def vetoed(self, stored: int, asked: int) -> bool:
        """Whether the guards tell the texts apart, so that the one's answer is not served for the other."""
        pair = stored, asked
        if pair not in self._vetoes:
            self._compare(pair)
        return self._vetoes[pair]

    def __call__(self, asked: int, stored: Rows, cosines: Floats) -> list[float]:
        """Log odds that the answers of stored texts are right; minus infinity where they are too far or forbidden."""
        close = zip(stored.tolist(), cosines.tolist(), strict=True)
        fresh = [(row, cosine) for row, cosine in close if (row, asked) not in self._odds and cosine >= self._near]
        others = [self._sketches[row] for row, _ in fresh]
        aligned = self._judge.align(self._sketches[asked], others, [cosine for _, cosine in fresh])
        for (row, cosine), odds in zip(fresh, aligned, strict=True):
            seen = self._compare((row, asked)) if odds > -math.inf else None
            known = seen is not None and seen.veto is None
            self._odds[row, asked] = self._judge.log_odds(cosine, odds, seen) if seen and known else -math.inf
        return [self._odds.get((row, asked), -math.inf) for row in stored.tolist()]

    def _compare(self, pair: Pair) -> Comparison:
        stored, asked = (self._judge.read(self._texts[row]) for row in pair)
        seen = compare(stored, asked, whole=False)
        self._vetoes[pair] = seen.veto is not None
        return seen


def by_vcache(items: Sequence[Item], embedded: Embedded, delta: float, seed: int) -> NDArray[np.int8]:
    """What becomes of every request under vCache's rule, as `play` says it: `[requests]`.

    The rule learns, and so is played by itself. Of a request that it explores it observes whether the nearest entry's
    answer is right; where that is, the request makes no entry of its own.
    """
    rng = random.Random(f"{seed}/vcache")
    keys = {embedded.rows[item.text]: item.key for item in items}
    made = np.full(len(items), MISSED, np.int8)
    texts: dict[str, set[int]] = {}
    # By tenant, what was observed of each entry.
    entries: dict[str, dict[int, list[tuple[float, bool]]]] = {}
    for at, item in enumerate(items):
        asked = embedded.rows[item.text]
        stored, own = texts.setdefault(item.tenant, set()), entries.setdefault(item.tenant, {})
        if asked in stored:
            made[at] = EXACT
            continue
        uniform = rng.random()
        nearest = next((row for row in embedded.order[asked].tolist() if row in own), None)
        right = nearest is not None and keys[nearest] == item.key
        if nearest is not None:
            observed, similarity = own[nearest], float(embedded.cosines[asked, nearest])
            curve = vcache.fit_curve(observed) if observed else None
            if vcache.decide(curve, similarity, delta, uniform).serve:
                made[at] = RIGHT if right else WRONG
                continue
            observed.append((max(0.0, similarity), right))
        stored.add(asked)
        if not right:
            own[asked] = []
    return made
