"""What layers remember of a sequence beside keys and values: a state of fixed size, which each token changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StateShape:
    """One of the tensors that a model keeps of a sequence."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of a sequence's."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StepStates:
    """The states of a step's sequences.

    A sequence whose first token is in the step starts without a state, whatever its slot holds.

    Attributes:
        pools: [slots, ...] for each of the model's shapes.
        slots: where each sequence's state is, and where the step leaves it.
        saves: of each sequence, for numbers of its tokens, the further slots that are to have the state behind them.
    """

    pools: Sequence[Tensor]
    slots: Sequence[int]
    saves: Sequence[Sequence[tuple[int, int]]]
