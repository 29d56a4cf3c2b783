"""An index for buckets of any size: compared in full while small, a graph (HNSW) beyond.

The graph is FAISS's and is never changed while it is searched. New vectors wait in a tail that is compared in full.
When it is long enough it is set aside as a batch: a worker thread copies the graph and inserts the batch into the copy,
and the event loop takes the copy in place of the graph. Removed keys are marked and passed over, until there are so
many that the worker builds the graph anew without them. Nothing a caller does waits for any of this.

Importing this module loads FAISS, which brings an OpenMP runtime of its own. With torch in the same process the two
share the one that was loaded first. How many threads it may use is a setting of the calling thread: the worker sets it
to one for itself alone, and a search asks for one vector, which FAISS answers without other threads.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.cache.index import BUCKET_BYTES, KEY_BYTES, Rows, Vector, check_unit, closest

logger = logging.getLogger(__name__)

# Untyped: the stubs that come with it describe its C++ signatures, not those it has in Python.
faiss: Any = import_module("faiss")

FLAT_MAX = 10_000
"""Rows up to which a bucket is compared in full: 0.7 ms at 384 dimensions on one core, where the graph takes 0.15."""
TAIL_MAX = 2_048
"""Rows that wait beside a graph before the worker inserts them; comparing with them takes 0.15 ms."""

_LINKS = 16
_LINK_BYTES = 150
"""Of a row in a graph: twice `_LINKS` on the ground, four bytes each, and the few above it."""
_EF_CONSTRUCTION = 64
_EF_SEARCH = 64
_SLICE = 256

T = TypeVar("T")
_Mask = NDArray[np.bool_]
_Positions = NDArray[np.int64]


class _StoppedError(RuntimeError):
    """The index was closed while the worker was at work."""


class _Batch:
    """Rows set aside for the worker. They stay as they are; those removed meanwhile are marked."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.alive: _Mask = np.ones(len(rows), dtype=np.bool_)

    def remove(self, key: str) -> bool:
        row = self.rows.row_of.pop(key, None)
        if row is None:
            return False
        self.alive[row] = False
        return True

    def nearest(self, vector: Vector, k: int) -> list[tuple[float, str]]:
        cosines = self.rows.cosines(vector)
        cosines[~self.alive] = -np.inf
        found = closest(cosines, min(k, len(self.rows.row_of)))
        return [(float(cosines[row]), self.rows.keys[row]) for row in found]


class _Graph:
    """A FAISS index that is only read, the keys of its rows, and which of them are alive."""

    def __init__(self, index: Any, keys: list[str], row_of: dict[str, int], alive: _Mask) -> None:
        self.index = index
        self.keys = keys
        self.row_of = row_of
        self._show(alive)

    @property
    def dead(self) -> int:
        return len(self.keys) - len(self.row_of)

    def alive(self) -> _Mask:
        return np.unpackbits(self._bits, count=len(self.keys), bitorder="little").astype(np.bool_)

    def remove(self, key: str) -> bool:
        row = self.row_of.pop(key, None)
        if row is None:
            return False
        self._bits[row >> 3] &= 255 ^ (1 << (row & 7))
        return True

    def nearest(self, vector: Vector, k: int) -> list[tuple[float, str]]:
        k = min(k, len(self.row_of))
        if k < 1:
            return []
        cosines, rows = _ask(self.index, vector, k, self.dead, self._selector)
        return [(float(c), self.keys[row]) for c, row in zip(cosines, rows.tolist(), strict=True) if row >= 0]

    def take(self, index: Any, batch: _Batch) -> None:
        """Go on with a copy of the index that holds the batch as well."""
        first = len(self.keys)
        alive = np.concatenate([self.alive(), batch.alive])
        self.index = index
        self.keys.extend(batch.rows.keys)
        self.row_of.update((key, first + row) for key, row in batch.rows.row_of.items())
        self._show(alive)

    def _show(self, alive: _Mask) -> None:
        self._bits = np.packbits(alive, bitorder="little")
        # It reads the bits where they lie: the array has to live as long as the selector.
        self._selector = faiss.IDSelectorBitmap(self._bits)


