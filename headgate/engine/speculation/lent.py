"""Blocks of a model's cache in which it drafts for another: whoever asks the model itself takes them back."""

from __future__ import annotations

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.tables import KVTables
from headgate.engine.sequence import Sequence


class Lent:
    """The sequences that hold such blocks. The step thread's own."""

    def __init__(self, tables: KVTables) -> None:
        self._tables = tables
        self._sequences = set[Sequence]()

    @property
    def tables(self) -> list[BlockTable]:
        """Those of the sequences."""
        return [sequence.table for sequence in self._sequences]

    def begin(self, sequence: Sequence) -> None:
        """Let a sequence without blocks have what is cached of its tokens."""
        sequence.computed = self._tables.attach_prefix(sequence.table, sequence.tokens)
        self._sequences.add(sequence)

    def extend(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for `tokens` tokens in all; False, with nothing changed, where blocks are not free."""
        return self._tables.extend(sequence.table, tokens)

    def end(self, sequence: Sequence, *, discard: bool = False) -> list[int]:
        """Take a sequence's blocks back; returns those that nobody uses any more. `discard`: as of KVTables."""
        self._sequences.discard(sequence)
        sequence.computed = 0
        return self._tables.release(sequence.table, discard=discard, keep=False)

    def give_way(self) -> bool:
        """Take all blocks back; False where none are lent."""
        if not self._sequences:
            return False
        for sequence in list(self._sequences):
            self.end(sequence)
        return True
