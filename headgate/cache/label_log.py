"""What labels have said of stored answers, and on what evidence: from this the rule can be fitted anew."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from headgate.cache.bound import Evidence, HitModel
from headgate.cache.labels import LabelKind

Source = Literal["audit", "near"]
"""Where the label comes from: a served hit that was audited, or a near one whose question was answered in full."""

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """One label. No text of anybody's is in it."""

    entry_key: str
    similarity: float
    """Cosine of the two texts' embeddings."""
    against: str | None
    """Why the entry was not served, such as the guard that failed; None for a hit."""
    right: bool
    kind: LabelKind
    source: Source
    at: float
    """Seconds since the epoch."""
    evidence: Evidence | None = None
    """What was known before it was decided, where a learned rule decided."""


class LabelLog:
    """The latest labels, and those of each entry. All calls come from one event loop."""

    def __init__(self, capacity: int = 10_000, per_entry: int = 32) -> None:
        """An empty log.

        Args:
            capacity: labels that are remembered; the oldest goes first.
            per_entry: labels of one entry that are remembered, likewise.
        """
        self._capacity, self._per_entry = capacity, per_entry
        self._all: deque[LabelRecord] = deque()
        self._of_entry: OrderedDict[str, deque[LabelRecord]] = OrderedDict()

    def __len__(self) -> int:
        """Labels remembered."""
        return len(self._all)

    def __iter__(self) -> Iterator[LabelRecord]:
        """The labels, oldest first."""
        return iter(self._all)

    def add(self, record: LabelRecord) -> None:
        """Remember a label."""
        if len(self._all) == self._capacity:
            oldest = self._all.popleft()
            kept = self._of_entry[oldest.entry_key]
            if kept and kept[0] is oldest:
                kept.popleft()
            if not kept:
                del self._of_entry[oldest.entry_key]
        self._all.append(record)
        self._of_entry.setdefault(record.entry_key, deque(maxlen=self._per_entry)).append(record)

    def of_entry(self, entry_key: str) -> tuple[LabelRecord, ...]:
        """An entry's labels, oldest first."""
        return tuple(self._of_entry.get(entry_key, ()))

    def offset(self, entry_key: str, model: HitModel) -> float:
        """The entry's offset in log odds, by its labels with evidence that the model can read; 0.0 without one."""
        known = [r for r in self.of_entry(entry_key) if r.evidence is not None and r.evidence.names == model.names]
        return model.offset([(model.log_odds(r.evidence), r.right) for r in known if r.evidence is not None])

    def pack(self) -> bytes:
        """The log as msgpack."""
        return msgspec.msgpack.encode((_SCHEMA, list(self._all)))

    def unpack(self, packed: bytes) -> None:
        """Add the labels that `pack` wrote.

        Raises:
            ValueError: they are of another schema, or no labels.
        """
        try:
            schema, records = msgspec.msgpack.decode(packed, type=tuple[int, list[LabelRecord]])
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"the label log cannot be read: {error}") from error
        if schema != _SCHEMA:
            raise ValueError(f"the label log's schema is {schema}; {_SCHEMA} is accepted")
        for record in records:
            self.add(record)
