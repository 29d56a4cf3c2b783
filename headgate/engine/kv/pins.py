"""Prompts that stay in the prefix cache whatever comes: their full blocks have an owner that never ends by itself."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.tables import KVTables


class Pins:
    """Block tables that are held, by name."""

    def __init__(self, tables: KVTables) -> None:
        self.blocks = 0
        """Blocks that are held, each counted once; may be read from another thread."""
        self._tables = tables
        self._held: dict[str, BlockTable] = {}

    @property
    def tables(self) -> Iterable[BlockTable]:
        """What is held."""
        return self._held.values()

    def add(self, name: str, table: BlockTable, most: int) -> bool:
        """Take over a table but for a block that is not full. False, with nothing changed, beyond `most` blocks, or
        beyond the pages that prompts may hold.

        Where others have read the same meanwhile, theirs are held: nobody would find the duplicates.
        """
        if len({*self._blocks(), *self._tables.findable(table)}) > most:
            return False
        pages, held = self._tables.pages, [*self._held.values(), table]
        if pages is not None and sum(len(each.pages) - each.behind for each in held) > pages.most_held:
            return False
        self._tables.pin(table)
        self._held[name] = table
        self.blocks = len(self._blocks())
        return True

    def drop(self, name: str) -> None:
        """Give a table's blocks back, as those of a sequence that has ended."""
        table = self._held.pop(name, None)
        if table is not None:
            self._tables.release(table)
            self.blocks = len(self._blocks())

    def drop_all(self) -> None:
        """Give all of them back."""
        for name in list(self._held):
            self.drop(name)

    def _blocks(self) -> set[int]:
        return {block for table in self._held.values() for block in table.blocks}
