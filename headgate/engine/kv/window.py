"""What of a sequence is still read by layers that look no further back than a window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ROUNDING = 2
"""Blocks beyond those of a window and a step, as neither begins and ends with a block."""


def partial_window(windows: Sequence[int | None], context_length: int) -> int | None:
    """Of a model some of whose layers see all: how far back any of the others does, by each layer's window.

    None where all layers have a window, or none has one that is shorter than the context.
    """
    bounds = [window for window in windows if window is not None and window < context_length]
    return max(bounds) if bounds and len(bounds) < len(windows) else None


@dataclass(frozen=True, slots=True)
class Window:
    """Of the layers of a model that have one.

    Attributes:
        tokens: positions back, itself included, that a token sees in the layer that sees furthest.
        step: most tokens of a sequence in a step.
        block_size: tokens per block.
    """

    tokens: int
    step: int
    block_size: int

    @classmethod
    def of(cls, tokens: int | None, *, step: int, block_size: int, blocks: int, context_length: int) -> Window | None:
        """For a pool of so many blocks, which may make `step` smaller.

        None where sequences keep all: they see all, or the pool has no room for a window and a step of a block.
        """
        if tokens is None or tokens >= context_length:
            return None
        room = (blocks - _ROUNDING) * block_size - tokens
        return cls(tokens, min(step, room), block_size) if room >= min(step, block_size) else None

    @property
    def blocks(self) -> int:
        """Most that a sequence needs at a time."""
        return -(-(self.tokens + self.step) // self.block_size) + _ROUNDING

    def first(self, computed: int) -> int:
        """The first block that is read once so many tokens are computed.

        As if the last block were full as yet that is: who begins behind the same full blocks reads from there on.
        """
        full = computed // self.block_size
        seen = (full * self.block_size - self.tokens + 1) // self.block_size
        return max(0, min(seen, full - 1))

    def readable(self, there: Iterable[bool]) -> int:
        """Of full blocks, by whether each is there: how many make up the longest prefix that can be gone on behind.

        Those from its `first` on are there; those before need not be.
        """
        longest = unbroken = 0
        for count, each in enumerate(there, 1):
            unbroken = unbroken + 1 if each else 0
            if unbroken and count - unbroken <= self.first(count * self.block_size):
                longest = count
        return longest
