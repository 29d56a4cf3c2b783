"""Responses that clients can read again and go on from: in memory, for a while, each team's its own."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

_OVERHEAD = 200
"""Bytes that an entry takes beside its texts, about."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A response, and what it takes to go on from it."""

    body: bytes
    items: bytes
    """The conversation up to it: a JSON list of items."""
    events: tuple[bytes, ...] = ()
    """Of one that was answered in the background as a stream, in the order of their numbers."""
    kept_ms: int = 0
    """Of one that is being made: for how long Redis keeps it each time that its process says that it still is."""
    silent_s: float = 0.0
    """How long ago its process said so, by the clock of the Redis that it was found in."""

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return _OVERHEAD + len(self.body) + len(self.items) + sum(map(len, self.events))


class StoredResponses:
    """The oldest ones leave when there is no room and when their time is over. All calls come from one event loop."""

    def __init__(self, ttl_s: float, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`ttl_s`: how long they are kept, in seconds; 0 keeps none. `clock`: monotonic seconds."""
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], tuple[float, StoredResponse]] = OrderedDict()
        self._bytes = 0

    @property
    def enabled(self) -> bool:
        """Whether responses are kept."""
        return self._ttl_s > 0

    @property
    def bytes_used(self) -> int:
        """What is kept takes, about."""
        return self._bytes

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`."""
        return len(self._kept), self._bytes / self._max_bytes if self._max_bytes else 0.0

    def __len__(self) -> int:
        self._expire()
        return len(self._kept)

    def keep(self, team: str, response_id: str, response: StoredResponse) -> None:
        """Keep a response in place of an older state of it, unless it alone is larger than all may be."""
        self.delete(team, response_id)
        if not self.enabled or response.size > self._max_bytes:
            return
        self._kept[team, response_id] = self._clock() + self._ttl_s, response
        self._bytes += response.size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def get(self, team: str, response_id: str) -> StoredResponse | None:
        """A team's response, if it is still there."""
        self._expire()
        found = self._kept.get((team, response_id))
        return None if found is None else found[1]

    def delete(self, team: str, response_id: str) -> bool:
        """Forget it; False where it was not there."""
        self._expire()
        if (team, response_id) not in self._kept:
            return False
        self._drop((team, response_id))
        return True

    def _expire(self) -> None:
        # All live equally long, so that the first is the first to go.
        while self._kept:
            key, (expires, _) = next(iter(self._kept.items()))
            if expires > self._clock():
                return
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        self._bytes -= self._kept.pop(key)[1].size
