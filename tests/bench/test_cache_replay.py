"""How a replay of the streams of `headgate bench cache` counts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from headgate.bench.cache.difficulty import PARAPHRASE, cosines
from headgate.bench.cache.edits import draw_pairs
from headgate.bench.cache.intents import deal
from headgate.bench.cache.policies import (
    Candidate,
    Counts,
    Embedded,
    Labels,
    Policy,
    Query,
    Rate,
    replay,
)
from headgate.bench.cache.side_by_side import (
    MISSED,
    Cosine,
    Family,
    Floats,
    Guarded,
    Judged,
    Oracle,
    Rows,
    play,
    same_key,
    tally,
)
from headgate.bench.cache.slots import EDIT_TYPES, EditType
from headgate.bench.cache.streams import TRAFFIC, Item, Kind, stream


def by_words(texts: Sequence[str]) -> Embedded:
    """Vectors that hash words, so that texts with words in common are close."""
    distinct = list(dict.fromkeys(texts))
    vectors = np.full((len(distinct), 128), 1e-3, dtype=np.float32)
    for row, text in enumerate(distinct):
        for word in re.findall(r"\w+", text.lower()):
            vectors[row, sum(ord(letter) * (at + 7) for at, letter in enumerate(word)) % 128] += 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Embedded({text: row for row, text in enumerate(distinct)}, vectors)


def item(text: str, key: str, *, tenant: str = "t", edit: EditType | None = None) -> Item:
    return Item(tenant, text, f"units.temperature|temp={key}|unit=Kelvin", edit, 0.0)


def on_circle(**degrees: float) -> Embedded:
    angles = np.radians(list(degrees.values()))
    return Embedded(
        {text: row for row, text in enumerate(degrees)},
        np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32),
    )


class Threshold:
    """Serves the closest candidate from a cosine on that a guard, if there is one, lets through."""

    def __init__(self, similarity: float, guard: Callable[[str, str], bool] | None = None) -> None:
        self.similarity = similarity
        self.guard = guard

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        close = (candidate for candidate in candidates if candidate.similarity >= self.similarity)
        guard = self.guard
        return next((one for one in close if guard is None or not guard(one.text, query.text)), None)

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        pass


class Best:
    """Serves the candidate with the highest score, unless another that it is told apart from is nearly as good."""

    def __init__(
        self, least: float, score: Callable[[str, str], float], apart: Callable[[str, str], bool], margin: float
    ) -> None:
        self.least, self.score, self.apart, self.margin = least, score, apart, margin

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        scores = {one.entry: self.score(one.text, query.text) for one in candidates}
        best = max(candidates, key=lambda one: scores[one.entry], default=None)
        if best is None or scores[best.entry] < self.least:
            return None
        close = [one for one in candidates if one is not best and scores[one.entry] >= scores[best.entry] - self.margin]
        return None if any(self.apart(best.text, one.text) for one in close) else best

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        pass


class Recorder:
    """Serves as `inner` does and keeps what it was told."""

    def __init__(self, inner: Threshold) -> None:
        self.inner = inner
        self.offered: list[list[str]] = []
        self.labels: list[tuple[str, str, bool, bool]] = []

    def offer(self, query: Query, candidates: Sequence[Candidate]) -> Candidate | None:
        self.offered.append([candidate.text for candidate in candidates])
        return self.inner.offer(query, candidates)

    def feedback(self, query: Query, candidate: Candidate, *, right: bool, served: bool) -> None:
        self.labels.append((query.text, candidate.text, right, served))


CIRCLE = on_circle(a=0, b=10, c=20, d=90)
ITEMS = [
    item("a", "1 C"),
    item("a", "1 C"),  # exact
    item("b", "1 C"),  # a paraphrase
    item("c", "2 C", edit="number"),  # a near miss
    item("d", "3 C"),  # something else
]


def test_a_replay_counts_right_and_wrong_hits_by_edit() -> None:
    outcome = replay(ITEMS, CIRCLE, Threshold(0.9))
    assert outcome.total == Counts(requests=5, possible=2, exact=1, right=1, wrong=1)
    assert outcome.total.missed == 2
    assert outcome.by_edit["number"] == Counts(requests=1, wrong=1)
    assert outcome.wrong_by_edit == {"number": 1}
    assert outcome.total.per_hit == Rate(1, 2)
    assert (outcome + outcome).total.wrong == (outcome + outcome).wrong_by_edit["number"] == 2


def test_a_replay_keeps_tenants_apart() -> None:
    items = [item("a", "1 C"), item("a", "1 C", tenant="u"), item("b", "1 C", tenant="v")]
    recorder = Recorder(Threshold(-1.0))
    assert replay(items, CIRCLE, recorder).total == Counts(requests=3)
    assert recorder.offered == [[], [], []]


def test_a_replay_offers_the_closest_first_and_labels_what_it_says() -> None:
    recorder = Recorder(Threshold(np.inf))
    replay(ITEMS, CIRCLE, recorder, candidates=2)
    assert recorder.offered == [[], ["a"], ["b", "a"], ["c", "b"]]
    assert recorder.labels == [("b", "a", True, False), ("c", "b", False, False), ("d", "c", False, False)]

    silent = Recorder(Threshold(0.9))
    replay(ITEMS, CIRCLE, silent, labels=Labels(served=0.0, unserved=0.0))
    assert silent.labels == []

    audited = Recorder(Threshold(0.9))
    replay(ITEMS, CIRCLE, audited, labels=Labels(served=1.0, unserved=0.0, flipped=1.0))
    assert audited.labels == [("b", "a", False, True), ("c", "a", True, True)]


def test_a_confirmed_request_can_stay_out_of_the_index() -> None:
    recorder = Recorder(Threshold(np.inf))
    outcome = replay([*ITEMS, item("b", "1 C")], CIRCLE, recorder, keep_confirmed=False)
    assert recorder.offered == [[], ["a"], ["a"], ["c", "a"]]
    assert outcome.total.exact == 2


def test_the_guard_of_a_threshold_passes_on_to_the_next_candidate() -> None:
    recorder = Threshold(0.9, guard=lambda old, new: (old, new) == ("b", "c"))
    items = [item("a", "2 C"), item("b", "1 C"), item("c", "2 C")]
    far = on_circle(a=0, b=30, c=20)
    assert replay(items, far, recorder).total == Counts(requests=3, possible=1, right=1)


def test_what_is_offered_is_the_closest_of_what_is_stored() -> None:
    """However many texts of others are closer: one tenant's few lie behind 400 of another."""
    crowd = {f"c{number}": number / 10.0 for number in range(400)}
    texts = on_circle(asked=0.0, **crowd, far=60.0, farther=70.0, farthest=80.0)
    other = [item(text, "1 C", tenant="u") for text in crowd]
    mine = [item(text, "2 C") for text in ("farthest", "far", "farther")]
    recorder = Recorder(Threshold(np.inf))
    replay([*other, *mine, item("asked", "2 C")], texts, recorder, candidates=2)
    assert recorder.offered[-1] == ["far", "farther"]
    assert recorder.offered[300] == ["c299", "c298"]


