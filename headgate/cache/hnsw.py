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
from typing import Any, TypeVar

import numpy as np

from headgate.cache.hnsw_graph import LINK_BYTES, Graph, Mask, Positions, extended, faiss, recall, vectors_of
from headgate.cache.index import BUCKET_BYTES, KEY_BYTES, Rows, Vector, check_unit, closest

logger = logging.getLogger(__name__)

FLAT_MAX = 10_000
"""Rows up to which a bucket is compared in full: 0.7 ms at 384 dimensions on one core, where the graph takes 0.15."""
TAIL_MAX = 1_024
"""Rows that wait beside a graph before the worker inserts them; comparing with them takes 0.1 ms."""

T = TypeVar("T")


class _StoppedError(RuntimeError):
    """The index was closed while the worker was at work."""


class _Batch:
    """Rows set aside for the worker. They stay as they are; those removed meanwhile are marked."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.alive: Mask = np.ones(len(rows), dtype=np.bool_)

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


class _Bucket:
    """The keys of one bucket, each in the graph, in one of the batches or in the tail."""

    def __init__(self, dim: int) -> None:
        self.tail = Rows(dim)
        self.batches: list[_Batch] = []
        self.graph: Graph | None = None
        self.tended = False
        self.weighed = 0
        """`vector_bytes` when it was last counted."""
        self._dim = dim

    @property
    def vector_bytes(self) -> int:
        """Of all rows, those included that were removed and still are in a batch or in the graph."""
        waiting = len(self.tail) + sum(len(batch.rows) for batch in self.batches)
        placed = 0 if self.graph is None else len(self.graph.keys)
        return 4 * self._dim * waiting + (2 * self._dim + LINK_BYTES) * placed

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
        self.failed = 0
        """Times the worker could not finish, for want of memory say. What it was to insert is still found."""
        self._vector_bytes = 0

    def __len__(self) -> int:
        """Keys held."""
        return len(self._bucket_of)

    def __contains__(self, key: object) -> bool:
        """Whether the key is held."""
        return key in self._bucket_of

    @property
    def bytes_used(self) -> int:
        """Bytes of memory that it takes, the text of its keys and what the worker has in hand left out."""
        return len(self) * KEY_BYTES + len(self._buckets) * BUCKET_BYTES + self._vector_bytes

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
        self._weigh(held)

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
            self._weigh(held)
            return
        self._weigh(held)
        if held.graph is not None and (self._too_small(held) or self._too_dead(held.graph)):
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
        return KEY_BYTES + (2 * self._dim + LINK_BYTES if grown else 4 * self._dim)

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
        return await self._on_worker(partial(recall, held.graph.index, held.graph.alive(), sample, self._go_on))

    async def close(self) -> None:
        """End the worker thread; what it was building is dropped, and what is held can still be searched."""
        self._stop.set()
        await self.settle()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    def _weigh(self, bucket: _Bucket) -> None:
        """Count what has become of a bucket's rows."""
        taken = bucket.vector_bytes
        self._vector_bytes += taken - bucket.weighed
        bucket.weighed = taken

    def _too_small(self, bucket: _Bucket) -> bool:
        return bucket.graph is not None and not bucket.batches and 2 * len(bucket) < self._flat_max

    def _too_dead(self, graph: Graph) -> bool:
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
                self._weigh(bucket)
        except _StoppedError:
            return
        except Exception as error:
            # Everything is still found; the next batch or removal tries again.
            self.failed += 1
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
            graph = bucket.graph = Graph(index, [], {}, np.ones(0, dtype=np.bool_))
        graph.take(index, batch.rows.keys, batch.rows.row_of, batch.alive)

    async def _rebuild(self, bucket: _Bucket, graph: Graph) -> None:
        alive = np.flatnonzero(graph.alive())
        rebuilt = await self._on_worker(partial(self._without_dead, graph, alive))
        if bucket.graph is graph:
            for row in alive[~graph.alive()[alive]]:
                rebuilt.remove(graph.keys[row])
            bucket.graph = rebuilt

    async def _flatten(self, bucket: _Bucket, graph: Graph) -> None:
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

    # The worker thread's.

    def _extended(self, index: Any, rows: Rows) -> Any:
        return extended(index, self._dim, rows.parts(), len(rows), self._go_on)

    def _without_dead(self, graph: Graph, alive: Positions) -> Graph:
        parts = (vectors for _, vectors in vectors_of(graph.index, alive, self._go_on))
        index = extended(None, self._dim, parts, len(alive), self._go_on)
        keys = [graph.keys[row] for row in alive.tolist()]
        row_of = dict(zip(keys, range(len(keys)), strict=True))
        return Graph(index, keys, row_of, np.ones(len(keys), dtype=np.bool_))

    def _as_rows(self, graph: Graph, alive: Positions) -> Rows:
        flat = Rows(self._dim)
        for rows, vectors in vectors_of(graph.index, alive, self._go_on):
            for row, vector in zip(rows, vectors, strict=True):
                flat.append(graph.keys[row], vector)
        return flat

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise _StoppedError


def _each(rows: Rows) -> Iterator[Vector]:
    for part in rows.parts():
        yield from part
