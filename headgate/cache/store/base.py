"""What a store of finished answers can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.cache.index import Place
from headgate.cache.verdict import Entry

Forget = Callable[[str], None]
"""Called with the key of an entry that has left the store."""


PURGE_MEMORY_S = 600.0
"""How long a purge keeps answers out that were on their way when it came."""

NOTES = 32
"""Notes that an entry has at most; the oldest goes first."""

PASSING_NOTES = 16
"""Of these, how many passing ones at most; the oldest of them goes first, so that they push out no other note."""


class StoreDownError(OSError):
    """The store is a server that cannot be asked now. The store logs its outages itself, once each."""


class Entries(Protocol):
    """What a look-up needs of a store."""

    async def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none or it has expired. Counts as a use."""
        ...


class Store(Entries, Protocol):
    """Keeps entries by key. It knows nothing of similarity: which entries are close is the index's job.

    Methods may raise `OSError` or a subclass when the store is a server that cannot be reached; the caller treats
    that as a miss. A full store is not an error.
    """

    async def put(
        self, entry: Entry, tags: frozenset[str], place: Place | None = None, *, asked: float | None = None
    ) -> bool:
        """Keep an entry under its key in place of an older one. False where it was not kept (too large, expired).

        A store that several processes share keeps the `place` too and tells the others' indexes of it. `asked` is when
        the request came that the entry answers, in seconds since the epoch: it is not kept if one of its tags was
        purged since, for it may be made of what was to be forgotten.
        """
        ...

    async def note(self, key: str, note: bytes, *, passing: bool = False) -> bool:
        """Put a note beside an entry, for all processes. It goes with the entry, and when another takes its place.

        Of notes that are `passing` only the last `PASSING_NOTES` are kept. False where there is no entry, or no room.
        """
        ...

    async def notes(self, key: str) -> tuple[bytes, ...]:
        """An entry's notes, the oldest first, at most `NOTES`."""
        ...

    async def delete(self, key: str) -> bool:
        """Drop an entry. False where there was none."""
        ...

    async def delete_tagged(self, tag: str) -> int:
        """Drop every entry that was put with this tag, or will be for a request of before; gives how many there were.

        Requests of the last `PURGE_MEMORY_S` seconds are known to be of before; an older one is forgotten about.
        """
        ...

    async def count_tagged(self, tag: str) -> int:
        """How many entries have this tag and have not expired."""
        ...

    def on_forget(self, forget: Forget) -> None:
        """Have `forget` called for every entry that leaves: evicted, expired or deleted, but not replaced."""
        ...
