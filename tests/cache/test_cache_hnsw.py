from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cache.hnsw import HnswIndex
from headgate.cache.index import BUCKET_BYTES, KEY_BYTES, Vector, VectorIndex

DIM = 16
Open = Callable[..., HnswIndex]


def units(count: int, seed: int = 0, dim: int = DIM) -> Vector:
    vectors = np.random.default_rng(seed).standard_normal((count, dim), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
async def open_index() -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_index(dim: int = DIM, **options: Any) -> HnswIndex:
            index = HnswIndex(dim, **{"flat_max": 100, "tail_max": 20, **options})
            stack.push_async_callback(index.close)
            return index

        yield open_index


def fill(index: VectorIndex, vectors: Vector, bucket: str = "b", first: int = 0) -> None:
    for row, vector in enumerate(vectors, first):
        index.add(str(row), bucket, vector)


def share_found(index: VectorIndex, vectors: dict[str, Vector], asked: Vector, bucket: str = "b") -> float:
    """How often the first result is the closest of all."""
    every = np.stack(list(vectors.values()))
    hits = 0
    for vector in asked:
        (key, cosine), *_ = index.search(bucket, vector, 3)
        assert cosine == pytest.approx(float(vectors[key] @ vector), abs=1e-3), "the cosine is the key's own"
        hits += float(vectors[key] @ vector) >= (every @ vector).max() - 1e-3
    return hits / len(asked)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60), st.sampled_from("xy")),
        st.tuples(st.just("add"), st.integers(0, 60), st.just("x")),
        st.tuples(st.just("remove"), st.integers(0, 60), st.just("")),
        st.tuples(st.just("yield"), st.just(0), st.just("")),
        st.tuples(st.just("settle"), st.just(0), st.just("")),
    ),
    max_size=150,
)


@settings(max_examples=60)
@given(ACTIONS, st.integers(1, 5))
def test_whatever_the_worker_is_doing_every_key_is_found_and_no_other(
    actions: list[tuple[str, int, str]], k: int
) -> None:
    """So small a graph misses nothing, so the model is exact."""

    async def play() -> None:
        index = HnswIndex(DIM, flat_max=8, tail_max=3, dead_share=0.3)
        held: dict[str, tuple[str, Vector]] = {}
        vectors = units(400)
        try:
            for turn, (action, number, bucket) in enumerate(actions):
                key = str(number)
                if action == "add":
                    index.add(key, bucket, vectors[turn])
                    held[key] = (bucket, vectors[turn])
                elif action == "remove":
                    index.remove(key)
                    held.pop(key, None)
                elif action == "yield":
                    await asyncio.sleep(0)
                else:
                    await index.settle()
                assert len(index) == len(held)
                assert (key in index) == (key in held)
                asked = vectors[399 - turn]
                for name in "xyz":
                    cosines = {key: float(v @ asked) for key, (b, v) in held.items() if b == name}
                    found = index.search(name, asked, k)
                    assert [c for _, c in found] == pytest.approx(sorted(cosines.values(), reverse=True)[:k], abs=2e-3)
                    assert all(cosines[key] == pytest.approx(c, abs=2e-3) for key, c in found)
                    assert len({key for key, _ in found}) == len(found)
            assert index.failed == 0
        finally:
            await index.close()

    asyncio.run(play())


async def test_a_bucket_becomes_a_graph_when_it_is_large_and_flat_again_when_it_shrinks(open_index: Open) -> None:
    index = open_index()
    vectors = units(400)
    fill(index, vectors[:100])
    await index.settle()
    assert index.graphs == 0
    fill(index, vectors)
    index.add("alone", "other", vectors[0])
    assert index.waiting > 0
    await index.settle()
    assert (index.graphs, index.waiting, len(index)) == (1, 0, 401)
    assert share_found(index, {str(r): v for r, v in enumerate(vectors)}, units(100, seed=1)) >= 0.99
    for row in range(360):
        index.remove(str(row))
    await index.settle()
    assert (index.graphs, len(index)) == (0, 41)
    left = {str(r): vectors[r] for r in range(360, 400)}
    assert share_found(index, left, units(50, seed=2)) == 1.0
    fill(index, vectors)
    await index.settle()
    assert index.graphs == 1
    assert share_found(index, {str(r): v for r, v in enumerate(vectors)}, vectors) == 1.0


