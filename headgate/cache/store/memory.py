"""A store in this process: bounded bytes, what saves least per byte goes first, entries expire."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator

import msgspec

from headgate.cache.index import Place
from headgate.cache.store.base import NOTES, PASSING_NOTES, PURGE_MEMORY_S, Forget
from headgate.cache.store.row_heap import RowHeap
from headgate.cache.verdict import Entry, StoredChoice

ENTRY_BYTES = 430
"""Charged per entry beside its encoded form: its key, its row in the tables here, its share of their room to grow."""
_GROUP_BYTES = 430
"""Charged once for all entries with the very same tags."""
_TAG_BYTES = 200
"""Charged for each tag of such a group."""
_LOOKS = 64
"""Entries at most that are looked at to find the one that has to leave: it holds up whoever stores."""
_NOTE_BYTES = 64
"""Charged per note beside its own bytes."""

_Choice = tuple[str, str, tuple[int, ...], bytes, bytes]
_Fields = tuple[str, tuple[_Choice, ...], str, int, int, float, float, float, bytes, bytes, int]


def elapsed() -> float:
    """Seconds since the machine was started, whatever its clock is set to; those that it slept for included."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class _Group:
    """The entries with the same tags: a ring of rows, of which each names the next and the one before."""

    __slots__ = ("first", "size", "tags")

    def __init__(self, tags: tuple[str, ...]) -> None:
        self.tags = tags
        self.first = 0
        self.size = 0

    @property
    def charge(self) -> int:
        return _GROUP_BYTES + _TAG_BYTES * len(self.tags)


