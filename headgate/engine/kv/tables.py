"""Block tables: which blocks hold the keys and values of a sequence, and which of them others may reuse."""

from __future__ import annotations

from array import array
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


class KVTables:
    """Gives blocks to sequences, shares full blocks between sequences with equal prefixes, takes them back."""

    def __init__(
        self,
        blocks: int,
        block_size: int,
        key: bytes,
        *,
        prefix_cache: bool = True,
        dtype: str = "",
        states: StateSlots | None = None,
        window: Window | None = None,
        pages: int = 0,
    ) -> None:
        """`block_size`: tokens per block. `key`: secret of the block identities, which `dtype` is a part of too.

        `states`: of a model that keeps a state of each sequence. Blocks are no use then without the state at their end.
        `window`: of a model that reads no further back, and keeps no such state; blocks before it are given back. Or,
        with `pages`, of a model some of whose layers do not: these lie in so many pages, which are given back instead.
        """
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        if window is not None and states is not None:
            raise ValueError("window and states are both given; a model that keeps states keeps all of its blocks")
        if pages and (window is None or window.blocks > pages):
            raise ValueError(f"pages is {pages}, which must be 0, or those of a window and a step of {window}")
        self.block_size = block_size
        self._index = PrefixIndex(key)
        self._pool = BlockPool(blocks, self._index)
        self._prefix_cache = prefix_cache
        self._dtype = dtype
        self.states = states
        self.window = None if pages else window
        """Of a model whose layers all have one."""
        self.pages = WindowPages(pages, blocks, window, self._index) if pages and window is not None else None
        """Of one of which some have one."""
        self.bound = window
        """Of the one or the other."""
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
        """Blocks that a sequence can take now, if it needs no pages."""
        return self._pool.free

    @property
    def free(self) -> tuple[int, int]:
        """Blocks and pages that nobody uses."""
        return self._pool.free, 0 if self.pages is None else self.pages.free

    @property
    def ready_blocks(self) -> int:
        """Blocks that sequences can take now with a page each, where they need them."""
        return self._pool.free if self.pages is None else min(self.free)

    @property
    def admits(self) -> bool:
        """Whether one more sequence can have a state, if the model keeps any."""
        return self.states is None or self.states.free > 0

    def longest(self, context_length: int) -> int:
        """Of so many tokens those of the longest sequence that the pool serves alone."""
        return context_length if self.window is not None else min(context_length, self._pool.size * self.block_size)

    def table(self, tenant: str, adapter: str = "", *, whole: bool = False) -> BlockTable:
        """An empty table. Tenants never share blocks, nor do a model's adapters. `whole`: see BlockTable."""
        return BlockTable(self._index.root(tenant, adapter, self._dtype), whole=whole and self.pages is None)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens occupy."""
        return -(-tokens // self.block_size)

    def most_blocks(self, tokens: int) -> int:
        """Blocks that a sequence that comes to `tokens` tokens needs at a time, unless it keeps the whole."""
        every = self.blocks_for(tokens)
        return every if self.window is None else min(every, self.window.blocks)

    def fits(self, table: BlockTable, tokens: int, spare: int, share: float = 0.0) -> bool:
        """Whether a sequence of `tokens` tokens can `enter`, and leave so many blocks free and such a share of all.

        As many pages, too.
        """
        blocks, pages = self._entering(table, tokens)
        missing = self.blocks_for(blocks) - len(table.blocks)
        if missing + spare + int(self._pool.size * share) > self._pool.free:
            return False
        if self.pages is None:
            return True
        missing = self.blocks_for(pages) - len(table.pages)
        return missing + spare + int(self.pages.total * share) <= self.pages.free

    def enter(self, table: BlockTable, tokens: int) -> bool:
        """Make room for what a sequence of `tokens` tokens needs to begin; False, with nothing changed, if it lacks."""
        return self.extend(table, *self._entering(table, tokens))

    def _entering(self, table: BlockTable, tokens: int) -> tuple[int, int]:
        """Of `tokens` tokens how many need blocks and pages at first: all, or those of the window and a step."""
        if self.bound is None or table.whole:
            return tokens, tokens
        if self.pages is None:
            return (min(tokens, (table.gone + self.bound.blocks) * self.block_size),) * 2
        return tokens, min(tokens, (table.behind + self.bound.blocks) * self.block_size)

    def attach_prefix(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """Fill an empty table with the resident blocks of the longest cached prefix; returns its length in tokens.

        The last token is always left to compute, since its logits are what the sequence waits for.
        """
        if not self._prefix_cache:
            return 0 if self.states is None else self._begin(table)
        size = self.block_size
        if self.bound is not None and not table.whole:
            self._attach_seen(table, self.bound, tokens)
            table.found = len(table.blocks)
            return len(tokens) - 1 if self._claim_tail(table, tokens) else table.found * size
        parent = table.root
        for start in range(0, len(tokens) - size, size):
            parent = self._index.identity(parent, tokens[start : start + size])
            block = self._index.find(parent)
            if block is None:
                break
            self._pool.share(block)
            if self.leaving is not None:
                self.leaving.add(block, parent, table.identities[-1] if table.identities else table.root)
            table.blocks.append(block)
            table.identities.append(parent)
        if self.states is not None:
            return self._begin(table)
        table.found = len(table.blocks)
        return len(tokens) - 1 if self._claim_tail(table, tokens) else table.found * size

    def _attach_seen(self, table: BlockTable, window: Window, tokens: Sequence[int]) -> None:
        """Fill it with the longest prefix of which all is there that whoever goes on behind it reads."""
        table.identities, found = self._seen(table.root, window, tokens)
        first = window.first(len(found) * self.block_size)
        if self.pages is None:
            table.gone = first
        seen = [block for block in found[table.gone :] if block is not None]
        for block in seen:
            self._pool.share(block)
        table.blocks.extend(seen[:1] * table.gone)
        table.blocks.extend(seen)
        if self.pages is not None:
            self.pages.attach(table, first)

    def _seen(
        self, root: bytes, window: Window, tokens: Sequence[int] | NDArray[np.int32]
    ) -> tuple[list[bytes], list[int | None]]:
        """Identities of that prefix's blocks, and those of the blocks that are there: all, where windows have pages."""
        identities, found = list[bytes](), list[int | None]()
        parent, size, unbroken, longest = root, self.block_size, 0, 0
        for start in range(0, len(tokens) - size, size):
            parent = self._index.identity(parent, tokens[start : start + size])
            block = self._index.find(parent)
            if block is None and self.pages is not None:
                break
            identities.append(parent)
            found.append(block)
            unbroken = unbroken + 1 if self._readable(block) else 0
            if unbroken and len(found) - unbroken <= window.first(start + size):
                longest = len(found)
        return identities[:longest], found[:longest]

    def _readable(self, block: int | None) -> bool:
        """Whether it is there for layers that have a window."""
        return block is not None and (self.pages is None or self.pages.there(block))

    def _begin(self, table: BlockTable) -> int:
        """Give it a slot, and leave it those of its blocks that there is a state behind."""
        assert self.states is not None
        table.held, table.found = self.states.begin(table.identities)
        found = len(table.identities)
        if found > table.found:
            table.held.branch = found * self.block_size
            del table.identities[table.found :]
            self.trim(table, table.found * self.block_size)
        return table.found * self.block_size

    def beyond(self, table: BlockTable, tokens: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
        """Identities of the blocks behind those that `attach_prefix` found, and each one's parent's."""
        size = self.block_size
        parent = table.identities[-1] if table.identities else table.root
        for start in range(len(table.identities) * size, len(tokens) - size, size):
            identity = self._index.identity(parent, tokens[start : start + size])
            yield identity, parent
            parent = identity

    def adopt(self, table: BlockTable, chain: Iterable[tuple[bytes, bytes]]) -> None:
        """The blocks behind the full ones hold what these identities say, which `beyond` gave."""
        for identity, parent in chain:
            self._find_by(identity, parent, table.blocks[len(table.identities)])
            table.identities.append(identity)

    def _find_by(self, identity: bytes, parent: bytes, block: int) -> None:
        known = None if self.pages is None else self._index.find(identity)
        if known is not None and known != block and not self._readable(known):
            self._index.forget(known)  # nobody could go on behind it
        # A duplicate that another sequence computed at the same time stays private; the table is append-only.
        if self._index.publish(identity, block) and self.leaving is not None:
            self.leaving.add(block, identity, parent)

    def _claim_tail(self, table: BlockTable, tokens: Sequence[int]) -> bool:
        """Take over the block that `publish_tail` kept of the same tokens, all to itself: it is written to."""
        if table.found < len(tokens) // self.block_size or len(tokens) % self.block_size == 0:
            return False
        block = self._index.find(self._tail(table, tokens))
        if block is None or self._pool.references(block) or not self._readable(block):
            return False
        self._pool.share(block)
        self._index.forget(block)
        table.blocks.append(block)
        if self.pages is not None:
            self.pages.extend(table, 1)
        return True

    def _tail(self, table: BlockTable, tokens: Sequence[int]) -> bytes:
        parent = table.identities[-1] if table.identities else table.root
        return self._index.identity(parent, tokens[len(table.identities) * self.block_size :])

    def resident(self, tenant: str, tokens: Sequence[int], adapter: str = "") -> int:
        """Tokens that `attach_prefix` would find now. Changes nothing, not even what is overwritten first.

        May be called from another thread: what it finds may be gone by the time that it is used.
        """
        if not self._prefix_cache:
            return 0
        size = self.block_size
        known = np.asarray(tokens, dtype=np.int32)
        parent, states, behind = self._index.root(tenant, adapter, self._dtype), self.states, 0
        if self.bound is not None:
            identities, _ = self._seen(parent, self.bound, known)
            if len(identities) < (len(known) - 1) // size:
                return len(identities) * size
            return self._with_tail(identities[-1] if identities else parent, known)
        for start in range(0, len(known) - size, size):
            parent = self._index.identity(parent, known[start : start + size])
            if self._index.find(parent) is None:
                return start if states is None else behind
            if states is not None and states.kept(parent):
                behind = start + size
        return behind if states is not None else self._with_tail(parent, known)

    def _with_tail(self, parent: bytes, known: NDArray[np.int32]) -> int:
        """Tokens that are found where all full blocks are but a last one; `parent` identifies the one before it."""
        size = self.block_size
        if len(known) % size == 0:
            return max(0, len(known) - size)
        tail = self._index.find(self._index.identity(parent, known[len(known) // size * size :]))
        whole = tail is not None and not self._pool.references(tail) and self._readable(tail)
        return len(known) - (1 if whole else len(known) % size)

    def extend(self, table: BlockTable, tokens: int, paged: int | None = None) -> bool:
        """Make room for `tokens` tokens in all. False, with nothing changed, when the pool lacks the blocks.

        `paged`: for how many of them in pages, where there are some; None for all.
        """
        missing = self.blocks_for(tokens) - len(table.blocks)
        if missing > self._pool.free:
            return False
        lacking = 0
        if self.pages is not None:
            lacking = self.blocks_for(tokens if paged is None else paged) - len(table.pages)
            if lacking > self.pages.free:
                return False
        if missing > 0:
            taken = [self._pool.take() for _ in range(missing)]
            table.blocks.extend(taken)
            if self.leaving is not None:
                for block in taken:
                    self.leaving.give(block)
        if self.pages is not None:
            self.pages.extend(table, lacking)
        return True

    def trim(self, table: BlockTable, tokens: int) -> None:
        """Give back the blocks beyond those of the first `tokens` tokens; nothing findable may be in them."""
        kept = self.blocks_for(tokens)
        if self.pages is not None:
            self.pages.trim(table, kept)
        for block in table.blocks[kept:]:
            self._pool.release(block)
        del table.blocks[kept:]

    def give_back(self, table: BlockTable, computed: int, *, keep: bool = True) -> None:
        """Give back the blocks that nothing reads behind `computed` tokens, once those that are full are published.

        Or their pages. `keep`: as of `release`.
        """
        if self.pages is not None:
            self.pages.give_back(table, computed, keep=keep)
            return
        first = 0 if self.window is None or table.whole else self.window.first(computed)
        if first <= table.gone:
            return
        for number in range(table.gone, first):
            block = table.blocks[number]
            self._pool.release(block, keep=keep or number < table.found)
            table.given.append(block)
        table.gone = first
        table.blocks[:first] = array("i", [table.blocks[first]]) * first

    def publish(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Make the blocks findable whose tokens are all among the first `computed` ones."""
        if not self._prefix_cache:
            return
        size = self.block_size
        for number in range(len(table.identities), computed // size):
            parent = table.identities[-1] if table.identities else table.root
            identity = self._index.identity(parent, tokens[number * size : (number + 1) * size])
            self._find_by(identity, parent, table.blocks[number])
            table.identities.append(identity)

    def publish_tail(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Make the last block findable, which these tokens do not fill, for who goes on from exactly them.

        The full blocks are published. Nothing may be written to it any more by this table.
        """
        if self._prefix_cache and self.states is None and len(tokens) % self.block_size:
            self._index.publish(self._tail(table, tokens), table.blocks[len(table.identities)])

    def plan_states(self, table: BlockTable, start: int, stop: int, tokens: int, prompt: int) -> None:
        """Have the state kept that a step over the tokens from `start` to `stop` leaves at the ends of some blocks.

        `tokens`: that are known of the sequence, `prompt` of its prompt.
        """
        held, size = table.held, self.block_size
        if not self._prefix_cache or held is None or self.states is None:
            return
        answered = stop if stop > prompt and stop % size == 0 else 0
        last = (tokens - 1) // size * size
        ends = [end for end in sorted({held.branch, last}) if start < end <= stop and end != answered]
        if ends or answered:
            self.states.plan(held, ends, answered)

    def settle_states(self, table: BlockTable, *, keep: bool) -> None:
        """That step is computed, and what is full is published."""
        if table.held is not None and self.states is not None:
            self.states.settle(table.held, table.identities, self.block_size, keep=keep)

    def hold_state(self, table: BlockTable) -> None:
        """Keep the last state behind its blocks as long as these, if there is room; its own is given back."""
        if table.held is not None and self.states is not None:
            self.states.end(table.held)
            table.held = self.states.hold(table.identities)

    def findable(self, table: BlockTable) -> list[int]:
        """Its full blocks, and in place of duplicates those by which others find the same tokens."""
        found = (self._index.find(identity) for identity in table.identities)
        return [
            own if block is None or not self._readable(block) else block
            for own, block in zip(table.blocks, found, strict=False)
        ]

    def make_findable(self, table: BlockTable) -> None:
        """Have the full blocks of a table be those that others find, as long as it uses them."""
        for number, (block, identity) in enumerate(zip(self.findable(table), table.identities, strict=True)):
            own = table.blocks[number]
            if block == own:
                self._find_by(identity, table.identities[number - 1] if number else table.root, own)
            else:
                self._pool.share(block)
                if self.pages is not None:
                    self.pages.exchange(table, number, block)
                table.blocks[number] = block
                self._pool.release(own)

    def release(self, table: BlockTable, *, discard: bool = False, keep: bool = True) -> list[int]:
        """Give every block back; returns those nobody uses any more.

        Tails go first, so that they are reused before the heads that other sequences are likelier to share.
        `discard` also makes the blocks that only this table used unfindable: their contents are not to be trusted.
        Without `keep` those that it did not find computed are reused before all others, though found until then.
        """
        freed = []
        if self.pages is not None:
            self.pages.release(table, keep=keep and not discard)
        for number in reversed(range(table.gone, len(table.blocks))):
            block = table.blocks[number]
            if self._pool.references(block) == 1:
                freed.append(block)
                if discard:
                    self._index.forget(block)
                if self.leaving is not None and discard:
                    self.leaving.distrust(block)
                elif self.leaving is not None and not keep and number >= table.found:
                    self.leaving.pass_over(block)
            self._pool.release(block, keep=keep or number < table.found)
        if self.states is not None and table.held is not None:
            self.states.end(table.held)
            table.held = None
            if discard:
                for identity in table.identities:
                    self.states.drop(identity)
        if discard:
            for block in set(table.given).difference(freed):
                if not self._pool.references(block):
                    self._index.forget(block)
                    freed.append(block)
        del table.blocks[:], table.given[:]
        table.identities.clear()
        table.found = table.gone = 0
        return freed

    def unused_pages(self, blocks: Iterable[int]) -> list[int]:
        """The pages that these blocks have and nobody uses."""
        return [] if self.pages is None else self.pages.unused(blocks)

    def forget(self) -> None:
        """Nothing that is in the blocks can be found any more. No table may have any."""
        for block in range(self._pool.size):
            self._index.forget(block)
        if self.states is not None:
            self.states.forget()
        if self.leaving is not None:
            self.leaving.forget()

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Raise AssertionError unless the pool's reference counts are exactly the uses by `tables`."""
        self._pool.check()
        tables, uses = list(tables), [0] * self._pool.size
        if self.states is not None:
            self.states.check(table.held for table in tables if table.held is not None)
        for table in tables:
            read = table.blocks[table.gone :]
            assert len(set(read)) == len(read), "a table uses a block twice"
            assert set(table.blocks) == set(read), "a block stands where another was that its table does not use"
            assert len(table.identities) <= len(table.blocks), "a table has more identities than blocks"
            for block in read:
                uses[block] += 1
        counts = [self._pool.references(block) for block in range(self._pool.size)]
        assert uses == counts, "reference counts differ from the tables"
        if self.pages is not None:
            self.pages.check(tables)
        if self.leaving is not None:
            for block, identity in self.leaving.blocks.items():
                assert self._index.find(identity) == block, f"block {block} does not hold what is noted of it"
