"""4-bit linear layers through the compiled operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.quant.int4 import Thinned

# Rounded and packed together, whole panels: what is not packed yet takes twice the room.
_ROWS_AT_A_TIME = 4096


def thin_native(weight: Tensor) -> Thinned:
    """`quant.int4.thin` for float32 or bfloat16 on the CPU, compiled."""
    return Thinned(*torch.ops.headgate.int4_thin(weight))


class NativeInt4Linear:
    """What `Int8Linear.thinned` computes, reading four and a half bits per weight.

    Few rows read the codes as they are and unpack them in registers; many have them written out as int8, some panels at
    a time, for the int8 product. Needs AVX2 (`torch.ops.headgate.int4_vectors()` is not empty).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out_features, in_features] in floating point; it is quantised here."""
        self._outputs = weight.shape[0]
        packed, shift, scales = [], [], []
        for start in range(0, self._outputs, _ROWS_AT_A_TIME):
            thinned = thin_native(weight[start : start + _ROWS_AT_A_TIME])
            parts = torch.ops.headgate.int4_pack(thinned.codes, thinned.steps, thinned.centres)
            packed.append(parts[0])
            shift.append(parts[1])
            scales.append(thinned.scales)
        self._packed, self._shift = torch.cat(packed), torch.cat(shift)
        # Scales of the outputs that only fill the last panel are never read into a result.
        self._scales = F.pad(torch.cat(scales), (0, self._shift.numel() - self._outputs))
        self._bias = bias.contiguous() if bias is not None else None
        self._apply = torch.ops.headgate.int4_linear.default

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        y: Tensor = self._apply(x, self._packed, self._scales, self._shift, self._bias, self._outputs)
        return y

    @property
    def nbytes(self) -> int:
        """Bytes of codes, steps, centres, scales and bias; the shifts are read where rows are many only."""
        tensors = (self._packed, self._scales, self._bias)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)
