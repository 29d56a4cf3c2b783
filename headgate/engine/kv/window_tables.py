"""Block tables of a model whose layers all have a window: blocks before it are given back while a sequence runs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.tables import KVTables, Tokens
from headgate.engine.kv.window import Window


class WindowTables(KVTables):
    """Tables that lack their leading blocks, but for those that are to be `whole`. Has no tiers."""

    window: Window

    def __init__(
        self, window: Window, blocks: int, block_size: int, key: bytes, *, prefix_cache: bool = True, dtype: str = ""
    ) -> None:
        """`window`: of the layer that looks furthest back. The rest as of KVTables."""
        super().__init__(blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
        self.window = window

    def longest(self, context_length: int) -> int:
        """See KVTables: no sequence needs more than the blocks of a window and a step."""
        return context_length

    def most_blocks(self, tokens: int) -> int:
        """See KVTables."""
        return min(self.blocks_for(tokens), self.window.blocks)

    def fits(self, table: BlockTable, tokens: int, spare: int, share: float = 0.0) -> bool:
        """See KVTables."""
        return super().fits(table, self._at_first(table, tokens), spare, share)

    def enter(self, table: BlockTable, tokens: int) -> bool:
        """See KVTables: with room for a window and a step."""
        return self.extend(table, self._at_first(table, tokens))

    def _at_first(self, table: BlockTable, tokens: int) -> int:
        return tokens if table.whole else min(tokens, (table.gone + self.window.blocks) * self.block_size)

    def give_back(self, table: BlockTable, computed: int, *, keep: bool = True) -> None:
        """See KVTables: the blocks before the window."""
        first = 0 if table.whole else self.window.first(computed)
        if first <= table.gone:
            return
        for number in range(table.gone, first):
            block = table.blocks[number]
            self._pool.release(block, keep=keep or number < table.found)
            table.given.append(block)
        table.gone = first
        table.blocks[:first] = array("i", [table.blocks[first]]) * first

    def _look_up(self, table: BlockTable, tokens: Tokens) -> list[int]:
        """Of the longest prefix of which all is there that whoever goes on behind it reads; -1 for what is not."""
        if table.whole:
            return super()._look_up(table, tokens)
        identities = [identity for identity, _ in self.beyond(table, tokens)]
        blocks = [-1 if (block := self._index.find(identity)) is None else block for identity in identities]
        count = self.window.readable(block >= 0 for block in blocks)
        table.identities = identities[:count]
        return blocks[:count]

    def _attach(self, table: BlockTable, blocks: Sequence[int]) -> None:
        first = 0 if table.whole else self.window.first(len(blocks) * self.block_size)
        super()._attach(table, blocks[first:])
        table.blocks[:0] = table.blocks[:1] * first
        table.gone, table.found = first, len(blocks)

    def release(self, table: BlockTable, *, discard: bool = False, keep: bool = True) -> list[int]:
        """See KVTables. With `discard` what was given back is not to be trusted either."""
        del table.blocks[: table.gone]
        table.found = max(0, table.found - table.gone)
        freed = super().release(table, discard=discard, keep=keep)
        if discard:
            for block in set(table.given).difference(freed):
                if not self._pool.references(block):
                    self._index.forget(block)
                    freed.append(block)
        del table.given[:]
        table.gone = 0
        return freed

    def check(self, tables: Iterable[BlockTable]) -> None:
        """See KVTables."""
        read = list[BlockTable]()
        for table in tables:
            blocks = table.blocks[table.gone :]
            assert set(table.blocks) == set(blocks), "a block stands where another was that its table does not use"
            assert len(table.identities) <= len(table.blocks), "a table has more identities than blocks"
            read.append(replace(table, blocks=blocks, identities=table.identities[table.gone :]))
        super().check(read)
