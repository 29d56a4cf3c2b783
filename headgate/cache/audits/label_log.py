"""What labels have said of stored answers, and on what evidence: from this the rule can be fitted anew."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from headgate.cache.audits.labels import LabelKind
from headgate.cache.store.journal import KEEP, Journal

logger = logging.getLogger(__name__)

Source = Literal["audit", "near"]
"""Where the label comes from: a served hit that was audited, or a near one whose question was answered in full."""

_SCHEMA = 2


class LabelRecord(msgspec.Struct, frozen=True):
    """One label. No text of anybody's is in it."""

    entry_key: str
    created: float
    """When the answer was stored that the label is of, in seconds since the epoch."""
    similarity: float
    """Cosine of the two texts' embeddings."""
    against: str | None
    """Why the entry was not served, such as the guard that failed; None for a hit."""
    right: bool
    kind: LabelKind
    source: Source
    at: float
    """Seconds since the epoch."""
    rule: str = ""
    """`Judge.identity` of the rule that decided, and the level it decided at."""
    log_odds: float | None = None
    """What its model gave, before the entry's offset; None where it was not asked."""
    evidence: tuple[float, ...] = ()
    """What its model was asked about, in the order of its names."""
    schema: int = _SCHEMA


class LabelLog:
    """The latest labels, in a journal where there is one. All calls come from one event loop."""

    def __init__(self, journal: Journal | None = None, capacity: int = KEEP) -> None:
        """A log that remembers `capacity` labels, the oldest goes first; empty until `load`."""
        self._journal = journal
        self._all: deque[LabelRecord] = deque(maxlen=capacity)
        self._unwritten: deque[LabelRecord] = deque(maxlen=capacity)

    def __len__(self) -> int:
        """Labels remembered."""
        return len(self._all)

    @property
    def remembered(self) -> tuple[int, float]:
        """How many labels, and what part of the most that is."""
        return len(self._all), len(self._all) / (self._all.maxlen or 1)

    def __iter__(self) -> Iterator[LabelRecord]:
        """The labels, oldest first."""
        return iter(self._all)

    async def load(self) -> None:
        """Take what the journal has, other gateways' labels included, and give it what it lacks.

        Raises:
            OSError: the journal cannot be reached.
        """
        if self._journal is None:
            return
        await self.write()
        read, unread = [], 0
        for packed in await self._journal.records():
            try:
                record = msgspec.msgpack.decode(packed, type=LabelRecord)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                unread += 1
                continue
            if record.schema == _SCHEMA:
                read.append(record)
            else:
                unread += 1
        if unread:
            logger.info("%d labels in the journal are another version's and are left out", unread)
        # What came while the journal was read is in it, or waits to be written.
        self._all.clear()
        self._all.extend(read)
        self._all.extend(self._unwritten)

    def add(self, record: LabelRecord) -> None:
        """Remember a label, and have it written with the next `write`."""
        self._all.append(record)
        if self._journal is not None:
            self._unwritten.append(record)

    async def write(self) -> None:
        """Have the journal keep what was added.

        Raises:
            OSError: the journal cannot be reached; what it has not kept is tried again next time.
        """
        while self._journal is not None and self._unwritten:
            record = self._unwritten.popleft()
            try:
                await self._journal.append(msgspec.msgpack.encode(record))
            except BaseException:
                self._unwritten.appendleft(record)
                raise
