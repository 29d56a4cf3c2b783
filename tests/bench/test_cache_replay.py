"""How streams of `headgate bench cache` are played and counted."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from headgate.bench.cache import vcache
from headgate.bench.cache.intents import deal
from headgate.bench.cache.rules import by_vcache
from headgate.bench.cache.side_by_side import (
    EXACT,
    MISSED,
    RIGHT,
    WRONG,
    Cosine,
    Embedded,
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
from headgate.bench.cache.slots import EditType
from headgate.bench.cache.streams import TRAFFIC, Item, Kind, stream
from headgate.bench.cache.trial import Rate

Close = Sequence[tuple[str, float]]
"""Stored texts and their cosines, the closest first."""


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


def threshold(least: float, guard: Callable[[str, str], bool] = lambda *_: False) -> Callable[[str, Close], str | None]:
    """Serves the closest text from a cosine on that a guard lets through."""
    return lambda asked, close: next(
        (text for text, cosine in close if cosine >= least and not guard(text, asked)), None
    )


def best(
    least: float, score: Callable[[str, str], float], apart: Callable[[str, str], bool], margin: float
) -> Callable[[str, Close], str | None]:
    """Serves the text with the highest score, unless another that it is told apart from is nearly as good."""

    def choose(asked: str, close: Close) -> str | None:
        scores = {text: score(text, asked) for text, _ in close}
        first = max(scores, key=scores.__getitem__, default=None)
        if first is None or scores[first] < least:
            return None
        near = [text for text in scores if text != first and scores[text] >= scores[first] - margin]
        return None if any(apart(first, text) for text in near) else first

    return choose


def played_alone(
    items: Sequence[Item], embedded: Embedded, choose: Callable[[str, Close], str | None], candidates: int = 3
) -> list[int]:
    """One policy by itself, request by request."""
    keys = {one.text: one.key for one in items}
    stores: dict[str, list[str]] = {}
    made = []
    for one in items:
        stored = stores.setdefault(one.tenant, [])
        if one.text in stored:
            made.append(EXACT)
            continue
        cosines = embedded.cosines[embedded.rows[one.text]]
        close = sorted(stored, key=lambda text: (-cosines[embedded.rows[text]], embedded.rows[text]))[:candidates]
        served = choose(one.text, [(text, float(cosines[embedded.rows[text]])) for text in close])
        if served is None:
            stored.append(one.text)
            made.append(MISSED)
        else:
            made.append(RIGHT if keys[served] == one.key else WRONG)
    return made


CIRCLE = on_circle(a=0, b=10, c=20, d=90)
ITEMS = [
    item("a", "1 C"),
    item("a", "1 C"),  # exact
    item("b", "1 C"),  # a paraphrase
    item("c", "2 C", edit="number"),  # a near miss
    item("d", "3 C"),  # something else
]


def test_right_and_wrong_hits_are_counted_by_edit_and_intent() -> None:
    column = play(ITEMS, CIRCLE, [Cosine([0.9])], 3)[:, 0]
    assert column.tolist() == [MISSED, EXACT, RIGHT, WRONG, MISSED]
    found = tally(ITEMS, column)
    assert (found.right, found.wrong, found.exact) == (1, 1, 1)
    assert found.by_edit == {"number": (1, 1)}
    assert found.by_intent == {"units.temperature": (1, 1)}


def test_tenants_are_served_from_their_own() -> None:
    items = [item("a", "1 C"), item("a", "1 C", tenant="u"), item("b", "1 C", tenant="v")]
    assert play(items, CIRCLE, [Cosine([-1.0])], 3)[:, 0].tolist() == [MISSED] * 3
    assert by_vcache(items, CIRCLE, 0.02, 0).tolist() == [MISSED] * 3


def test_what_is_offered_is_the_closest_of_what_is_stored() -> None:
    """However many texts of others are closer: one tenant's few lie behind 400 of another."""
    crowd = {f"c{number}": number / 10.0 for number in range(400)}
    texts = on_circle(asked=0.0, **crowd, far=60.0, farther=70.0, farthest=80.0)
    other = [item(text, "1 C", tenant="u") for text in crowd]
    mine = [item("farthest", "2 C"), item("far", "3 C"), item("farther", "4 C")]
    for candidates, last in ((3, RIGHT), (2, MISSED)):
        items = [*other, *mine, item("asked", "2 C")]
        family = Guarded([-1.0], lambda stored, asked: stored != 403 or asked != 0)
        assert play(items, texts, [family], candidates)[-1].tolist() == [last]


def test_vcache_observes_the_nearest_entry_of_what_it_explores(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[tuple[float, bool], ...]] = []

    def fit_curve(observed: Sequence[tuple[float, bool]]) -> None:
        told.append(tuple((round(similarity, 2), right) for similarity, right in observed))

    monkeypatch.setattr(vcache, "fit_curve", fit_curve)
    # It explores all: "b" is right for "a" and makes no entry, "c" is wrong for it and does, "d" is nearest to "c".
    assert by_vcache([*ITEMS, item("b", "1 C")], CIRCLE, 0.02, 0).tolist() == [MISSED, EXACT, *[MISSED] * 3, EXACT]
    assert told == [((0.98, True),)]


def test_vcache_serves_what_it_has_seen_to_be_right() -> None:
    near = on_circle(**{f"n{number}": number / 50 for number in range(120)})
    right = by_vcache([item(text, "1 C") for text in near.rows], near, 0.05, 0)
    assert set(right[:5]) == {MISSED}
    assert (right == RIGHT).sum() > 10
    assert not (right == WRONG).any()


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
    alone = [
        *(threshold(cosine) for cosine in (np.inf, 0.97, 0.8)),
        *(threshold(cosine, vetoed) for cosine in (0.9, 0.8)),
        *(best(least, score, apart, margin) for least in (np.inf, 6.0, 3.0, -1.0)),
        threshold(-1.0, lambda stored, asked: keys[stored] != keys[asked]),
    ]
    columns = play(items, embedded, families, candidates=3).T
    for column, policy in zip(columns, alone, strict=True):
        assert column.tolist() == played_alone(items, embedded, policy)
    found = [tally(items, column) for column in columns]
    for one in found:
        assert one.right == sum(right for right, _ in one.by_intent.values())
        assert one.wrong == sum(wrong for _, wrong in one.by_intent.values())
    nothing, strict, loose, oracle = found[0], found[1], found[2], found[-1]
    assert nothing.right == nothing.wrong == oracle.wrong == 0 < nothing.exact
    assert strict.wrong < loose.wrong
    assert max(one.right for one in found[:-1]) <= oracle.right


def test_intervals_are_exact() -> None:
    low, high = Rate(0, 20).interval
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(0, 0).share == 0.0
