"""Which record of a tier goes first: the least recently used one that no other there goes on from.

A prefix without its beginning is of no use, so that heads stay for as long as one of their tails does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

_STALE = 64
"""Places in the heap that may be out of date, beyond as many as there are records."""


@dataclass(slots=True)
class _Record:
    parent: bytes
    used: int


class Order:
    """Records by identity, each with its parent's. Nothing is said of what they hold."""

    def __init__(self) -> None:
        self._records: dict[bytes, _Record] = {}
        self._children: Counter[bytes] = Counter()
        self._users: Counter[bytes] = Counter()
        self._heap: list[tuple[int, bytes]] = []
        self._tick = 0

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._records

    def add(self, identity: bytes, parent: bytes) -> None:
        """A record that is not there yet, the latest used. Its parent need not be there."""
        self._tick += 1
        self._records[identity] = _Record(parent, self._tick)
        self._children[parent] += 1
        self._offer(identity)

    def touch(self, identity: bytes) -> None:
        """It was used."""
        self._tick += 1
        self._records[identity].used = self._tick
        self._offer(identity)

    def hold(self, identity: bytes) -> None:
        """It is not to go until `let_go` was called as often."""
        self._users[identity] += 1

    def let_go(self, identity: bytes) -> None:
        """See `hold`."""
        _less(self._users, identity)
        self._offer(identity)

    def remove(self, identity: bytes) -> None:
        """It goes, whoever holds it or goes on from it."""
        record = self._records.pop(identity)
        self._users.pop(identity, None)
        _less(self._children, record.parent)
        parent = self._records.get(record.parent)
        if parent is not None:
            # Who used the tail used the head.
            parent.used = max(parent.used, record.used)
            self._offer(record.parent)

    def pop(self) -> bytes | None:
        """Take out the one that goes first; None where all are held.

        Where all that nobody holds have one behind them that is held, the one that was used last is the nearest to it.
        """
        while self._heap:
            used, identity = heappop(self._heap)
            record = self._records.get(identity)
            if record is not None and record.used == used and self._leaves(identity):
                self.remove(identity)
                return identity
        if len(self._users) == len(self._records):
            return None
        identity = max((record.used, each) for each, record in self._records.items() if each not in self._users)[1]
        self.remove(identity)
        return identity

    def _leaves(self, identity: bytes) -> bool:
        return identity not in self._children and identity not in self._users

    def _offer(self, identity: bytes) -> None:
        """Have the heap know of a record that may go: what it knew of it before counts no more."""
        if identity not in self._records or not self._leaves(identity):
            return
        heappush(self._heap, (self._records[identity].used, identity))
        if len(self._heap) > 2 * len(self._records) + _STALE:
            self._heap = [(record.used, each) for each, record in self._records.items() if self._leaves(each)]
            heapify(self._heap)


def _less(counts: Counter[bytes], identity: bytes) -> None:
    counts[identity] -= 1
    if not counts[identity]:
        del counts[identity]