def _ask(index: Any, vector: Vector, k: int, dead: int, alive: Any) -> tuple[Vector, _Positions]:
    """Cosines `[k]` and rows `[k]` of what a graph finds, the closest first; a row is -1 where it finds no more."""
    # Dead rows take places in the search's list of candidates, so it gets longer with them.
    width = _EF_SEARCH + min(dead, _EF_SEARCH)
    options = faiss.SearchParametersHNSW(efSearch=width, sel=alive if dead else None)
    cosines, rows = index.search(vector[None], k, params=options)
    return cosines[0], rows[0]


class _Bucket:
    """The keys of one bucket, each in the graph, in one of the batches or in the tail."""

    def __init__(self, dim: int) -> None:
        self.tail = Rows(dim)
        self.batches: list[_Batch] = []
        self.graph: _Graph | None = None
        self.tended = False

    def __len__(self) -> int:
        placed = 0 if self.graph is None else len(self.graph.row_of)
        return placed + sum(len(batch.rows.row_of) for batch in self.batches) + len(self.tail)

    def remove(self, key: str) -> None:
        if key in self.tail.row_of:
            self.tail.remove(key)
        elif self.graph is None or not self.graph.remove(key):
            for batch in self.batches:
                if batch.remove(key):
                    return

    def nearest(self, vector: Vector, k: int) -> list[tuple[float, str]]:
        cosines = self.tail.cosines(vector)
        found = [(float(cosines[row]), self.tail.keys[row]) for row in closest(cosines, k)]
        if self.batches or self.graph is not None:
            for batch in self.batches:
                found += batch.nearest(vector, k)
            if self.graph is not None:
                found += self.graph.nearest(vector, k)
            found.sort(key=lambda pair: -pair[0])
        return found[:k]


