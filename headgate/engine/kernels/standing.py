"""Steps of any shape up to a bound, whose inputs lie in the same memory on the device each time: they can be recorded.

What is launched depends on the bound alone. A step that has less is filled up: by one more sequence, all of whose
tokens are the same and go to a slot that belongs to nobody.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepBound:
    """The most that a step has.

    Attributes:
        tokens: of all its sequences.
        sequences: whose tokens they are; also the most rows that are wanted.
        blocks: of one sequence.
        table_blocks: of all of them together.
        block_size: slots per block.
        spare: the block that filling goes to.
    """

    tokens: int
    sequences: int
    blocks: int
    table_blocks: int
    block_size: int
    spare: int


class StepNumbers(Protocol):
    """A step's inputs on the host, see `StepInputs`."""

    tokens: array[int]
    positions: array[int]
    slots: array[int]
    rows: array[int]
    counts: list[int]
    contexts: list[int]
    tables: list[array[int]]


class StandingStep(Protocol):
    """The inputs of such a step on the device.

    Attributes:
        bound: see StepBound.
        tokens: int64 [bound.tokens] ids.
        positions: int64, likewise.
        slots: int64, likewise, where their keys and values go.
        rows: int64 [bound.sequences], the tokens whose hidden states are wanted, the first token where there are fewer.
        plan: what `Kernels.paged_attention` takes.
    """

    bound: StepBound
    tokens: Tensor
    positions: Tensor
    slots: Tensor
    rows: Tensor
    plan: Any

    def place(self, numbers: StepNumbers) -> bool:
        """Have the next launches compute this; False, and nothing was done, where it is beyond the bound.

        Waits for nothing.
        """
        ...
