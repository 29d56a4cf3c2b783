"""Weights as the products read them: plain or in 8 or 4 bits, for one layer or for all its experts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.int4 import Thinned, thin
from headgate.engine.quant.linear import WeightFormat, quantize_rows
from headgate.engine.quant.mxfp4 import Mxfp4Weight

Fp8Format = Literal["fp8 rows", "fp8 blocks"]
StoredFormat = WeightFormat | Fp8Format | Literal["mxfp4"]

_CODES = 8
"""Codes in a word."""


@dataclass(frozen=True, slots=True)
class Stored:
    """[outputs, inputs] weights of a layer, or [experts, outputs, inputs] of its experts, in one format.

    Attributes:
        values: in the compute dtype, int8 or e4m3, as they are; of int4 and MXFP4 int32 words of the codes of eight
            inputs that follow each other, the first in the lowest bits. The last group is filled up: its further
            inputs count as 0.
        scales: float32 [..., outputs]; those of fp8 blocks, of which experts have whole ones, [..., blocks of outputs,
            blocks of inputs]; None for the compute dtype's and MXFP4.
        groups: int16 [..., outputs, groups] of int4, a group's step in the low byte and its centre in the high one;
            uint8 of MXFP4, the exponents of their scales.
    """

    fmt: StoredFormat
    inputs: int
    values: Tensor
    scales: Tensor | None = None
    groups: Tensor | None = None

    @classmethod
    def of(cls, weight: Tensor, fmt: WeightFormat, importance: Tensor | None = None) -> Stored:
        """`weight` [outputs, inputs] in floating point; the others as in `Kernels.linear`."""
        inputs = weight.shape[1]
        if fmt == "native":
            return cls(fmt, inputs, weight)
        if fmt == "int4":
            return cls(fmt, inputs, *_packed(thin(weight, importance)))
        values, scales = quantize_rows(weight)
        return cls(fmt, inputs, values, scales.flatten())

    @classmethod
    def of_fp8(cls, weight: Fp8Weight) -> Stored:
        """A checkpoint's own."""
        fmt: Fp8Format = "fp8 blocks" if weight.blocks else "fp8 rows"
        return cls(fmt, weight.values.shape[1], weight.values.contiguous(), weight.scales.contiguous())

    @classmethod
    def of_mxfp4(cls, weight: Mxfp4Weight) -> Stored:
        """A checkpoint's own."""
        words = weight.blocks.contiguous().view(torch.int32).flatten(1)
        return cls("mxfp4", weight.inputs, words, None, weight.scales.contiguous())

    def room(self, experts: int) -> Stored:
        """For so many weights like this one, to be `put` there: they need not be in memory together before."""
        values, *others = (t.new_empty(experts, *t.shape) if t is not None else None for t in self.tensors)
        assert values is not None
        return Stored(self.fmt, self.inputs, values, *others)

    def put(self, expert: int, weight: Stored) -> None:
        """Copy an expert's weight to its place."""
        for kept, part in zip(self.tensors, weight.tensors, strict=True):
            if kept is not None and part is not None:
                kept[expert].copy_(part)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The values and what belongs to them."""
        return tuple(getattr(self, field.name) for field in fields(self)[2:])

    @property
    def fp8(self) -> Fp8Format | None:
        """The format if it is one of fp8."""
        return self.fmt if self.fmt == "fp8 rows" or self.fmt == "fp8 blocks" else None

    @property
    def outputs(self) -> int:
        """Of the layer, or of one expert."""
        return self.values.shape[-2]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)


def _packed(codes: Thinned) -> tuple[Tensor, Tensor, Tensor]:
    """`Stored`'s values, scales and groups."""
    nibbles = codes.codes.view(codes.codes.shape[0], -1, _CODES).int()
    shifts = torch.arange(0, 4 * _CODES, 4, dtype=torch.int32, device=nibbles.device)
    # Bits of different places: their sum is their union, and the highest may overflow into the sign.
    words = (nibbles << shifts).sum(dim=2, dtype=torch.int32)
    return words, codes.scales, codes.steps.to(torch.int16) | (codes.centres.to(torch.int16) << 8)
