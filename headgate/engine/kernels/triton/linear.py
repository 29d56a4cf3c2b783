"""Linear layers whose weights are int8 in memory and become the activations' dtype on their way to the product."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.quant.int4 import thin
from headgate.engine.quant.linear import WeightFormat, quantize_rows


@triton.jit
def _weight_only(
    x: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    tokens: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """A program per tile of tokens and outputs; programs that share weights follow each other.

    The integers from -127 to 127 are exact in bfloat16 and float16: only the sums round. An output's scale comes after
    them.
    """
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    real, inside = row < tokens, column < outputs
    step = tl.arange(0, depth)
    line = x + row.to(tl.int64)[:, None] * inputs
    first = weight + column.to(tl.int64)[:, None] * inputs
    sums = tl.zeros([rows, columns], tl.float32)
    for begin in range(0, inputs, depth):
        at = begin + step
        there = at < inputs
        a = tl.load(line + at[None, :], mask=real[:, None] & there[None, :], other=0.0)
        w = tl.load(first + at[None, :], mask=inside[:, None] & there[None, :], other=0)
        sums += tl.dot(a, tl.trans(w.to(a.dtype)), input_precision="ieee")
    sums = sums * tl.load(scales + column, mask=inside, other=0.0)[None, :]
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    place = out + row.to(tl.int64)[:, None] * outputs + column[None, :]
    tl.store(place, sums.to(out.dtype.element_ty), mask=real[:, None] & inside[None, :])


class WeightOnlyLinear:
    """Implements Linear for int8, and for int4 in int8's memory. Activations are not quantised."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> None:
        """`weight` [out_features, in_features] in floating point; the others as in `Kernels.linear`."""
        if fmt == "int4":
            codes = thin(weight, importance)
            self._weight, self._scales = codes.expand()[:, : weight.shape[1]].contiguous(), codes.scales
        else:
            self._weight, scales = quantize_rows(weight)
            self._scales = scales.flatten()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        outputs, inputs = self._weight.shape
        tokens = x.shape[0]
        out = x.new_empty(tokens, outputs)
        if tokens:
            # Few tokens read weights and little else: narrow tiles make the programs that read them many.
            rows, columns, depth = (16, 16, 256) if tokens <= 16 else (64, 64, 64)
            grid = triton.cdiv(tokens, rows), triton.cdiv(outputs, columns)
            _weight_only[grid](
                x.contiguous(), self._weight, self._scales, self._bias, out, tokens, inputs, outputs,
                rows, columns, depth if x.element_size() == 2 else depth // 2, num_stages=3,
            )  # fmt: skip
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales and bias."""
        return self._weight.nbytes + self._scales.nbytes + (self._bias.nbytes if self._bias is not None else 0)
