"""What layers remember of a sequence beside keys and values: a state of fixed size, which each token changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headgate.engine.models.delta import GatedDelta


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


class DeltaPasses(Protocol):
    """Has a step's rows pass the layers of the gated delta rule, and keeps their states."""

    def __call__(self, layer: GatedDelta, mixed: Tensor, gates: Tensor) -> Tensor:
        """What the layer gives its output projection, [rows, values].

        mixed [rows, channels + values]: queries, keys and values before the convolution, then gates of what is read
        out. gates [rows, 2 * value_heads]: strengths, then decays.
        """
        ...
