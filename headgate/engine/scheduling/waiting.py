"""Sequences that wait to be admitted, and which of them is the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from headgate.engine.scheduling.shares import Shares
from headgate.engine.sequence import Sequence

_Queue = tuple[int, str]
"""Rank and tenant of those that wait behind each other."""


class Waiting:
    """Of one model, background work aside. The step thread's own, but for what says otherwise."""

    def __init__(self, shares: Shares) -> None:
        """`shares`: those of the tenants whose sequences wait or run."""
        self._queues: dict[_Queue, deque[Sequence]] = {}
        self._shares = shares

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._queues)

    def __len__(self) -> int:
        """How many wait; may be read from another thread, so it looks at a copy."""
        return sum(len(queue) for queue in list(self._queues.values()))

    def __iter__(self) -> Iterator[Sequence]:
        """Queue by queue; may be asked for from another thread, likewise."""
        return iter([sequence for queue in list(self._queues.values()) for sequence in list(queue)])

    def add(self, sequence: Sequence, running: Iterable[Sequence], *, first: bool = False) -> None:
        """Queue a sequence behind its tenant's others, or before them. `running`: those that do not wait."""
        tenant, waiting = sequence.request.tenant, {tenant for _, tenant in self._queues}
        if tenant not in waiting:
            self._shares.join(tenant, waiting, (other.request.tenant for other in running))
        queue = self._queues.setdefault(_queue(sequence), deque())
        if first:
            queue.appendleft(sequence)
        else:
            queue.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out."""
        queue = self._queues[_queue(sequence)]
        queue.remove(sequence)
        if not queue:
            del self._queues[_queue(sequence)]

    def ready(self, rank: int) -> Iterator[Sequence]:
        """Those of ranks up to this one that may be admitted, of the lower rank first, then of the tenant that is
        furthest behind. Who is still there and ready when the next one is asked for comes again.
        """
        for queue in sorted(self._queues, key=lambda queue: (queue[0], self._shares.time(queue[1]))):
            while queue[0] <= rank and (found := next((s for s in self._queues.get(queue, ()) if s.ready), None)):
                yield found

    def check(self) -> None:
        """Raise AssertionError where a queue is empty."""
        assert all(self._queues.values()), "an empty queue is kept"


def _queue(sequence: Sequence) -> _Queue:
    return sequence.rank, sequence.request.tenant
