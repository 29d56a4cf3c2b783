"""Block tables: which blocks hold the keys and values of a sequence, and which of them others may reuse.

This is all of it for a model whose layers see the whole context. Others differ in a few methods: `window_tables.py`,
`paged_tables.py` and `state_tables.py` say which, and `kinds.py` chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.cache.prefix import PrefixIndex
from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.leaving import Leaving
from headgate.engine.kv.pages import WindowPages
from headgate.engine.kv.pool import BlockPool
from headgate.engine.kv.states import StateSlots
from headgate.engine.kv.window import Window

Tokens = Sequence[int] | NDArray[np.int32]


class KVTables:
    """Gives blocks to sequences, shares full blocks between sequences with equal prefixes, takes them back."""

    window: Window | None = None
    """Of a model with layers that look no further back."""
    pages: WindowPages | None = None
    """Of one that has others beside them."""
    states: StateSlots | None = None
    """Of one that keeps a state of each sequence."""

    def __init__(self, blocks: int, block_size: int, key: bytes, *, prefix_cache: bool = True, dtype: str = "") -> None:
        """`block_size`: tokens per block. `key`: secret of the block identities, which `dtype` is a part of too."""
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self._index = PrefixIndex(key)
        self._pool = BlockPool(blocks, self._index)
        self._prefix_cache = prefix_cache
        self._dtype = dtype
        self.leaving: Leaving | None = None
        """What is noted for tiers, where there are some."""

    @property
    def shares(self) -> bool:
        """Whether blocks with equal prefixes are found."""
        return self._prefix_cache

    @property
    def total_blocks(self) -> int:
        """Blocks of the pool."""
        return self._pool.size

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody uses."""
        return self._pool.free

    @property
    def free(self) -> tuple[int, ...]:
        """Blocks that nobody uses, and pages where there are some."""
        return (self._pool.free,)

    @property
    def admits(self) -> bool:
        """Whether one more sequence can have what it needs beside blocks."""
        return True

    def longest(self, context_length: int) -> int:
        """Of so many tokens those of the longest sequence that the pool serves alone."""
        return min(context_length, self._pool.size * self.block_size)

    def table(self, tenant: str, adapter: str = "", *, whole: bool = False) -> BlockTable:
        """An empty table. Tenants never share blocks, nor do a model's adapters. `whole`: see BlockTable."""
        return BlockTable(self._index.root(tenant, adapter, self._dtype), whole=whole)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens occupy."""
        return -(-tokens // self.block_size)

    def most_blocks(self, tokens: int) -> int:
        """Blocks that a sequence that comes to `tokens` tokens needs at a time, unless it keeps the whole."""
        return self.blocks_for(tokens)

    def fits(self, table: BlockTable, tokens: int, spare: int, share: float = 0.0) -> bool:
        """Whether a sequence of `tokens` tokens can `enter`, and leave so many blocks free and such a share of all."""
        missing = self.blocks_for(tokens) - len(table.blocks)
        return missing + spare + int(self._pool.size * share) <= self._pool.free

    def enter(self, table: BlockTable, tokens: int) -> bool:
        """Make room for what a sequence of `tokens` tokens needs to begin; False, with nothing changed, if it lacks."""
        return self.extend(table, tokens)

    def extend(self, table: BlockTable, tokens: int) -> bool:
        """Make room for `tokens` tokens in all. False, with nothing changed, when the pool lacks the blocks."""
        missing = self.blocks_for(tokens) - len(table.blocks)
        if missing > self._pool.free:
            return False
        if missing > 0:
            taken = [self._pool.take() for _ in range(missing)]
            table.blocks.extend(taken)
            if self.leaving is not None:
                for block in taken:
                    self.leaving.give(block)
        return True

    def trim(self, table: BlockTable, tokens: int) -> None:
        """Give back the blocks beyond those of the first `tokens` tokens; nothing findable may be in them."""
        kept = self.blocks_for(tokens)
        for block in table.blocks[kept:]:
            self._pool.release(block)
        del table.blocks[kept:]

    def give_back(self, table: BlockTable, computed: int, *, keep: bool = True) -> None:
        """Give back what nothing reads behind `computed` tokens, once full blocks are published: here all is read.

        `keep`: as of `release`.
        """

    def attach_prefix(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """Fill an empty table with the resident blocks of the longest cached prefix; returns its length in tokens.

        The last token is always left to compute, since its logits are what the sequence waits for.
        """
        if not self._prefix_cache:
            return 0
        blocks = self._look_up(table, tokens)
        self._attach(table, blocks)
        if self.leaving is not None:
            for block, identity, parent in zip(blocks, table.identities, (table.root, *table.identities), strict=False):
                self.leaving.add(block, identity, parent)
        tail = self._kept_tail(table, tokens)
        if tail is None:
            return table.found * self.block_size
        # All to itself: it is written to.
        self._pool.share(tail)
        self._index.forget(tail)
        table.blocks.append(tail)
        return len(tokens) - 1

    def resident(self, tenant: str, tokens: Sequence[int], adapter: str = "") -> int:
        """Tokens that `attach_prefix` would find now. Changes nothing, not even what is overwritten first.

        May be called from another thread: what it finds may be gone by the time that it is used.
        """
        if not self._prefix_cache:
            return 0
        return self._resident(self.table(tenant, adapter), np.asarray(tokens, dtype=np.int32))

    def _resident(self, table: BlockTable, tokens: Tokens) -> int:
        blocks = self._look_up(table, tokens)
        return len(blocks) * self.block_size if self._kept_tail(table, tokens) is None else len(tokens) - 1

    def _look_up(self, table: BlockTable, tokens: Tokens) -> list[int]:
        """The blocks of the longest resident prefix; their identities become those of an empty table."""
        blocks = list[int]()
        for identity, _ in self.beyond(table, tokens):
            block = self._index.find(identity)
            if block is None:
                break
            blocks.append(block)
            table.identities.append(identity)
        return blocks

    def _attach(self, table: BlockTable, blocks: Sequence[int]) -> None:
        """They were looked up for it."""
        for block in blocks:
            self._pool.share(block)
        table.blocks.extend(blocks)
        table.found = len(table.blocks)

    def _kept_tail(self, table: BlockTable, tokens: Tokens) -> int | None:
        """The block that `publish_tail` kept of these very tokens, if all full ones were found and nobody uses it."""
        if len(tokens) % self.block_size == 0 or len(table.identities) < len(tokens) // self.block_size:
            return None
        block = self._findable(self._tail(table, tokens))
        return None if block is None or self._pool.references(block) else block

    def _tail(self, table: BlockTable, tokens: Tokens) -> bytes:
        """The identity of what is behind its full blocks."""
        return self._index.identity(table.end, tokens[len(table.identities) * self.block_size :])

    def beyond(self, table: BlockTable, tokens: Tokens) -> Iterator[tuple[bytes, bytes]]:
        """Identities of the blocks behind those that `attach_prefix` found, and each one's parent's."""
        size, parent = self.block_size, table.end
        for start in range(len(table.identities) * size, len(tokens) - size, size):
            identity = self._index.identity(parent, tokens[start : start + size])
            yield identity, parent
            parent = identity

    def adopt(self, table: BlockTable, chain: Iterable[tuple[bytes, bytes]]) -> None:
        """The blocks behind the full ones hold what these identities say, which `beyond` gave."""
        for identity, parent in chain:
            self._publish(identity, parent, table.blocks[len(table.identities)])
            table.identities.append(identity)

    def publish(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Make the blocks findable whose tokens are all among the first `computed` ones."""
        if not self._prefix_cache:
            return
        size = self.block_size
        for number in range(len(table.identities), computed // size):
            identity = self._index.identity(table.end, tokens[number * size : (number + 1) * size])
            self._publish(identity, table.end, table.blocks[number])
            table.identities.append(identity)

    def publish_tail(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Make the last block findable, which these tokens do not fill, for who goes on from exactly them.

        The full blocks are published. Nothing may be written to it any more by this table.
        """
        if self._prefix_cache and len(tokens) % self.block_size:
            self._index.publish(self._tail(table, tokens), table.blocks[len(table.identities)])

    def _publish(self, identity: bytes, parent: bytes, block: int) -> None:
        # A duplicate that another sequence computed at the same time stays private; the table is append-only.
        if self._index.publish(identity, block) and self.leaving is not None:
            self.leaving.add(block, identity, parent)

    def _findable(self, identity: bytes) -> int | None:
        """The block with this identity, if others can go on behind it."""
        return self._index.find(identity)

    def findable(self, table: BlockTable) -> list[int]:
        """Its full blocks, and in place of duplicates those by which others find the same tokens."""
        found = map(self._findable, table.identities)
        return [own if block is None else block for own, block in zip(table.blocks, found, strict=False)]

    def pin(self, table: BlockTable) -> None:
        """Have a table keep its full blocks alone, as those that others find for as long as it has them."""
        self.trim(table, len(table.identities) * self.block_size)
        for number, (block, identity) in enumerate(zip(self.findable(table), table.identities, strict=True)):
            if block == table.blocks[number]:
                self._publish(identity, table.identities[number - 1] if number else table.root, block)
            else:
                self._exchange(table, number, block)

    def _exchange(self, table: BlockTable, number: int, block: int) -> None:
        """Have it use this block, which holds the same, in the place of one of its own."""
        self._pool.share(block)
        self._pool.release(table.blocks[number])
        table.blocks[number] = block

    def release(self, table: BlockTable, *, discard: bool = False, keep: bool = True) -> list[int]:
        """Give every block back; returns those nobody uses any more.

        Tails go first, so that they are reused before the heads that other sequences are likelier to share.
        `discard` also makes the blocks that only this table used unfindable: their contents are not to be trusted.
        Without `keep` those that it did not find computed are reused before all others, though found until then.
        """
        freed = []
        for number in reversed(range(len(table.blocks))):
            block, kept = table.blocks[number], keep or number < table.found
            if self._pool.references(block) == 1:
                freed.append(block)
                if discard:
                    self._index.forget(block)
                if self.leaving is not None and discard:
                    self.leaving.distrust(block)
                elif self.leaving is not None and not kept:
                    self.leaving.pass_over(block)
            self._pool.release(block, keep=kept)
        del table.blocks[:]
        table.identities.clear()
        table.found = 0
        return freed

    def unused_pages(self, blocks: Iterable[int]) -> list[int]:  # noqa: ARG002
        """The pages that these blocks have and nobody uses: here they have none."""
        return []

    def forget(self) -> None:
        """Nothing that is in the blocks can be found any more. No table may have any."""
        for block in range(self._pool.size):
            self._index.forget(block)
        if self.leaving is not None:
            self.leaving.forget()

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Raise AssertionError unless the pool's reference counts are exactly the uses by `tables`."""
        self._pool.check()
        uses = [0] * self._pool.size
        for table in tables:
            assert len(set(table.blocks)) == len(table.blocks), "a table uses a block twice"
            assert len(table.identities) <= len(table.blocks), "a table has more identities than blocks"
            for block in table.blocks:
                uses[block] += 1
        counts = [self._pool.references(block) for block in range(self._pool.size)]
        assert uses == counts, "reference counts differ from the tables"
        if self.leaving is not None:
            for block, identity in self.leaving.blocks.items():
                assert self._index.find(identity) == block, f"block {block} does not hold what is noted of it"