class HnswIndex:
    """Implements `VectorIndex` for buckets of up to some hundred thousand texts. All calls come from one event loop.

    In a graph a vector takes two bytes per dimension and about 140 for its links; those that wait take four per
    dimension. Cosines from a graph are off by less than 0.001, for the stored vector is rounded. A graph may miss the
    closest key; `recall` measures how often.
    """

    def __init__(
        self, dim: int, *, flat_max: int = FLAT_MAX, tail_max: int = TAIL_MAX, dead_share: float = 0.25
    ) -> None:
        """An empty index for vectors `[dim]`, float32, unit norm.

        Args:
            dim: length of the vectors.
            flat_max: rows beyond which a bucket becomes a graph. Under half as many it is flat again.
            tail_max: rows that wait beside a graph before they are inserted.
            dead_share: share of removed rows beyond which a graph is built anew, between 0 and 1.
        """
        for name, value in (("dim", dim), ("flat_max", flat_max), ("tail_max", tail_max)):
            if value < 1:
                raise ValueError(f"{name} is {value}; 1 or more is accepted")
        if not 0.0 < dead_share < 1.0:
            raise ValueError(f"dead_share is {dead_share}; more than 0 and less than 1 is accepted")
        self._dim = dim
        self._flat_max = flat_max
        self._tail_max = tail_max
        self._dead_share = dead_share
        self._buckets: dict[str, _Bucket] = {}
        self._bucket_of: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="index", initializer=faiss.omp_set_num_threads, initargs=(1,)
        )
        self._failed = 0

    def __len__(self) -> int:
        """Keys held."""
        return len(self._bucket_of)

    def __contains__(self, key: object) -> bool:
        """Whether the key is held."""
        return key in self._bucket_of

    @property
    def waiting(self) -> int:
        """Rows set aside for the worker, removed ones included: they are found, but by comparing with each."""
        return sum(len(batch.rows) for bucket in self._buckets.values() for batch in bucket.batches)

    @property
    def graphs(self) -> int:
        """Buckets that are graphs now."""
        return sum(bucket.graph is not None for bucket in self._buckets.values())

    @property
    def dead(self) -> int:
        """Removed rows that graphs still hold and pass over."""
        return sum(bucket.graph.dead for bucket in self._buckets.values() if bucket.graph is not None)

    @property
    def failed(self) -> int:
        """Times the worker could not finish, for want of memory say. What it was to insert is still found."""
        return self._failed

    def add(self, key: str, bucket: str, vector: Vector) -> None:
        """Keep the vector `[dim]` of a key, in place of an older one.

        Raises:
            ValueError: the vector has another shape or is not of unit norm.
        """
        check_unit(vector, self._dim)
        self.remove(key)
        # Else every key would hold a copy of the name.
        bucket = sys.intern(bucket)
        held = self._buckets.get(bucket)
        if held is None:
            held = self._buckets[bucket] = _Bucket(self._dim)
        held.tail.append(key, vector)
        self._bucket_of[key] = bucket
        grown = held.graph is not None or held.batches
        if len(held.tail) > (self._tail_max if grown else self._flat_max):
            held.batches.append(_Batch(held.tail))
            held.tail = Rows(self._dim)
            self._tend(held)

    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is no error."""
        bucket = self._bucket_of.pop(key, None)
        if bucket is None:
            return
        held = self._buckets[bucket]
        held.remove(key)
        if not len(held):
            del self._buckets[bucket]
            # What the worker has in hand for it comes to nothing.
            held.graph = None
            held.batches.clear()
        elif held.graph is not None and (self._too_small(held) or self._too_dead(held.graph)):
            self._tend(held)

    def search(self, bucket: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Up to `k` keys of the bucket with their cosine similarity, the closest first."""
        check_unit(vector, self._dim)
        held = self._buckets.get(bucket)
        return [] if held is None else [(key, min(1.0, cosine)) for cosine, key in held.nearest(vector, k)]

    def row_bytes(self, bucket: str) -> int:
        """Bytes of memory that one more key of the bucket takes, its vector included but not the text of the key.

        A key that waits to be inserted into a graph is counted as if it had been.
        """
        held = self._buckets.get(bucket)
        if held is None:
            return KEY_BYTES + 4 * self._dim + BUCKET_BYTES
        grown = held.graph is not None or held.batches
        return KEY_BYTES + (2 * self._dim + _LINK_BYTES if grown else 4 * self._dim)

    async def settle(self) -> None:
        """Wait until the worker has nothing left to do."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def recall(self, bucket: str, sample: Vector) -> float:
        """How often a search finds the closest key that the bucket's graph holds, measured on the worker thread.

        Args:
            bucket: whose graph; a bucket that is flat finds everything.
            sample: vectors to search for, `[n, dim]`, float32, unit norm; texts lately asked for tell the most.

        Returns:
            The share, 0 to 1, of the sample for which no key is closer than the one found.

        Raises:
            RuntimeError: the index is closed.
        """
        held = self._buckets.get(bucket)
        if held is None or held.graph is None or not len(sample) or not held.graph.row_of:
            return 1.0
        return await self._on_worker(partial(self._recall, held.graph.index, held.graph.alive(), sample))

    async def close(self) -> None:
        """End the worker thread; what it was building is dropped, and what is held can still be searched."""
        self._stop.set()
        await self.settle()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    def _too_small(self, bucket: _Bucket) -> bool:
        return bucket.graph is not None and not bucket.batches and 2 * len(bucket) < self._flat_max

    def _too_dead(self, graph: _Graph) -> bool:
        return graph.dead > self._dead_share * len(graph.keys)

    def _tend(self, bucket: _Bucket) -> None:
        if not bucket.tended and not self._stop.is_set():
            bucket.tended = True
            task = asyncio.create_task(self._work(bucket), name="index")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, bucket: _Bucket) -> None:
        """Do what the bucket needs, one thing after the other."""
        try:
            while not self._stop.is_set():
                if bucket.batches:
                    await self._insert(bucket, bucket.batches[0])
                elif bucket.graph is not None and self._too_small(bucket):
                    await self._flatten(bucket, bucket.graph)
                elif bucket.graph is not None and self._too_dead(bucket.graph):
                    await self._rebuild(bucket, bucket.graph)
                else:
                    return
        except _StoppedError:
            return
        except Exception as error:
            # Everything is still found; the next batch or removal tries again.
            self._failed += 1
            logger.warning("a vector index of %d keys stays as it is: %s", len(bucket), error)
        finally:
            bucket.tended = False

    async def _insert(self, bucket: _Bucket, batch: _Batch) -> None:
        graph = bucket.graph
        old = None if graph is None else graph.index
        index = await self._on_worker(partial(self._extended, old, batch.rows))
        if not bucket.batches:
            return
        del bucket.batches[0]
        if graph is None:
            graph = bucket.graph = _Graph(index, [], {}, np.ones(0, dtype=np.bool_))
        graph.take(index, batch)

    async def _rebuild(self, bucket: _Bucket, graph: _Graph) -> None:
        alive = np.flatnonzero(graph.alive())
        rebuilt = await self._on_worker(partial(self._without_dead, graph, alive))
        if bucket.graph is graph:
            for row in alive[~graph.alive()[alive]]:
                rebuilt.remove(graph.keys[row])
            bucket.graph = rebuilt

    async def _flatten(self, bucket: _Bucket, graph: _Graph) -> None:
        alive = np.flatnonzero(graph.alive())
        rows = await self._on_worker(partial(self._as_rows, graph, alive))
        # A batch set aside meanwhile says that the bucket has grown again.
        if bucket.graph is not graph or bucket.batches:
            return
        for row in alive[~graph.alive()[alive]]:
            rows.remove(graph.keys[row])
        for key, vector in zip(bucket.tail.keys, _each(bucket.tail), strict=True):
            rows.append(key, vector)
        bucket.tail = rows
        bucket.graph = None

    async def _on_worker(self, work: Callable[[], T]) -> T:
        done: list[T] = []
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: done.append(work()))
        # Not as the result of the future, which refers to itself and would keep a graph until the next collection.
        return done.pop()

    # The worker thread's. FAISS computes without the interpreter, so that the loop runs between slices and during them.

    def _extended(self, index: Any, rows: Rows) -> Any:
        self._go_on()
        index = self._empty() if index is None else faiss.clone_index(index)
        for part in rows.parts():
            self._insert_slices(index, part)
        return index

    def _without_dead(self, graph: _Graph, alive: _Positions) -> _Graph:
        index = self._empty()
        keys: list[str] = []
        row_of: dict[str, int] = {}
        for rows, vectors in self._slices(graph.index, alive):
            self._insert_slices(index, vectors)
            part = [graph.keys[row] for row in rows]
            row_of.update(zip(part, range(len(keys), len(keys) + len(part)), strict=True))
            keys += part
        return _Graph(index, keys, row_of, np.ones(len(keys), dtype=np.bool_))

    def _as_rows(self, graph: _Graph, alive: _Positions) -> Rows:
        flat = Rows(self._dim)
        for rows, vectors in self._slices(graph.index, alive):
            for row, vector in zip(rows, vectors, strict=True):
                flat.append(graph.keys[row], vector)
        return flat

    def _recall(self, index: Any, alive: _Mask, sample: Vector) -> float:
        best = np.full(len(sample), -np.inf, dtype=np.float32)
        for _, vectors in self._slices(index, np.flatnonzero(alive)):
            np.maximum(best, (sample @ vectors.T).max(axis=1), out=best)
        bits = np.packbits(alive, bitorder="little")
        selector = faiss.IDSelectorBitmap(bits)
        dead = len(alive) - int(np.count_nonzero(alive))
        found = np.array([_ask(index, vector, 1, dead, selector)[0][0] for vector in sample])
        # The two are summed in another order.
        return float(np.mean(found >= best - 1e-5))

    def _empty(self) -> Any:
        index = faiss.IndexHNSWSQ(self._dim, faiss.ScalarQuantizer.QT_fp16, _LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _EF_CONSTRUCTION
        return index

    def _insert_slices(self, index: Any, vectors: Vector) -> None:
        for start in range(0, len(vectors), _SLICE):
            self._go_on()
            index.add(vectors[start : start + _SLICE])

    def _slices(self, index: Any, rows: _Positions) -> Iterator[tuple[list[int], Vector]]:
        for start in range(0, len(rows), _SLICE):
            self._go_on()
            part = rows[start : start + _SLICE]
            yield part.tolist(), index.reconstruct_batch(part)

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise _StoppedError


def _each(rows: Rows) -> Iterator[Vector]:
    for part in rows.parts():
        yield from part
