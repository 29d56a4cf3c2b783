"""Pages: where layers that have a window keep keys and values, in models of which other layers see all.

A block of the pool holds what layers without a window keep of its tokens. What the others keep lies in a page, which it
has as long as somebody reads it there, and then until another block needs a page: the one that was read last goes last.
A block that others find may have lost its page. It is in the midst of what they find then, not within a window of its
end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from headgate.cache.prefix import PrefixIndex
from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.pool import BlockPool
from headgate.engine.kv.window import Window


class WindowPages:
    """Which block has which page, and who uses it. Only `KVTables` changes it."""

    def __init__(self, pages: int, blocks: int, window: Window, index: PrefixIndex) -> None:
        """`index`: by which others find blocks."""
        self.window = window
        self._pool = BlockPool(pages, self)
        self._index = index
        self._page_of = array("i", [-1]) * blocks
        self._block_of = array("i", [-1]) * pages

    @property
    def total(self) -> int:
        """Pages of the pool."""
        return self._pool.size

    @property
    def free(self) -> int:
        """Pages that nobody reads."""
        return self._pool.free

    @property
    def most_held(self) -> int:
        """Of how many pages prompts may hold that are to stay: half of them, and not those that a sequence needs."""
        return max(0, min(self.total // 2, self.total - self.window.blocks))

    def there(self, block: int) -> bool:
        """Whether the block has a page."""
        return self._page_of[block] >= 0

    def attach(self, table: BlockTable, first: int) -> None:
        """Its blocks are those of a prefix that was found, of which it reads pages from the `first` block on."""
        pages = [self._use(block) for block in table.blocks[first:]]
        table.pages.extend([*pages[:1] * first, *pages])
        table.behind = first

    def extend(self, table: BlockTable, count: int) -> None:
        """Give the next `count` of its blocks, which it has, pages; so many are free."""
        first = len(table.pages)
        table.pages.extend([self._use(block) for block in table.blocks[first : first + max(0, count)]])

    def trim(self, table: BlockTable, kept: int) -> None:
        """Give back the pages of all blocks but its first `kept` ones."""
        for block in table.blocks[max(kept, table.behind) : len(table.pages)]:
            self._release(block)
        del table.pages[kept:]
        table.behind = min(table.behind, kept)

    def give_back(self, table: BlockTable, computed: int, *, keep: bool) -> None:
        """Give back the pages that nothing reads behind `computed` tokens. `keep`: as of `release`."""
        first = self.window.first(computed)
        if first <= table.behind:
            return
        for number in range(table.behind, first):
            self._release(table.blocks[number], keep=keep or number < table.found)
        table.behind = first
        self._stand_in(table)

    def exchange(self, table: BlockTable, number: int, block: int) -> None:
        """This block, which has a page, is about to take the place of one of its blocks that holds the same."""
        if number >= table.behind:
            table.pages[number] = self._use(block)
            self._release(table.blocks[number])
            self._stand_in(table)

    def release(self, table: BlockTable, *, keep: bool) -> None:
        """Give all of its pages back. Without `keep` those of blocks that it did not find are the first to be taken."""
        for number in reversed(range(table.behind, len(table.pages))):
            self._release(table.blocks[number], keep=keep or number < table.found)
        del table.pages[:]
        table.behind = 0

    def unused(self, blocks: Iterable[int]) -> list[int]:
        """The pages that these blocks have and nobody uses."""
        found = (self._page_of[block] for block in blocks)
        return [page for page in found if page >= 0 and not self._pool.references(page)]

    def holds(self, page: int) -> bool:
        """Whether the page is of a block that others find; the pool asks."""
        return self._index.holds(self._block_of[page])

    def forget(self, page: int) -> None:
        """Another block gets the page; the pool says so."""
        block = self._block_of[page]
        if block >= 0:
            self._page_of[block] = self._block_of[page] = -1

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Raise AssertionError unless the pages that these tables use are all that is used."""
        self._pool.check()
        uses = [0] * self.total
        for table in tables:
            behind, count = table.behind, len(table.pages)
            assert count <= len(table.blocks), "a table has more pages than blocks"
            assert set(table.pages[:behind]) <= {*table.pages[behind:][:1]}, "a page stands there that may be another's"
            for block, page in zip(table.blocks[behind:count], table.pages[behind:], strict=True):
                assert self._page_of[block] == page, f"block {block} has another page than {page}"
                uses[page] += 1
        assert uses == [self._pool.references(page) for page in range(self.total)], "pages are lost or held twice"
        for block, page in enumerate(self._page_of):
            assert page < 0 or self._block_of[page] == block, f"page {page} is of two blocks"

    def _use(self, block: int) -> int:
        """One more use of the block's page, which it gets now if it has none."""
        page = self._page_of[block]
        if page < 0:
            page = self._pool.take()
            self._page_of[block], self._block_of[page] = page, block
        else:
            self._pool.share(page)
        return page

    def _release(self, block: int, *, keep: bool = True) -> None:
        """One use less. A page of a block that nobody finds, or that is not to `keep`, is the next to be taken."""
        self._pool.release(self._page_of[block], keep=keep)

    def _stand_in(self, table: BlockTable) -> None:
        """In the places of pages that it has not, as kernels look at keys that they mask."""
        if table.behind:
            table.pages[: table.behind] = array("i", [table.pages[table.behind]]) * table.behind
