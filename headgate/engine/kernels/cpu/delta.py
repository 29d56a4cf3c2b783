"""Layers of the gated delta rule by the compiled operator: sequences and heads side by side, states in place."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch
from headgate.engine.models.state_passes import spans_of

if TYPE_CHECKING:
    from headgate.engine.models.delta import GatedDelta
    from headgate.engine.models.spec import DeltaSpec

_LANES, _TAPS = 16, 8
"""The operator's kMaxLanes and kMaxTaps."""


class CpuDeltaPasses:
    """Implements DeltaPasses: one call per layer, whatever the step has of prompts and single tokens.

    A token gets the same bits however its prompt is cut.
    """

    def __init__(self, spec: DeltaSpec, batch: AttentionBatch, rule: Callable[..., Tensor]) -> None:
        """`rule`: the operator. A batch without states is of sequences that end with it."""
        spans, begins, count = array("q"), array("q", [0]), 0
        for number, parts in enumerate(spans_of(batch, singly=False)):
            for part in parts:
                slot = number if batch.states is None else part.slot
                spans.extend((part.rows.start, part.rows.stop - part.rows.start, slot if part.begun else -1, slot))
                for save in part.saves:
                    spans.extend((part.rows.stop, 0, slot, save))
                count += 1 + len(part.saves)
            begins.append(count)
        self._spans = torch.frombuffer(spans, dtype=torch.int64).view(-1, 4)
        self._begins = torch.frombuffer(begins, dtype=torch.int64)
        self._rule = rule
        # Of all layers; or of one, since sequences without states begin anew in each.
        self._pools: Sequence[Tensor] = (
            [torch.empty(len(batch.counts), *each.shape, dtype=each.dtype) for each in spec.state_shapes]
            if batch.states is None
            else batch.states.pools
        )
        self._passing = batch.states is None

    @staticmethod
    def takes(spec: DeltaSpec) -> bool:
        """Whether the operator has heads of this kind."""
        return spec.key_dim % _LANES == 0 and spec.value_dim % _LANES == 0 and spec.convolved <= _TAPS

    def __call__(self, layer: GatedDelta, mixed: Tensor, gates: Tensor) -> Tensor:
        """See DeltaPasses."""
        place = 0 if self._passing else layer.place
        inputs, states = self._pools[place : place + 2]
        weights = layer.convolution, layer.decay, layer.decay_bias, layer.norm
        return self._rule(mixed, gates, inputs, states, self._spans, self._begins, *weights, layer.norm_eps)
