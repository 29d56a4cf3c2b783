"""Linear layers of bfloat16, 8 and 4 bits per weight with packed weights, each one compiled operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headgate.engine.quant.linear import PackedWeight


@dataclass(frozen=True, slots=True)
class Parts:
    """What a layer is made of, for whoever puts layers together: its format, packed weights first, and its bias."""

    fmt: str
    weight: tuple[Tensor, ...]
    bias: Tensor | None


class NativeBf16Linear:
    """A bfloat16 layer with its weights in panels, summed in float32. A row's result depends on that row alone."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [outputs, inputs] and `bias` [outputs], both bfloat16."""
        self._outputs = weight.shape[0]
        self._packed = torch.ops.headgate.bf16_pack(weight.contiguous())
        self._bias = bias.contiguous() if bias is not None else None
        self._apply: Callable[..., Tensor] = torch.ops.headgate.bf16_linear.default
        self.parts = Parts("bfloat16", (self._packed,), self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return self._apply(x, self._packed, self._bias, self._outputs)

    @property
    def nbytes(self) -> int:
        """Bytes of weights and bias."""
        return sum(tensor.nbytes for tensor in (self._packed, self._bias) if tensor is not None)


class NativeInt8Linear:
    """What `Int8Linear` computes, in one operator: rows quantised, multiplied, scaled and the bias added.

    Needs AVX2 (`torch.ops.headgate.int8_usable()`); AVX-512 VNNI and AMX are used where they are.
    """

    def __init__(self, weight: PackedWeight, outputs: int, bias: Tensor | None = None) -> None:
        """`weight` from `pack_int8`, of so many outputs; `bias` [outputs] in the dtype of the activations."""
        self._weight = weight
        self._outputs = outputs
        self._bias = bias.contiguous() if bias is not None else None
        self._apply: Callable[..., Tensor] = torch.ops.headgate.int8_linear.default
        self.parts = Parts("int8", (weight.packed, weight.scales, weight.shift), self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        weight = self._weight
        return self._apply(x, weight.packed, weight.scales, weight.shift, self._bias, self._outputs)

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales, shifts and bias."""
        weight = self._weight
        bias = self._bias.nbytes if self._bias is not None else 0
        return weight.packed.nbytes + weight.scales.nbytes + weight.shift.nbytes + bias


class NativeInt4Linear:
    """What `Int8Linear.thinned` computes, reading four and a half bits per weight.

    Few rows read the codes as they are and unpack them in registers; many have them written out as int8, some panels at
    a time, for the int8 product. Needs AVX2 (`torch.ops.headgate.int4_vectors()` is not empty).
    """

    def __init__(self, weight: PackedWeight, outputs: int, bias: Tensor | None = None) -> None:
        """`weight` from `pack_int4`, of so many outputs; `bias` [outputs] in the dtype of the activations."""
        self._weight = weight
        self._outputs = outputs
        self._bias = bias.contiguous() if bias is not None else None
        self._apply: Callable[..., Tensor] = torch.ops.headgate.int4_linear.default
        self.parts = Parts("int4", (weight.packed, weight.scales, weight.shift), self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        weight = self._weight
        return self._apply(x, weight.packed, weight.scales, weight.shift, self._bias, self._outputs)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, steps, centres, scales and bias; the shifts are read where rows are many only."""
        bias = self._bias.nbytes if self._bias is not None else 0
        return self._weight.packed.nbytes + self._weight.scales.nbytes + bias


def pack_int8(weight: Tensor) -> PackedWeight:
    """`weight` [outputs, inputs] in float32 or bfloat16, rounded as `quantize_rows` does, panel by panel."""
    packed, scales, shift = torch.ops.headgate.int8_pack(weight.contiguous())
    return PackedWeight(packed, scales, shift)


def pack_int4(weight: Tensor, importance: Tensor | None = None) -> PackedWeight:
    """`weight` [outputs, inputs] in float32 or bfloat16, rounded as `quant.int4.thin` does, panel by panel."""
    packed, scales, shift = torch.ops.headgate.int4_pack(weight.contiguous(), importance)
    return PackedWeight(packed, scales, shift)
