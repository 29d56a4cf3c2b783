"""Questions that are being answered now, so that one that means the same can wait for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import msgspec

from headgate.cache.index import FlatIndex, Vector
from headgate.cache.verdict import Entry


class InFlight:
    """A store and an index of entries whose answers are not there yet: what the look-up of stored ones works on.

    Each has a key of its own, for two requests with the same key may be answered side by side. All calls come from one
    event loop.
    """

    def __init__(self, dim: int) -> None:
        """Nothing in flight; vectors are `[dim]`."""
        self.index = FlatIndex(dim)
        self._entries: dict[str, tuple[Entry, asyncio.Event]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        """Questions in flight."""
        return len(self._entries)

    async def get(self, key: str) -> Entry | None:
        """The entry of a question in flight: all but the answer."""
        found = self._entries.get(key)
        return None if found is None else found[0]

    @contextmanager
    def answering(self, entry: Entry, bucket: str, vector: Vector) -> Iterator[None]:
        """Have a question found until its answer is there, or until it is known that there will be none."""
        key = str(next(self._numbers))
        landed = asyncio.Event()
        self._entries[key] = msgspec.structs.replace(entry, key=key), landed
        self.index.add(key, bucket, vector)
        try:
            yield
        finally:
            self.index.remove(key)
            del self._entries[key]
            landed.set()

    async def landed(self, key: str, within_s: float) -> bool:
        """Wait until a question is answered or given up, but not longer than `within_s`; whether it was."""
        found = self._entries.get(key)
        if found is None:
            return True
        try:
            async with asyncio.timeout(within_s):
                await found[1].wait()
        except TimeoutError:
            return False
        return True
