"""A graph of FAISS's: made from rows, copied to hold more, searched, never changed while it is searched.

FAISS keeps a graph in arrays that double as they grow, and an allocator keeps for itself what they leave behind: after
some batches that was as much as the graph. So a graph grows in arrays so large that they come from the system and go
back to it, and stands in memory of its own, of the size it needs, when it has grown.

Importing this module loads FAISS, which brings an OpenMP runtime of its own. With torch in the same process the two
share the one that was loaded first. How many threads it may use is a setting of the calling thread.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.cache.index import Vector

# Untyped: the stubs that come with it describe its C++ signatures, not those it has in Python.
faiss: Any = import_module("faiss")

LINK_BYTES = 150
"""Of a row in a graph: twice `_LINKS` on the ground, four bytes each, and the few above it."""
Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]

_LINKS = 16
_EF_CONSTRUCTION = 64
_EF_SEARCH = 64
_SLICE = 256
_ROW_LINKS = 2 * _LINKS + 2
"""Numbers of a row's links, on the ground and, on average, above it."""
_MAPPED = 33 << 20
"""Bytes from which on an allocator asks the system for an array by itself, and gives it back: glibc's highest limit."""


class Graph:
    """A FAISS index that is only read, the keys of its rows, and which of them are alive."""

    def __init__(self, index: Any, keys: list[str], row_of: dict[str, int], alive: Mask) -> None:
        """A FAISS index, its keys by row, the rows of those that are alive, and a mask `[rows]` of them."""
        self.index = index
        self.keys = keys
        self.row_of = row_of
        self._show(alive)

    @property
    def dead(self) -> int:
        """Rows that were removed and are passed over."""
        return len(self.keys) - len(self.row_of)

    def alive(self) -> Mask:
        """Which rows are alive, `[rows]`."""
        return np.unpackbits(self._bits, count=len(self.keys), bitorder="little").astype(np.bool_)

    def remove(self, key: str) -> bool:
        """Pass over a key from now on. False where it is not held."""
        row = self.row_of.pop(key, None)
        if row is None:
            return False
        self._bits[row >> 3] &= 255 ^ (1 << (row & 7))
        return True

    def nearest(self, vector: Vector, k: int) -> list[tuple[float, str]]:
        """Cosines and keys of up to `k` living rows close to a unit vector `[dim]`, the closest first."""
        k = min(k, len(self.row_of))
        if k < 1:
            return []
        cosines, rows = _ask(self.index, vector, k, self.dead, self._selector)
        return [(float(c), self.keys[row]) for c, row in zip(cosines, rows.tolist(), strict=True) if row >= 0]

    def take(self, index: Any, keys: list[str], row_of: dict[str, int], alive: Mask) -> None:
        """Go on with a copy of the index that holds a batch as well: its keys, the rows of those that are left in it,
        and which rows these are."""
        first = len(self.keys)
        alive = np.concatenate([self.alive(), alive])
        self.index = index
        self.keys.extend(keys)
        self.row_of.update((key, first + row) for key, row in row_of.items())
        self._show(alive)

    def _show(self, alive: Mask) -> None:
        self._bits = np.packbits(alive, bitorder="little")
        # It reads the bits where they lie: the array has to live as long as the selector.
        self._selector = faiss.IDSelectorBitmap(self._bits)


def _ask(index: Any, vector: Vector, k: int, dead: int, alive: Any) -> tuple[Vector, Positions]:
    """Cosines `[k]` and rows `[k]` of what a graph finds, the closest first; a row is -1 where it finds no more."""
    # Dead rows take places in the search's list of candidates, so it gets longer with them.
    width = _EF_SEARCH + min(dead, _EF_SEARCH)
    options = faiss.SearchParametersHNSW(efSearch=width, sel=alive if dead else None)
    cosines, rows = index.search(vector[None], k, params=options)
    return cosines[0], rows[0]


def extended(index: Any, dim: int, parts: Iterable[Vector], rows: int, go_on: Callable[[], None]) -> Any:
    """A copy of a graph that holds more vectors. FAISS computes without the interpreter.

    Args:
        index: the graph; None for an empty one.
        dim: length of the vectors.
        parts: the vectors, `[n, dim]` each.
        rows: how many they are.
        go_on: called between slices; may raise to end the work.
    """
    go_on()
    # What the copy shows is the graph's until it has arrays of its own.
    grown = _empty(dim) if index is None else faiss.clone_index(index)
    rows += grown.ntotal
    codes = faiss.downcast_index(grown.storage).codes
    _own(codes, rows * 2 * dim, 1)
    _own(grown.hnsw.neighbors, rows * _ROW_LINKS, 4)
    for part in parts:
        for start in range(0, len(part), _SLICE):
            go_on()
            grown.add(part[start : start + _SLICE])
    # Held by the index, which shows them.
    grown.referenced_objects = (_map(codes, np.uint8), _map(grown.hnsw.neighbors, np.int32))
    return grown


def vectors_of(index: Any, rows: Positions, go_on: Callable[[], None]) -> Iterator[tuple[list[int], Vector]]:
    """Rows of a graph and their vectors `[n, dim]`, slice by slice; `go_on` as for `extended`."""
    for start in range(0, len(rows), _SLICE):
        go_on()
        part = rows[start : start + _SLICE]
        yield part.tolist(), index.reconstruct_batch(part)


def recall(index: Any, alive: Mask, sample: Vector, go_on: Callable[[], None]) -> float:
    """The share of `sample` `[n, dim]` for which a search finds the closest living row."""
    best = np.full(len(sample), -np.inf, dtype=np.float32)
    for _, vectors in vectors_of(index, np.flatnonzero(alive), go_on):
        np.maximum(best, (sample @ vectors.T).max(axis=1), out=best)
    bits = np.packbits(alive, bitorder="little")
    selector = faiss.IDSelectorBitmap(bits)
    dead = len(alive) - int(np.count_nonzero(alive))
    found = np.array([_ask(index, vector, 1, dead, selector)[0][0] for vector in sample])
    # The two are summed in another order.
    return float(np.mean(found >= best - 1e-5))


def _empty(dim: int) -> Any:
    index = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_fp16, _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    return index


def _own(array: Any, room: int, width: int) -> None:
    """Have an array of FAISS's hold by itself what it shows of another's memory, and room for so many elements."""
    shown, size = array.data(), array.size()
    array.is_owned = True
    array.resize(max(room, _MAPPED // width))
    array.resize(size)
    if size:
        faiss.memcpy(array.data(), shown, size * width)


def _map(array: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """Have an array of FAISS's show memory from the system instead of its own; the memory, which has to outlive it."""
    size = array.size()
    held = np.frombuffer(mmap.mmap(-1, max(1, size) * np.dtype(dtype).itemsize), dtype, size)
    held[:] = faiss.rev_swig_ptr(array.data(), size)
    array.view_data = array.c_ptr = faiss.swig_ptr(held)
    array.view_size = array.c_size = size
    array.is_owned = False
    # Its own is let go with the empty one that it was exchanged for.
    array.owned_data.swap(type(array.owned_data)())
    return held
