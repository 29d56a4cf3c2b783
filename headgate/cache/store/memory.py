"""A store in this process: bounded bytes, least recently used goes first, entries expire."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

from headgate.cache.index import Place
from headgate.cache.store.base import Forget
from headgate.cache.verdict import Entry


class MemoryStore:
    """Implements `Store`. All calls come from one event loop."""

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        """An empty store.

        Args:
            max_bytes: bound on the sum of `Entry.size`; 0 stores nothing.
            clock: seconds since the epoch, on the same scale as `Entry.expires`.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; 0 or more is accepted")
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._tags: dict[str, frozenset[str]] = {}
        self._tagged: dict[str, set[str]] = {}
        self._expiry: list[tuple[float, str]] = []
        self._bytes = 0
        self._evictions = 0
        self._forget: list[Forget] = []

    def __len__(self) -> int:
        """Entries held, expired ones that nobody asked for included."""
        return len(self._entries)

    @property
    def bytes_used(self) -> int:
        """Sum of `Entry.size` over the entries held."""
        return self._bytes

    @property
    def evictions(self) -> int:
        """Entries that had to leave for want of room, since the start."""
        return self._evictions

    def on_forget(self, forget: Forget) -> None:
        """Have `forget` called for every entry that leaves: evicted, expired or deleted, but not replaced."""
        self._forget.append(forget)

    async def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none or it has expired. Counts as a use."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= self._clock():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    async def put(self, entry: Entry, tags: frozenset[str], place: Place | None = None) -> bool:  # noqa: ARG002
        """Keep an entry under its key in place of an older one. False where it was not kept (too large, expired).

        Nobody else looks into this store, so nobody is told of its `place`.
        """
        now = self._clock()
        self._expire(now)
        if entry.size > self._max_bytes or entry.expires <= now:
            # The older answer goes all the same: a newer one exists.
            self._drop(entry.key)
            return False
        if entry.key in self._entries:
            self._unlink(entry.key)
        self._entries[entry.key] = entry
        self._tags[entry.key] = tags
        for tag in tags:
            self._tagged.setdefault(tag, set()).add(entry.key)
        self._bytes += entry.size
        self._schedule(entry)
        while self._bytes > self._max_bytes:
            self._evictions += 1
            self._drop(next(iter(self._entries)))
        return True

    async def delete(self, key: str) -> bool:
        """Drop an entry. False where there was none."""
        return self._drop(key)

    async def delete_tagged(self, tag: str) -> int:
        """Drop every entry that was put with this tag; gives how many there were."""
        keys = list(self._tagged.get(tag, ()))
        for key in keys:
            self._drop(key)
        return len(keys)

    def _schedule(self, entry: Entry) -> None:
        # Replaced and deleted entries leave their old times in the heap; rebuild before those outweigh the live ones.
        if len(self._expiry) > 2 * len(self._entries) + 64:
            self._expiry = [(e.expires, e.key) for e in self._entries.values()]
            heapq.heapify(self._expiry)
        else:
            heapq.heappush(self._expiry, (entry.expires, entry.key))

    def _expire(self, now: float) -> None:
        while self._expiry and self._expiry[0][0] <= now:
            _, key = heapq.heappop(self._expiry)
            entry = self._entries.get(key)
            if entry is not None and entry.expires <= now:
                self._drop(key)

    def _drop(self, key: str) -> bool:
        if key not in self._entries:
            return False
        self._unlink(key)
        for forget in self._forget:
            forget(key)
        return True

    def _unlink(self, key: str) -> None:
        self._bytes -= self._entries.pop(key).size
        for tag in self._tags.pop(key):
            keys = self._tagged[tag]
            keys.discard(key)
            if not keys:
                del self._tagged[tag]
