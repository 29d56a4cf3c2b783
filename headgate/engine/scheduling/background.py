"""Work that nobody waits for: it gets what users leave of a step and of the memory, and gives both back at once.

A background sequence takes no part in the queues, the fair shares or the running set of the others. It is admitted
only while nobody waits, while a part of the pool stays free, and into steps that users leave room in; a user who needs
its blocks takes them, and it is computed again later. Its blocks are the first to be overwritten once it has ended, so
that it does not push what users may ask for again out of the prefix cache. What is lent for drafts it takes back as
users do: they save some time, and it could wait for as long as another model has something to answer.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from headgate.engine.kv.pins import Pins
from headgate.engine.kv.tables import KVTables
from headgate.engine.sequence import Sequence
from headgate.engine.speculation.lent import Lent

_RESERVE = 0.25
"""Part of the pool that background sequences leave free, unless one of them has the whole pool to itself."""


class Background:
    """Queue and running set of one model's background sequences, in order of arrival."""

    def __init__(self, tables: KVTables, pins: Pins, lent: Lent, max_running: int) -> None:
        """`pins`: what holds blocks that nobody runs in."""
        self.running: list[Sequence] = []
        """Those that hold blocks."""
        self.waiting: deque[Sequence] = deque()
        self.preemptions = 0
        self._tables = tables
        self._pins = pins
        self._lent = lent
        self._max_running = max_running

    def __len__(self) -> int:
        """Sequences that have not ended; may be read from another thread."""
        return len(self.running) + len(self.waiting)

    @property
    def answering(self) -> tuple[int, int]:
        """How many run and how many wait of those that generate: a client may read them, however late it gets them."""
        return sum(s.generates for s in self.running), sum(s.generates for s in self.waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind the others."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence, *, discard: bool) -> list[int]:
        """Take a sequence out, finished or not; returns the blocks that nobody uses any more."""
        if sequence.admitted:
            self.running.remove(sequence)
            sequence.admitted = False
        else:
            self.waiting.remove(sequence)
        return self._tables.release(sequence.table, discard=discard, keep=False)

    def give_way(self) -> bool:
        """Give the youngest one's blocks back; False where none holds any."""
        if not self.running:
            return False
        self.preempt(self.running[-1])
        return True

    def preempt(self, sequence: Sequence) -> None:
        """Take a running one's blocks back; it waits again."""
        self.running.remove(sequence)
        self._tables.release(sequence.table, keep=False)
        sequence.reset()
        self.preemptions += 1
        insort(self.waiting, sequence, key=lambda s: s.arrival)

    def schedule(self, tokens: int, sequences: int, *, admit: bool, whole: int) -> dict[Sequence, int]:
        """Divide what is left of a step.

        Args:
            tokens: most tokens that may be computed.
            sequences: most sequences that may take part.
            admit: whether waiting ones may start.
            whole: of a step that is theirs the most that a picture which is computed whole may make of it; else 0.

        Returns:
            Tokens to compute by sequence; none is 0.
        """
        granted: dict[Sequence, int] = {}
        for sequence in list(self.running):
            if tokens < 1 or len(granted) >= sequences:
                break
            count = self._count(sequence, tokens, whole, granted)
            if count and sequence.admitted and self._make_room(sequence, granted, sequence.computed + count):
                granted[sequence] = count
                tokens -= count
        while admit and tokens > 0 and len(granted) < sequences and (entered := self._enter()) is not None:
            if not (count := self._count(entered, tokens, whole, granted)):
                break  # nor has this step room for those behind it
            granted[entered] = count
            tokens -= count
        return granted

    def check(self) -> None:
        """Raise AssertionError when queue and running set disagree."""
        assert all(s.admitted and not s.done for s in self.running)
        assert not any(s.admitted or s.done or s.table.blocks or s.computed for s in self.waiting)
        for sequences in (self.running, self.waiting):
            assert [s.arrival for s in sequences] == sorted(s.arrival for s in sequences)

    def _count(self, sequence: Sequence, most: int, whole: int, granted: dict[Sequence, int]) -> int:
        window = self._tables.window
        count = min(sequence.gap, most) if window is None else min(sequence.gap, most, window.step)
        parted = sequence.parted(0, count)
        # One that memory is too short for is tried alone.
        fits = parted <= max(most, whole - sum(granted.values())) or (whole and not granted)
        return parted if fits else 0

    def _make_room(self, sequence: Sequence, granted: dict[Sequence, int], tokens: int) -> bool:
        while not self._tables.extend(sequence.table, tokens):
            if self._lent.give_way():
                continue
            victim = self.running[-1]
            granted.pop(victim, None)
            self.preempt(victim)
            if victim is sequence:
                return False
        return True

    def _enter(self) -> Sequence | None:
        """Admit the next ready sequence if its known part fits beside the reserve."""
        if len(self.running) >= self._max_running or not self._tables.admits:
            return None
        sequence = next((s for s in self.waiting if s.ready), None)
        if sequence is None:
            return None
        tables = self._tables
        cached = tables.attach_prefix(sequence.table, sequence.reusable)
        while not (fits := self._fits(sequence)) and self._lent.give_way():
            pass
        if not fits:
            tables.release(sequence.table, keep=False)
            return None
        tables.enter(sequence.table, len(sequence.tokens))
        self.waiting.remove(sequence)
        sequence.admit(cached)
        insort(self.running, sequence, key=lambda s: s.arrival)
        return sequence

    def _fits(self, sequence: Sequence) -> bool:
        # Alone on the model one may use all of it, or a small pool would never get anything done.
        tables, own = self._tables, len(sequence.table.blocks) - sequence.table.gone
        used = tables.free_blocks + own + self._pins.blocks < tables.total_blocks
        return tables.fits(sequence.table, len(sequence.tokens), 0, _RESERVE if used else 0.0)