class MemoryStore:
    """Implements `Store`. All calls come from one event loop.

    Entries are held encoded, so that their bytes are known and not guessed. What else is known of an entry stands in a
    row of a few tables of numbers, which take a tenth of what an object for each would. When room is needed, the entry
    leaves whose `uses * device_s / bytes` is the lowest, where a use of long ago counts less: with every eviction the
    level rises from which the priorities of later uses count (GreedyDual-Size-Frequency: Cherkasova, HP Labs
    HPL-98-69R1, 1998). Of equals, the least recently used leaves. An answer that is worth less than all others is not
    kept at all. A use is only written down; where an entry ranks by it is found when one has to leave, and then for
    some 64 at a time at most.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float], elapsed: Callable[[], float] | None = None) -> None:
        """An empty store.

        Args:
            max_bytes: bound on `bytes_used`; 0 stores nothing.
            clock: seconds since the epoch, on the same scale as `Entry.expires`. It may be set forward and back.
            elapsed: seconds on any scale that is never set: by it entries get older. None: by `clock`.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; 0 or more is accepted")
        self.max_bytes = max_bytes
        """The bound on `bytes_used`."""
        self._clock = clock
        self._elapsed = clock if elapsed is None else elapsed
        self._row_of: dict[str, int] = {}
        # By row, as are the two heaps. A free row keeps its numbers until it is used again.
        self._keys: list[str] = []
        self._packed: list[bytes] = []
        self._groups: list[_Group | None] = []
        self._next = array("I")
        self._before = array("I")
        self._charges = array("Q")
        self._uses = array("Q")
        self._device_s = array("d")
        # Each entry's rank when it was last used, among those that may have to leave; and as it was when the heap was
        # last put right about it, never higher.
        self._ranks = array("d")
        self._stamps = array("Q")
        self._worth = RowHeap()
        self._expiry = RowHeap()
        self._free: list[int] = []
        # Each with whether it is passing.
        self._notes: dict[int, tuple[tuple[bytes, bool], ...]] = {}
        self._group_of: dict[tuple[str, ...], _Group] = {}
        self._tagged: dict[str, set[_Group]] = {}
        self._purged: dict[str, float] = {}
        self._level = 0.0
        self._stamp = 0
        self._bytes = 0
        self.evictions = 0
        """Entries that had to leave for want of room, since the start, and those that came and were worth less."""
        self._forget: list[Forget] = []
        self._beside: Callable[[], int] = int
        self._decoder = msgspec.msgpack.Decoder(_Fields)

    def __len__(self) -> int:
        """Entries held, expired ones that nobody asked for included."""
        return len(self._row_of)

    @property
    def bytes_used(self) -> int:
        """Bytes of the entries held: encoded, with `ENTRY_BYTES` each, tags and notes; and of what `beside` counts."""
        return self._bytes + self._beside()

    def beside(self, taken: Callable[[], int]) -> None:
        """Have bytes counted against the bound that an index takes for the entries here; `taken` tells how many."""
        self._beside = taken

    def on_forget(self, forget: Forget) -> None:
        """Have `forget` called for every entry that leaves: evicted, expired or deleted, but not replaced."""
        self._forget.append(forget)

    async def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none or it has expired. Counts as a use."""
        packed = self.packed(key)
        return None if packed is None else self.unpacked(key, packed)

    def packed(self, key: str) -> bytes | None:
        """The same, at once and as it is held: one object for as long as the entry is not replaced."""
        row = self._row_of.get(key)
        if row is None:
            return None
        if self._expiry.numbers[row] <= self._elapsed():
            self._drop(key)
            return None
        self._uses[row] = uses = self._uses[row] + 1
        self._stamp = self._stamps[row] = self._stamp + 1
        self._ranks[row] = rank = self._level + uses * self._device_s[row] / self._charges[row]
        # It ranks higher than the heap has it, which is put right when somebody has to leave; only notes lower it.
        if rank < self._worth.numbers[row]:
            self._worth.move(row, rank, self._stamp)
        return self._packed[row]

    def unpacked(self, key: str, packed: bytes) -> Entry:
        """The entry that is held so under a key."""
        text, choices, *rest = self._decoder.decode(packed)
        return Entry(key, text, tuple([StoredChoice(*choice) for choice in choices]), *rest)

    async def put(
        self, entry: Entry, tags: frozenset[str], place: Place | None = None, *, asked: float | None = None
    ) -> bool:
        """Keep an entry under its key in place of an older one. False where it was not kept.

        That is where it is too large, has expired, holds text that is not Unicode, is worth less than all others in a
        full store, or was `asked` for before a purge of one of its tags. Nobody else looks into this store, so nobody
        is told of its `place`; room is made for what an index here will take for it.
        """
        self._expire()
        lifetime = entry.expires - self._clock()
        if asked is not None and any(self._purged.get(tag, asked - 1.0) >= asked for tag in tags):
            return False
        packed = _encode(entry)
        placed = 0 if place is None else place.row_bytes
        charge = 0 if packed is None else ENTRY_BYTES + len(packed) + placed
        group = self._group(tags)
        own = charge if group is None else charge + group.charge
        if packed is None or own > self.max_bytes or lifetime <= 0:
            # The older answer goes all the same: a newer one exists.
            self._drop(entry.key)
            return False
        older = self._row_of.get(entry.key)
        uses = 1 if older is None else self._uses[older]
        if older is not None:
            self._unlink(entry.key)
            # Its index has the place of the older one.
            placed = 0
        row = self._new_row()
        self._row_of[entry.key] = row
        self._keys[row] = entry.key
        self._packed[row] = packed
        self._charges[row] = charge
        self._uses[row] = uses
        self._device_s[row] = max(0.0, entry.device_s)
        self._bytes += ENTRY_BYTES + len(packed)
        self._stamp = self._stamps[row] = self._stamp + 1
        self._ranks[row] = rank = self._level + uses * self._device_s[row] / charge
        self._worth.add(row, rank, self._stamp)
        self._expiry.add(row, self._elapsed() + lifetime, self._stamp)
        if group is not None:
            self._join(row, group)
        self._make_room(placed)
        return entry.key in self._row_of

    async def note(self, key: str, note: bytes, *, passing: bool = False) -> bool:
        """Put a note beside an entry. False where there is none."""
        row = self._row_of.get(key)
        if row is None:
            return False
        before = self._notes.get(row, ())
        after = [*before, (note, passing)]
        if passing and sum(goes for _, goes in after) > PASSING_NOTES:
            after.remove(next(one for one in after if one[1]))
        self._notes[row] = tuple(after[-NOTES:])
        grown = _notes_charge(self._notes[row]) - _notes_charge(before)
        self._charges[row] += grown
        self._bytes += grown
        self._make_room(0)
        return key in self._row_of

    async def notes(self, key: str) -> tuple[bytes, ...]:
        """An entry's notes, the oldest first."""
        row = self._row_of.get(key)
        if row is None or self._expiry.numbers[row] <= self._elapsed():
            return ()
        return tuple(note for note, _ in self._notes.get(row, ()))

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
        keys = [self._keys[row] for group in self._tagged.get(tag, ()) for row in self._rows(group)]
        for key in keys:
            self._drop(key)
        return len(keys)

    async def count_tagged(self, tag: str) -> int:
        """How many entries have this tag and have not expired."""
        self._expire()
        return sum(group.size for group in self._tagged.get(tag, ()))

    def _make_room(self, coming: int) -> None:
        while self._row_of and self.bytes_used + coming > self.max_bytes:
            self._evict()

    def _evict(self) -> None:
        row = self._least()
        self._level = self._ranks[row]
        self.evictions += 1
        self._drop(self._keys[row])

    def _least(self) -> int:
        """The row that ranks lowest; of those that the heap has lowest, if so many of them were used since."""
        seen = []
        for _ in range(_LOOKS):
            row = self._worth.lowest()
            if self._worth.serials[row] == self._stamps[row]:
                return row
            self._worth.move(row, self._ranks[row], self._stamps[row])
            seen.append(row)
        return min(seen, key=lambda row: (self._ranks[row], self._stamps[row]))

    def _expire(self) -> None:
        now = self._elapsed()
        while self._row_of and self._expiry.numbers[row := self._expiry.lowest()] <= now:
            self._drop(self._keys[row])

    def _drop(self, key: str) -> bool:
        if key not in self._row_of:
            return False
        self._unlink(key)
        for forget in self._forget:
            forget(key)
        return True

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._keys.append("")
        self._packed.append(b"")
        self._groups.append(None)
        self._next.append(0)
        self._before.append(0)
        self._charges.append(0)
        self._uses.append(0)
        self._device_s.append(0.0)
        self._ranks.append(0.0)
        self._stamps.append(0)
        return len(self._keys) - 1

    def _unlink(self, key: str) -> None:
        row = self._row_of.pop(key)
        self._bytes -= ENTRY_BYTES + len(self._packed[row])
        self._bytes -= _notes_charge(self._notes.pop(row, ()))
        self._worth.remove(row)
        self._expiry.remove(row)
        self._leave(row)
        self._keys[row], self._packed[row] = "", b""
        self._free.append(row)

    def _group(self, tags: frozenset[str]) -> _Group | None:
        """The group of these tags, which is made where there is none; None for no tags."""
        if not tags:
            return None
        # Sets of the same tags may give them in different orders.
        ordered = tuple(sorted(tags))
        return self._group_of.get(ordered) or _Group(tuple(map(sys.intern, ordered)))

    def _rows(self, group: _Group) -> Iterator[int]:
        row = group.first
        for _ in range(group.size):
            yield row
            row = self._next[row]

    def _join(self, row: int, group: _Group) -> None:
        if not group.size:
            self._group_of[group.tags] = group
            for tag in group.tags:
                self._tagged.setdefault(tag, set()).add(group)
            self._bytes += group.charge
            group.first = self._next[row] = self._before[row] = row
        else:
            last = self._before[group.first]
            self._next[last], self._before[row] = row, last
            self._next[row], self._before[group.first] = group.first, row
        group.size += 1
        self._groups[row] = group

    def _leave(self, row: int) -> None:
        group, self._groups[row] = self._groups[row], None
        if group is None:
            return
        before, after = self._before[row], self._next[row]
        self._next[before], self._before[after] = after, before
        if group.first == row:
            group.first = after
        group.size -= 1
        if group.size:
            return
        self._bytes -= group.charge
        del self._group_of[group.tags]
        for tag in group.tags:
            groups = self._tagged[tag]
            groups.discard(group)
            if not groups:
                del self._tagged[tag]


def _notes_charge(notes: Iterable[tuple[bytes, bool]]) -> int:
    return sum(len(note) + _NOTE_BYTES for note, _ in notes)


def _encode(entry: Entry) -> bytes | None:
    choices = tuple([(c.text, c.finish_reason, c.token_ids, c.logprobs, c.beside) for c in entry.choices])
    fields: _Fields = (
        entry.text,
        choices,
        entry.model,
        entry.prompt_tokens,
        entry.completion_tokens,
        entry.device_s,
        entry.created,
        entry.expires,
        entry.sketch,
        entry.seal,
        entry.image_tokens,
    )
    try:
        # Copied: what the encoder gives keeps the room it was written in, up to half as much again.
        return bytes(memoryview(msgspec.msgpack.encode(fields)))
    except UnicodeEncodeError:
        return None