async def test_removed_keys_are_never_found_and_the_living_among_them_are(open_index: Open) -> None:
    index = open_index(dead_share=0.9)
    centre = units(1)[0]
    near = centre + 0.2 * units(150, seed=3)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    vectors = np.concatenate([near, units(500, seed=4)])
    fill(index, vectors)
    await index.settle()
    for row in range(0, 150):
        if row % 10:
            index.remove(str(row))
    alive = {str(r): v for r, v in enumerate(vectors) if r >= 150 or r % 10 == 0}
    found = [key for key, _ in index.search("b", centre, 15)]
    assert set(found) == {str(r) for r in range(0, 150, 10)}
    assert share_found(index, alive, vectors[:150]) >= 0.99


async def test_a_key_takes_half_the_vector_once_its_bucket_is_a_graph(open_index: Open) -> None:
    index = open_index(dim=384, flat_max=8)
    vectors = units(20, dim=384)
    assert index.row_bytes("b") == KEY_BYTES + BUCKET_BYTES + 4 * 384
    fill(index, vectors[:8])
    assert index.row_bytes("b") == KEY_BYTES + 4 * 384
    fill(index, vectors)
    waiting = index.row_bytes("b")
    await index.settle()
    assert index.graphs == 1
    links = index.row_bytes("b") - KEY_BYTES - 2 * 384
    assert waiting == index.row_bytes("b")
    assert 4 * 2 * 16 < links < 1.25 * 4 * 2 * 16, "sixteen links, twice as many on the ground, and a few above it"


async def test_bytes_are_counted_where_rows_stand_and_as_long_as_they_do(open_index: Open) -> None:
    index = open_index(dim=384, flat_max=100, tail_max=20)
    vectors = units(150, dim=384)
    assert index.bytes_used == 0
    fill(index, vectors[:100])
    flat = index.row_bytes("b")
    assert index.bytes_used == BUCKET_BYTES + 100 * flat
    fill(index, vectors[100:101], first=100)
    await index.settle()
    placed = index.row_bytes("b")
    assert index.graphs == 1
    assert index.bytes_used == BUCKET_BYTES + 101 * placed
    fill(index, vectors[101:111], first=101)
    assert index.bytes_used == BUCKET_BYTES + 101 * placed + 10 * flat, "they wait beside the graph"
    index.remove("0")
    assert index.bytes_used == BUCKET_BYTES + 101 * placed + 10 * flat - KEY_BYTES, "its row is still in the graph"
    for row in range(1, 40):
        index.remove(str(row))
    await index.settle()
    assert index.dead < 40
    assert index.bytes_used == BUCKET_BYTES + (61 + index.dead) * placed - index.dead * KEY_BYTES + 10 * flat
    for row in range(40, 111):
        index.remove(str(row))
    await index.settle()
    assert (len(index), index.bytes_used) == (0, 0)


async def test_a_key_that_is_added_again_has_its_new_vector_and_bucket(open_index: Open) -> None:
    index = open_index()
    vectors = units(300)
    fill(index, vectors)
    await index.settle()
    new, *others = units(300, seed=9)
    index.add("7", "b", new)
    index.add("8", "elsewhere", new)
    for _ in range(2):
        assert index.search("b", new, 1) == [("7", pytest.approx(1.0, abs=1e-3))]
        assert index.search("elsewhere", new, 2) == [("8", pytest.approx(1.0, abs=1e-3))]
        assert index.search("b", vectors[7], 1)[0][0] != "7"
        assert index.search("b", vectors[8], 1)[0][0] != "8"
        for row, vector in enumerate(others):
            if row not in (7, 8):
                index.add(str(row), "b", vector)
        await index.settle()
    assert len(index) == 300


async def test_many_replacements_do_not_pile_up(open_index: Open) -> None:
    index = open_index(dead_share=0.5)
    for seed in range(5):
        fill(index, units(200, seed=seed))
        await index.settle()
        assert index.dead <= 200, "half of what a graph of 200 living rows may hold"
    assert len(index) == 200
    assert share_found(index, {str(r): v for r, v in enumerate(units(200, seed=4))}, units(50, seed=77)) >= 0.98


@pytest.mark.parametrize("left", [160, 30])
async def test_what_goes_and_comes_while_a_graph_is_made_anew_or_flat_is_not_lost(open_index: Open, left: int) -> None:
    """With 160 of 250 left too many rows are dead, with 30 the bucket is small enough to be flat."""
    index = open_index()
    vectors = units(250)
    fill(index, vectors)
    await index.settle()
    for row in range(250 - left):
        index.remove(str(row))
    await asyncio.sleep(0)  # the worker has its task now, and what it knows of the rows is from before the next lines
    assert index.dead > 0
    for row in range(250 - left, 260 - left):
        index.remove(str(row))
    index.add("249", "b", vectors[0])
    index.add("new", "b", vectors[1])
    held = {str(row): vectors[row] for row in range(260 - left, 249)} | {"249": vectors[0], "new": vectors[1]}
    for _ in range(2):
        assert len(index) == len(held)
        assert {key for key, _ in index.search("b", vectors[5], 250)} == set(held)
        assert share_found(index, held, vectors) == 1.0
        await index.settle()
    assert index.dead <= 10
    assert index.graphs == (left == 160)


