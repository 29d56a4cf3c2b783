"""A store in this process: bounded bytes, what saves least per byte goes first, entries expire."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headgate.cache.index import Place
from headgate.cache.store.base import NOTES, PURGE_MEMORY_S, Forget
from headgate.cache.verdict import Entry

ENTRY_BYTES = 1280
"""Charged per entry beside its encoded form: its key, its tags, its places in the tables here and in the allocator."""
_LINK_BYTES = 256
"""Charged per vector beside its numbers: the key and the links an index keeps with it."""
_NOTE_BYTES = 64
"""Charged per note beside its own bytes."""


@dataclass(slots=True)
class _Held:
    packed: bytes
    charge: int
    """Bytes it takes of the budget."""
    device_s: float
    expires: float
    tags: tuple[str, ...]
    uses: int
    stamp: int
    """Of the last use: tells its live record in the heap from older ones."""
    notes: tuple[bytes, ...] = ()


class MemoryStore:
    """Implements `Store`. All calls come from one event loop.

    Entries are held encoded, so that their bytes are known and not guessed. When room is needed, the entry leaves whose
    `uses * device_s / bytes` is the lowest, where a use of long ago counts less: with every eviction the level rises
    from which the priorities of later uses count (GreedyDual-Size-Frequency: Cherkasova, HP Labs HPL-98-69R1, 1998).
    Of equals, the least recently used leaves. An answer that is worth less than all others is not kept at all.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        """An empty store.

        Args:
            max_bytes: bound on `bytes_used`; 0 stores nothing.
            clock: seconds since the epoch, on the same scale as `Entry.expires`.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; 0 or more is accepted")
        self._max_bytes = max_bytes
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._tagged: dict[str, set[str]] = {}
        self._purged: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._expiry: list[tuple[float, str]] = []
        self._level = 0.0
        self._stamp = 0
        self._bytes = 0
        self._evictions = 0
        self._forget: list[Forget] = []
        self._decoder = msgspec.msgpack.Decoder(Entry)

    def __len__(self) -> int:
        """Entries held, expired ones that nobody asked for included."""
        return len(self._held)

    @property
    def bytes_used(self) -> int:
        """Bytes of the entries held: encoded, with `ENTRY_BYTES` each, and of their vectors in an index."""
        return self._bytes

    @property
    def max_bytes(self) -> int:
        """The bound on `bytes_used`."""
        return self._max_bytes

    @property
    def evictions(self) -> int:
        """Entries that had to leave for want of room, since the start, and those that came and were worth less."""
        return self._evictions

    def on_forget(self, forget: Forget) -> None:
        """Have `forget` called for every entry that leaves: evicted, expired or deleted, but not replaced."""
        self._forget.append(forget)

    async def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none or it has expired. Counts as a use."""
        held = self._held.get(key)
        if held is None:
            return None
        if held.expires <= self._clock():
            self._drop(key)
            return None
        held.uses += 1
        self._rank(key, held)
        return self._decoder.decode(held.packed)

    async def put(
        self, entry: Entry, tags: frozenset[str], place: Place | None = None, *, asked: float | None = None
    ) -> bool:
        """Keep an entry under its key in place of an older one. False where it was not kept.

        That is where it is too large, has expired, holds text that is not Unicode, is worth less than all others in a
        full store, or was `asked` for before a purge of one of its tags. Nobody else looks into this store, so nobody
        is told of its `place`; its vector is charged all the same.
        """
        now = self._clock()
        self._expire(now)
        if asked is not None and any(self._purged.get(tag, asked - 1.0) >= asked for tag in tags):
            return False
        packed = _encode(entry)
        charge = 0 if packed is None else ENTRY_BYTES + len(packed)
        if place is not None:
            charge += place.vector.nbytes + _LINK_BYTES
        if packed is None or charge > self._max_bytes or entry.expires <= now:
            # The older answer goes all the same: a newer one exists.
            self._drop(entry.key)
            return False
        older = self._held.get(entry.key)
        if older is not None:
            self._unlink(entry.key)
        uses = 1 if older is None else older.uses
        # Most entries have their tags in common with many others.
        own = tuple(map(sys.intern, tags))
        held = _Held(packed, charge, max(0.0, entry.device_s), entry.expires, own, uses, 0)
        self._held[entry.key] = held
        for tag in own:
            self._tagged.setdefault(tag, set()).add(entry.key)
        self._bytes += charge
        self._rank(entry.key, held)
        self._schedule(entry)
        while self._bytes > self._max_bytes:
            self._evict()
        return entry.key in self._held

    async def note(self, key: str, note: bytes) -> bool:
        """Put a note beside an entry. False where there is none."""
        held = self._held.get(key)
        if held is None:
            return False
        dropped = held.notes[:1] if len(held.notes) == NOTES else ()
        held.notes = (*held.notes[len(dropped) :], note)
        grown = len(note) + _NOTE_BYTES - sum(len(old) + _NOTE_BYTES for old in dropped)
        held.charge += grown
        self._bytes += grown
        while self._bytes > self._max_bytes:
            self._evict()
        return key in self._held

    async def notes(self, key: str) -> tuple[bytes, ...]:
        """An entry's notes, the oldest first."""
        held = self._held.get(key)
        return () if held is None or held.expires <= self._clock() else held.notes

    async def delete(self, key: str) -> bool:
        """Drop an entry. False where there was none."""
        return self._drop(key)

    async def delete_tagged(self, tag: str) -> int:
        """Drop every entry that was put with this tag, or will be for a request of before.

        Gives how many there were.
        """
        now = self._clock()
        self._purged = {t: at for t, at in self._purged.items() if at > now - PURGE_MEMORY_S}
        self._purged[tag] = now
        keys = list(self._tagged.get(tag, ()))
        for key in keys:
            self._drop(key)
        return len(keys)

    async def count_tagged(self, tag: str) -> int:
        """How many entries have this tag and have not expired."""
        self._expire(self._clock())
        return len(self._tagged.get(tag, ()))

    def _rank(self, key: str, held: _Held) -> None:
        """Give an entry that was just used its place among those that may have to leave."""
        self._stamp += 1
        held.stamp = self._stamp
        priority = self._level + held.uses * held.device_s / held.charge
        heapq.heappush(self._heap, (priority, held.stamp, key))
        # Every use leaves the older record in the heap; drop those before they outweigh the live ones.
        if len(self._heap) > 2 * len(self._held) + 64:
            self._heap = [record for record in self._heap if self._live(record)]
            heapq.heapify(self._heap)

    def _live(self, record: tuple[float, int, str]) -> bool:
        held = self._held.get(record[2])
        return held is not None and held.stamp == record[1]

    def _evict(self) -> None:
        while not self._live(record := heapq.heappop(self._heap)):
            pass
        self._level = record[0]
        self._evictions += 1
        self._drop(record[2])

    def _schedule(self, entry: Entry) -> None:
        # Replaced and deleted entries leave their old times in the heap; rebuild before those outweigh the live ones.
        if len(self._expiry) > 2 * len(self._held) + 64:
            self._expiry = [(held.expires, key) for key, held in self._held.items()]
            heapq.heapify(self._expiry)
        else:
            heapq.heappush(self._expiry, (entry.expires, entry.key))

    def _expire(self, now: float) -> None:
        while self._expiry and self._expiry[0][0] <= now:
            _, key = heapq.heappop(self._expiry)
            held = self._held.get(key)
            if held is not None and held.expires <= now:
                self._drop(key)

    def _drop(self, key: str) -> bool:
        if key not in self._held:
            return False
        self._unlink(key)
        for forget in self._forget:
            forget(key)
        return True

    def _unlink(self, key: str) -> None:
        held = self._held.pop(key)
        self._bytes -= held.charge
        for tag in held.tags:
            keys = self._tagged[tag]
            keys.discard(key)
            if not keys:
                del self._tagged[tag]


def _encode(entry: Entry) -> bytes | None:
    try:
        return msgspec.msgpack.encode(entry)
    except UnicodeEncodeError:
        return None
