"""Block pool: every block of the KV cache exists once, from start to end; only its reference count and place change.

A free block keeps its contents and its place in the prefix index until it is taken again. Free blocks form an
intrusive doubly linked list in order of last use, so that a cached block can be revived from the middle in O(1).
"""

from __future__ import annotations

from typing import Protocol


class Contents(Protocol):
    """What is known of what blocks hold."""

    def holds(self, block: int) -> bool:
        """Whether somebody may find what is in it."""
        ...

    def forget(self, block: int) -> None:
        """It is about to be overwritten."""
        ...


class OutOfBlocks(Exception):
    """No free block is left."""


class BlockPool:
    """Reference counts and the LRU free list of `blocks` blocks, numbered from 0."""

    def __init__(self, blocks: int, index: Contents) -> None:
        if blocks < 1:
            raise ValueError(f"blocks must be at least 1, got {blocks}")
        self._index = index
        self._references = [0] * blocks
        # Node `blocks` is the sentinel: its successor is the next block to take, its predecessor the last to go.
        self._next: list[int] = [*range(1, blocks + 1), 0]
        self._previous: list[int] = [blocks, *range(blocks)]
        self._sentinel = blocks
        self.free = blocks
        """Number of blocks with no reference, cached ones included."""

    @property
    def size(self) -> int:
        """Number of blocks."""
        return self._sentinel

    def references(self, block: int) -> int:
        """How many tables use the block."""
        return self._references[block]

    def take(self) -> int:
        """The least recently used free block, with one reference and its old contents forgotten."""
        block = self._next[self._sentinel]
        if block == self._sentinel:
            raise OutOfBlocks
        self._unlink(block)
        self._references[block] = 1
        self._index.forget(block)
        return block

    def share(self, block: int) -> None:
        """One more reference to a block that was found in the prefix index."""
        if self._references[block] == 0:
            self._unlink(block)
        self._references[block] += 1

    def release(self, block: int, *, keep: bool = True) -> None:
        """One reference less. A free block that holds nothing findable, or is not to `keep`, is the next to be taken.

        Any other is the last.
        """
        if self._references[block] < 1:
            raise ValueError(f"block {block} is released but has no reference")
        self._references[block] -= 1
        if self._references[block] == 0:
            self._link(block, last=keep and self._index.holds(block))

    def check(self) -> None:
        """Raise AssertionError unless the free list holds exactly the unreferenced blocks, each once."""
        seen = []
        block = self._next[self._sentinel]
        while block != self._sentinel:
            assert self._next[self._previous[block]] == block, f"block {block} is linked wrongly"
            seen.append(block)
            assert len(seen) <= self.size, "the free list is circular"
            block = self._next[block]
        unreferenced = [b for b, count in enumerate(self._references) if count == 0]
        assert sorted(seen) == unreferenced, "the free list differs from the unreferenced blocks"
        assert len(seen) == self.free, f"{self.free} blocks are counted free, {len(seen)} are listed"

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.free -= 1

    def _link(self, block: int, *, last: bool) -> None:
        before = self._previous[self._sentinel] if last else self._sentinel
        after = self._next[before]
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
        self.free += 1
