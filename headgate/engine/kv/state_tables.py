"""Block tables of a model that keeps a state of each sequence: blocks are no use without the state at their end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.states import StateSlots
from headgate.engine.kv.tables import KVTables, Tokens


class StateTables(KVTables):
    """Tables that are found as far as a state was kept. Has no tiers."""

    states: StateSlots

    def __init__(
        self, slots: int, blocks: int, block_size: int, key: bytes, *, prefix_cache: bool = True, dtype: str = ""
    ) -> None:
        """`slots`: how many states there is room for, those of sequences included. The rest as of KVTables."""
        super().__init__(blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
        self.states = StateSlots(slots, block_size, key)

    @property
    def admits(self) -> bool:
        """See KVTables: whether a slot is free."""
        return self.states.free > 0

    def attach_prefix(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """See KVTables. Gives it a slot, too; OutOfBlocks where none is free."""
        super().attach_prefix(table, tokens)
        table.found = self.states.begin(table)
        del table.identities[table.found :]
        self.trim(table, table.found * self.block_size)
        return table.found * self.block_size

    def _resident(self, table: BlockTable, tokens: Tokens) -> int:
        self._look_up(table, tokens)
        return self.states.behind(table.identities) * self.block_size

    def publish_tail(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """See KVTables: there is no state at its end."""

    def pin(self, table: BlockTable) -> None:
        """See KVTables. The last state behind its blocks stays as long as these, if there is room for it."""
        super().pin(table)
        self.states.hold(table)

    def release(self, table: BlockTable, *, discard: bool = False, keep: bool = True) -> list[int]:
        """See KVTables. With `discard` the states behind its blocks are not to be trusted either."""
        self.states.end(table, discard=discard)
        return super().release(table, discard=discard, keep=keep)

    def forget(self) -> None:
        """See KVTables."""
        super().forget()
        self.states.forget()

    def check(self, tables: Iterable[BlockTable]) -> None:
        """See KVTables."""
        tables = list(tables)
        super().check(tables)
        self.states.check(table.held for table in tables if table.held is not None)
