"""The embeddings of the examples that ship, so that a server need not compute them at every start."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from headgate.routing.types import Vector

_FILE = "example_vectors.safetensors"
_KEY_BYTES = 16


class KnownVectors:
    """Vectors by text, of one embedding model."""

    def __init__(self, vectors: Mapping[bytes, Vector]) -> None:
        self._vectors = vectors

    @classmethod
    def load(cls, embedder: str, path: Path | None = None) -> KnownVectors:
        """The vectors of a file, or those that ship; none for any other model than they were made with."""
        shipped = files("headgate.routing") / "data" / _FILE
        with as_file(shipped if path is None else path) as place, safe_open(place, framework="numpy") as file:
            if (file.metadata() or {}).get("embedder") != embedder:
                return cls({})
            keys, codes, scales = (file.get_tensor(name) for name in ("keys", "codes", "scales"))
        rows = codes.astype(np.float32) * scales[:, None]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return cls({key.tobytes(): row for key, row in zip(keys, rows, strict=True)})

    def find(self, text: str) -> Vector | None:
        """The vector `[dim]` of a text, or None."""
        return self._vectors.get(_key(text))

    @staticmethod
    def save(path: Path, embedder: str, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Write the vectors of texts: a byte for each number and a scale for each row, which keeps cosines to 1e-3."""
        rows = np.stack(list(vectors))
        scales = np.abs(rows).max(axis=1) / 127
        save_file(
            {
                "keys": np.frombuffer(b"".join(map(_key, texts)), np.uint8).reshape(-1, _KEY_BYTES),
                "codes": np.round(rows / scales[:, None]).astype(np.int8),
                "scales": scales.astype(np.float32),
            },
            path,
            metadata={"embedder": embedder},
        )


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