@pytest.mark.parametrize("kind", ["natural", "heavy"])
def test_policies_side_by_side_do_what_each_does_alone(kind: Kind) -> None:
    """On a stream of several tenants with repeats, bursts and near misses."""
    items = stream(TRAFFIC[kind], deal(0)["test"], seed=3)[:400]
    embedded = by_words([one.text for one in items])
    texts, keys = list(embedded.rows), {one.text: one.key for one in items}

    def vetoed(stored: str, asked: str) -> bool:
        return zlib.crc32(f"{stored} {asked}".encode()) % 3 == 0

    def score(stored: str, asked: str) -> float:
        return zlib.crc32(f"{asked} {stored}".encode()) % 7 - 10.0 * vetoed(stored, asked)

    def scores(asked: int, rows: Rows, _: Floats) -> list[float]:
        return [score(texts[row], texts[asked]) for row in rows.tolist()]

    def apart(first: str, second: str) -> bool:
        return zlib.crc32(f"{first} or {second}".encode()) % 2 == 0

    margin = 2.0
    families: list[Family] = [
        Cosine([np.inf, 0.97, 0.8]),
        Guarded([0.9, 0.8], lambda stored, asked: vetoed(texts[stored], texts[asked])),
        Judged([np.inf, 6.0, 3.0, -1.0], scores, lambda a, b: apart(texts[a], texts[b]), margin),
        Oracle(same_key(items, embedded)),
    ]
    alone: list[Policy] = [
        *(Threshold(cosine) for cosine in (np.inf, 0.97, 0.8)),
        *(Threshold(cosine, vetoed) for cosine in (0.9, 0.8)),
        *(Best(least, score, apart, margin) for least in (np.inf, 6.0, 3.0, -1.0)),
        Threshold(-1.0, lambda stored, asked: keys[stored] != keys[asked]),
    ]
    columns = play(items, embedded, families, candidates=3).T
    found = [tally(items, column) for column in columns]
    for one, column, policy in zip(found, columns, alone, strict=True):
        outcome = replay(items, embedded, policy)
        total = outcome.total
        assert (one.right, one.wrong, one.exact) == (total.right, total.wrong, total.exact)
        assert (column == MISSED).sum() == total.missed
        assert one.by_edit == {edit: (own.requests, own.wrong) for edit, own in outcome.by_edit.items() if edit}
        assert one.right == sum(right for right, _ in one.by_intent.values())
        assert one.wrong == sum(wrong for _, wrong in one.by_intent.values()) == sum(outcome.wrong_by_edit.values())
        assert total.exact + total.right <= total.possible
    nothing, strict, loose, oracle = found[0], found[1], found[2], found[-1]
    assert nothing.right == nothing.wrong == oracle.wrong == 0 < nothing.exact
    assert strict.wrong < loose.wrong
    assert max(one.right for one in found[:-1]) <= oracle.right


def test_intervals_are_exact() -> None:
    low, high = Rate(0, 20).interval()
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert Rate(0, 0).interval() == (0.0, 1.0)
    assert Rate(0, 0).share == 0.0


def test_cosines_come_by_kind() -> None:
    pairs = list(draw_pairs(deal(0)["train"], 40, seed=0))
    found = cosines(pairs, by_words([text for pair in pairs for text in (pair.first, pair.second)]))
    assert sum(len(group.values) for group in found) == len(pairs)
    assert found[0].kind == PARAPHRASE
    assert {group.kind for group in found} <= {PARAPHRASE, *EDIT_TYPES}
