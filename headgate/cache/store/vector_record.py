"""How Redis has an entry's vector."""

from __future__ import annotations

import msgspec

from headgate.cache.index import Place
from headgate.cache.verdict import Entry


class VectorRecord(msgspec.Struct, array_like=True, frozen=True):
    """An entry's place in an index as Redis has it: beside the entry, and in the stream of changes."""

    key: str
    bucket: str
    embedder: str
    expires: float
    """Seconds since the epoch."""
    vector: bytes
    """`[dim]`, float16, little-endian."""

    @staticmethod
    def of(entry: Entry, place: Place) -> bytes:
        """The record of an entry, encoded."""
        vector = place.vector.astype("<f2").tobytes()
        return msgspec.msgpack.encode(VectorRecord(entry.key, place.bucket, place.embedder, entry.expires, vector))