async def test_a_bucket_emptied_while_the_worker_is_at_it_is_gone(open_index: Open) -> None:
    index = open_index()
    fill(index, units(300))
    await asyncio.sleep(0)
    for row in range(300):
        index.remove(str(row))
    assert (len(index), index.search("b", units(1)[0], 3)) == (0, [])
    fill(index, units(150, seed=6))
    await index.settle()
    assert (len(index), index.graphs, index.waiting) == (150, 1, 0)
    assert share_found(index, {str(r): v for r, v in enumerate(units(150, seed=6))}, units(50, seed=7)) >= 0.98


async def test_recall_is_one_where_it_is_exact_and_tells_when_a_graph_is_not(
    open_index: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(64, tail_max=1000)
    vectors = units(3000, dim=64)
    fill(index, vectors[:50], "flat")
    fill(index, vectors, "b")
    await index.settle()
    sample = units(100, seed=8, dim=64)
    assert await index.recall("flat", sample) == 1.0
    assert await index.recall("nobody", sample) == 1.0
    measured = await index.recall("b", sample)
    held = {str(r): v for r, v in enumerate(vectors)}
    assert measured == pytest.approx(share_found(index, held, sample), abs=0.011)
    for row in range(0, 3000, 5):
        index.remove(str(row))
    assert await index.recall("b", sample) == pytest.approx(measured, abs=0.05)
    monkeypatch.setattr("headgate.cache.hnsw_graph._EF_SEARCH", 1)
    assert await index.recall("b", sample) < 0.9 * measured


async def test_what_the_worker_cannot_insert_is_still_found_and_tried_again(
    open_index: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    index = open_index()
    vectors = units(300)

    def no_memory(_index: Any) -> Any:
        raise MemoryError("std::bad_alloc")

    with monkeypatch.context() as patch:
        fill(index, vectors[:150])
        await index.settle()
        patch.setattr(faiss, "clone_index", no_memory)
        fill(index, vectors)
        await index.settle()
        assert index.failed > 0
        assert "bad_alloc" in caplog.text
        held = {str(r): v for r, v in enumerate(vectors)}
        assert share_found(index, held, vectors) == 1.0
        assert index.waiting > 0
    failed = index.failed
    fill(index, units(30, seed=3), "b")
    await index.settle()
    assert (index.waiting, index.failed) == (0, failed)


async def test_closing_ends_the_work_and_leaves_what_is_held(open_index: Open) -> None:
    index = open_index()
    vectors = units(1000)
    fill(index, vectors)
    await asyncio.sleep(0)
    await index.close()
    held = {str(r): v for r, v in enumerate(vectors)}
    assert share_found(index, held, vectors[:50]) == 1.0
    fill(index, units(300, seed=1))
    assert len(index) == 1000


async def test_torch_keeps_its_threads_beside_faiss(open_index: Open) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        index = open_index()
        fill(index, units(300))
        await index.settle()
        a = torch.arange(60_000, dtype=torch.float32)
        assert float((a * 2).sum()) == pytest.approx(60_000 * 59_999, rel=1e-3)
        assert index.search("b", units(300)[7], 1)[0][0] == "7"
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dim": 0}, "dim is 0; 1 or more"),
        ({"flat_max": 0}, "flat_max is 0; 1 or more"),
        ({"tail_max": -1}, "tail_max is -1; 1 or more"),
        ({"dead_share": 1.0}, "dead_share is 1.0; more than 0 and less than 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HnswIndex(**{"dim": DIM, **options})


@pytest.mark.parametrize("vector", [np.ones(3, np.float32), np.full(DIM, np.nan, np.float32), 2 * units(1)[0]])
async def test_what_is_no_unit_vector_is_refused(open_index: Open, vector: Vector) -> None:
    index = open_index()
    with pytest.raises(ValueError, match="the vector has"):
        index.add("a", "x", vector)
    with pytest.raises(ValueError, match="the vector has"):
        index.search("x", vector, 1)
    assert len(index) == 0
