"""What of a sequence is still read where no layer looks further back than a window."""

from __future__ import annotations

from dataclasses import dataclass

_ROUNDING = 2
"""Blocks beyond those of a window and a step, as neither begins and ends with a block."""


@dataclass(frozen=True, slots=True)
class Window:
    """Of a model whose layers all have one.

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
