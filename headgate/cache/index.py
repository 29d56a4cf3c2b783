"""Which stored texts are close to a new one."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


class VectorIndex(Protocol):
    """Keys and their unit vectors, apart by bucket."""

    def add(self, key: str, bucket: str, vector: Vector) -> None:
        """Keep the vector `[dim]` of a key, in place of an older one."""
        ...

    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is no error."""
        ...

    def search(self, bucket: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Up to `k` keys of the bucket with their cosine similarity, the closest first."""
        ...


class FlatIndex:
    """Compares with every vector of the bucket: exact, and fast while a bucket holds some ten thousand texts.

    Memory is four bytes per dimension and key, at most doubled by the room kept for growth.
    """

    def __init__(self, dim: int) -> None:
        """An empty index for vectors `[dim]`, float32, unit norm."""
        if dim < 1:
            raise ValueError(f"dim is {dim}; 1 or more is accepted")
        self._dim = dim
        self._buckets: dict[str, _Rows] = {}
        self._bucket_of: dict[str, str] = {}

    def __len__(self) -> int:
        """Keys held."""
        return len(self._bucket_of)

    def add(self, key: str, bucket: str, vector: Vector) -> None:
        """Keep the vector `[dim]` of a key, in place of an older one.

        Raises:
            ValueError: the vector has another shape or is not of unit norm.
        """
        self._check(vector)
        self.remove(key)
        rows = self._buckets.get(bucket)
        if rows is None:
            rows = self._buckets[bucket] = _Rows(self._dim)
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
        self._check(vector)
        rows = self._buckets.get(bucket)
        return [] if rows is None else rows.nearest(vector, k)

    def _check(self, vector: Vector) -> None:
        if vector.shape != (self._dim,):
            raise ValueError(f"the vector has shape {vector.shape}; ({self._dim},) is accepted")
        norm = float(np.linalg.norm(vector))
        # Written so that NaN fails as well.
        if not abs(norm - 1.0) < 1e-3:
            raise ValueError(f"the vector has norm {norm}; unit norm is accepted")


class _Rows:
    """The vectors of one bucket, contiguous, so that a search is one matrix product."""

    def __init__(self, dim: int) -> None:
        self.keys: list[str] = []
        self._row_of: dict[str, int] = {}
        self._vectors = np.empty((8, dim), dtype=np.float32)

    def append(self, key: str, vector: Vector) -> None:
        row = len(self.keys)
        if row == len(self._vectors):
            self._resize(2 * row)
        self._vectors[row] = vector
        self._row_of[key] = row
        self.keys.append(key)

    def remove(self, key: str) -> None:
        row = self._row_of.pop(key)
        last = self.keys.pop()
        if last != key:
            # The last row takes the free place, so the rows stay contiguous.
            self._vectors[row] = self._vectors[len(self.keys)]
            self.keys[row] = last
            self._row_of[last] = row
        if len(self._vectors) > 8 and len(self.keys) < len(self._vectors) // 4:
            self._resize(len(self._vectors) // 2)

    def nearest(self, vector: Vector, k: int) -> list[tuple[str, float]]:
        cosines = self._vectors[: len(self.keys)] @ vector
        k = min(k, len(cosines))
        if k < 1:
            return []
        rows = np.argpartition(-cosines, k - 1)[:k]
        rows = rows[np.argsort(-cosines[rows], kind="stable")]
        return [(self.keys[row], min(1.0, float(cosines[row]))) for row in rows]

    def _resize(self, rows: int) -> None:
        vectors = np.empty((rows, self._vectors.shape[1]), dtype=np.float32)
        vectors[: len(self.keys)] = self._vectors[: len(self.keys)]
        self._vectors = vectors
