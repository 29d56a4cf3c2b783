"""Block tables of a model of which some layers have a window: what these keep lies in pages, which are given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.pages import WindowPages
from headgate.engine.kv.tables import KVTables, Tokens
from headgate.engine.kv.window import Window


class PagedTables(KVTables):
    """Tables that have all of their blocks, and pages for those that lie in the window. Has no tiers."""

    window: Window
    pages: WindowPages

    def __init__(
        self,
        window: Window,
        pages: int,
        blocks: int,
        block_size: int,
        key: bytes,
        *,
        prefix_cache: bool = True,
        dtype: str = "",
    ) -> None:
        """`window`: of the layer that looks furthest back of those that have one. The rest as of KVTables."""
        super().__init__(blocks, block_size, key, prefix_cache=prefix_cache, dtype=dtype)
        if pages < window.blocks:
            raise ValueError(f"pages is {pages}, which must be at least those of a window and a step, {window.blocks}")
        self.window = window
        self.pages = WindowPages(pages, blocks, window, self._index)

    @property
    def free(self) -> tuple[int, ...]:
        """See KVTables."""
        return self._pool.free, self.pages.free

    def fits(self, table: BlockTable, tokens: int, spare: int, share: float = 0.0) -> bool:
        """See KVTables: and leave as many pages."""
        missing = self.blocks_for(self._at_first(table, tokens)) - len(table.pages)
        paged = missing + spare + int(self.pages.total * share) <= self.pages.free
        return paged and super().fits(table, tokens, spare, share)

    def enter(self, table: BlockTable, tokens: int) -> bool:
        """See KVTables: with pages for a window and a step."""
        return self.extend(table, tokens, self._at_first(table, tokens))

    def _at_first(self, table: BlockTable, tokens: int) -> int:
        return min(tokens, (table.behind + self.window.blocks) * self.block_size)

    def extend(self, table: BlockTable, tokens: int, paged: int | None = None) -> bool:
        """See KVTables. `paged`: for how many of the tokens in pages; None for all."""
        lacking = self.blocks_for(tokens if paged is None else paged) - len(table.pages)
        if lacking > self.pages.free or not super().extend(table, tokens):
            return False
        self.pages.extend(table, lacking)
        return True

    def trim(self, table: BlockTable, tokens: int) -> None:
        """See KVTables."""
        self.pages.trim(table, self.blocks_for(tokens))
        super().trim(table, tokens)

    def give_back(self, table: BlockTable, computed: int, *, keep: bool = True) -> None:
        """See KVTables: the pages of the blocks before the window."""
        self.pages.give_back(table, computed, keep=keep)

    def attach_prefix(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """See KVTables: as far as the pages of its last window are there."""
        cached = super().attach_prefix(table, tokens)
        self.pages.attach(table, self.window.first(len(table.identities) * self.block_size))
        return cached

    def _look_up(self, table: BlockTable, tokens: Tokens) -> list[int]:
        blocks = super()._look_up(table, tokens)
        count = self.window.readable(map(self.pages.there, blocks))
        del blocks[count:], table.identities[count:]
        return blocks

    def _findable(self, identity: bytes) -> int | None:
        block = self._index.find(identity)
        return block if block is not None and self.pages.there(block) else None

    def _publish(self, identity: bytes, parent: bytes, block: int) -> None:
        known = self._index.find(identity)
        if known is not None and known != block and not self.pages.there(known):
            self._index.forget(known)  # nobody could go on behind it
        super()._publish(identity, parent, block)

    def _exchange(self, table: BlockTable, number: int, block: int) -> None:
        self.pages.exchange(table, number, block)
        super()._exchange(table, number, block)

    def release(self, table: BlockTable, *, discard: bool = False, keep: bool = True) -> list[int]:
        """See KVTables."""
        self.pages.release(table, keep=keep and not discard)
        return super().release(table, discard=discard, keep=keep)

    def unused_pages(self, blocks: Iterable[int]) -> list[int]:
        """See KVTables."""
        return self.pages.unused(blocks)

    def check(self, tables: Iterable[BlockTable]) -> None:
        """See KVTables."""
        tables = list(tables)
        super().check(tables)
        self.pages.check(tables)
