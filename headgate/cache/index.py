"""Which stored texts are close to a new one."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

KEY_BYTES = 130
"""What an index takes for a key beside its vector, the key itself being the store's: its places in two tables and a
list, with their room to grow."""
BUCKET_BYTES = 1_000
"""What an index takes for a bucket beside its keys."""

_CHUNK_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where the text of an entry stands in an index."""

    bucket: str
    vector: Vector
    """`[dim]`, unit norm."""
    embedder: str
    """`Embedder.name` of the model that made the vector: others' vectors do not compare with it."""
    row_bytes: int = 0
    """What the index of this process will take for it, as `VectorIndex.row_bytes` says; 0 where there is none."""


class VectorIndex(Protocol):
    """Keys and their unit vectors, apart by bucket."""

    def __contains__(self, key: object) -> bool:
        """Whether the key is held."""
        ...

    @property
    def bytes_used(self) -> int:
        """Bytes of memory that it takes, the text of its keys left out."""
        ...

    def add(self, key: str, bucket: str, vector: Vector) -> None:
        """Keep the vector `[dim]` of a key, in place of an older one."""
        ...

    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is no error."""
        ...

    def search(self, bucket: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Up to `k` keys of the bucket with their cosine similarity, the closest first."""
        ...

    def row_bytes(self, bucket: str) -> int:
        """Bytes of memory that one more key of the bucket takes, its vector included but not the text of the key."""
        ...


class FlatIndex:
    """Compares with every vector of the bucket: exact, and fast while a bucket holds some ten thousand texts.

    Memory is four bytes per dimension and key, and room to grow for at most as many again or 1024 keys of a bucket.
    """

    def __init__(self, dim: int) -> None:
        """An empty index for vectors `[dim]`, float32, unit norm."""
        if dim < 1:
            raise ValueError(f"dim is {dim}; 1 or more is accepted")
        self._dim = dim
        self._buckets: dict[str, Rows] = {}
        self._bucket_of: dict[str, str] = {}

    def __len__(self) -> int:
        """Keys held."""
        return len(self._bucket_of)

    def __contains__(self, key: object) -> bool:
        """Whether the key is held."""
        return key in self._bucket_of

    @property
    def bytes_used(self) -> int:
        """Bytes of memory that it takes, the text of its keys and the room to grow of small buckets left out."""
        return len(self) * (KEY_BYTES + 4 * self._dim) + len(self._buckets) * BUCKET_BYTES

    def add(self, key: str, bucket: str, vector: Vector) -> None:
        """Keep the vector `[dim]` of a key, in place of an older one.

        Raises:
            ValueError: the vector has another shape or is not of unit norm.
        """
        check_unit(vector, self._dim)
        self.remove(key)
        # Else every key would hold a copy of the name.
        bucket = sys.intern(bucket)
        rows = self._buckets.get(bucket)
        if rows is None:
            rows = self._buckets[bucket] = Rows(self._dim)
        rows.append(key, vector)
        self._bucket_of[key] = bucket

    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is no error."""
        bucket = self._bucket_of.pop(key, None)
        if bucket is None:
            return
        rows = self._buckets[bucket]
        rows.remove(key)
        if not rows.keys:
            del self._buckets[bucket]

    def search(self, bucket: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Up to `k` keys of the bucket with their cosine similarity, the closest first."""
        check_unit(vector, self._dim)
        rows = self._buckets.get(bucket)
        if rows is None:
            return []
        cosines = rows.cosines(vector)
        return [(rows.keys[row], min(1.0, float(cosines[row]))) for row in closest(cosines, k)]

    def row_bytes(self, bucket: str) -> int:
        """Bytes of memory that one more key of the bucket takes, its vector included but not the text of the key."""
        return KEY_BYTES + 4 * self._dim + (0 if bucket in self._buckets else BUCKET_BYTES)


class Rows:
    """Keys and vectors in chunks of 1024 rows, so that growing copies little and a search is a few matrix products."""

    def __init__(self, dim: int) -> None:
        """No rows; vectors are `[dim]`, float32."""
        self.keys: list[str] = []
        self.row_of: dict[str, int] = {}
        self._dim = dim
        self._chunks: list[Vector] = []

    def __len__(self) -> int:
        """Rows held."""
        return len(self.keys)

    def append(self, key: str, vector: Vector) -> None:
        """Put a key that is not held into the next row."""
        row = len(self.keys)
        at, offset = divmod(row, _CHUNK_ROWS)
        if at == len(self._chunks):
            # Most buckets hold one or two texts: the first chunk starts with one row.
            self._chunks.append(self._empty(1 if at == 0 else _CHUNK_ROWS))
        elif offset == len(self._chunks[at]):
            self._resize(2 * offset)
        self._chunks[at][offset] = vector
        self.row_of[key] = row
        self.keys.append(key)

    def remove(self, key: str) -> None:
        """Drop a key that is held; the last row takes its place."""
        row = self.row_of.pop(key)
        last = self.keys.pop()
        free = len(self.keys)
        if last != key:
            self._row(row)[:] = self._row(free)
            self.keys[row] = last
            self.row_of[last] = row
        if free % _CHUNK_ROWS == 0:
            del self._chunks[free // _CHUNK_ROWS :]
        elif free < len(self._chunks[0]) // 4:
            self._resize(len(self._chunks[0]) // 2)

    def cosines(self, vector: Vector) -> Vector:
        """Cosine `[rows]` of every row with a unit vector `[dim]`."""
        cosines = np.empty(len(self.keys), dtype=np.float32)
        start = 0
        for part in self.parts():
            np.matmul(part, vector, out=cosines[start : start + len(part)])
            start += len(part)
        return cosines

    def parts(self) -> Iterator[Vector]:
        """The vectors in order, as views `[rows <= 1024, dim]`."""
        left = len(self.keys)
        for chunk in self._chunks:
            yield chunk[:left]
            left -= len(chunk)

    def _row(self, row: int) -> Vector:
        at, offset = divmod(row, _CHUNK_ROWS)
        vector: Vector = self._chunks[at][offset]
        return vector

    def _empty(self, rows: int) -> Vector:
        if rows < _CHUNK_ROWS:
            return np.empty((rows, self._dim), dtype=np.float32)
        # From the system, and back to it: an allocator keeps for itself what a large batch leaves behind.
        memory = mmap.mmap(-1, 4 * rows * self._dim)
        return np.frombuffer(memory, dtype=np.float32).reshape(rows, self._dim)

    def _resize(self, rows: int) -> None:
        """Give the first chunk, then the only one, another size."""
        chunk = self._empty(rows)
        kept = min(rows, len(self.keys))
        chunk[:kept] = self._chunks[0][:kept]
        self._chunks[0] = chunk


def closest(cosines: Vector, k: int) -> list[int]:
    """Rows of the `k` largest cosines, the largest first."""
    k = min(k, len(cosines))
    if k < 1:
        return []
    rows = np.argpartition(-cosines, k - 1)[:k]
    ordered: list[int] = rows[np.argsort(-cosines[rows], kind="stable")].tolist()
    return ordered


def check_unit(vector: Vector, dim: int) -> None:
    """Refuse what is not a vector `[dim]` of unit norm.

    Raises:
        ValueError: it has another shape or norm.
    """
    if vector.shape != (dim,):
        raise ValueError(f"the vector has shape {vector.shape}; ({dim},) is accepted")
    norm = float(np.linalg.norm(vector))
    # Written so that NaN fails as well.
    if not abs(norm - 1.0) < 1e-3:
        raise ValueError(f"the vector has norm {norm}; unit norm is accepted")
