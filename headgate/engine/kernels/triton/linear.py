"""Linear layers with int8 or int4 weights, which become the activations' dtype on their way to the product."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.products import Tile, row_product, tile_product
from headgate.engine.kernels.triton.stored import Stored


@triton.jit
def _one_row(
    x: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    groups: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    fmt: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """A program per run of outputs, all of one token."""
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    inside = column < outputs
    sums = row_product(x, weight, groups, column.to(tl.int64), inside, inputs, fmt, columns, depth)
    sums = sums * tl.load(scales + column, mask=inside, other=0.0)
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + column, sums.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rows(
    x: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    groups: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    tokens: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    fmt: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """A program per tile of tokens and outputs; programs that share weights follow each other."""
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    real, inside = row < tokens, column < outputs
    sums = tile_product(x, row, real, weight, groups, column.to(tl.int64), inside, inputs, fmt, rows, columns, depth)
    sums = sums * tl.load(scales + column, mask=inside, other=0.0)[:, None]
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[:, None]
    place = out + row[None, :] * outputs + column[:, None]
    tl.store(place, sums.to(out.dtype.element_ty), mask=real[None, :] & inside[:, None])


class WeightOnlyLinear:
    """Implements Linear for int8 and int4. Activations are not quantised."""

    def __init__(self, weight: Stored, bias: Tensor | None) -> None:
        """`bias` [outputs] in the compute dtype."""
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        weight, tokens = self._weight, x.shape[0]
        inputs, outputs = weight.inputs, weight.outputs
        out, x = x.new_empty(tokens, outputs), x.contiguous()
        given = x, weight.values, weight.scales, weight.groups, self._bias, out
        if tokens == 1:
            tile = Tile.of(1, weight.fmt, x.element_size())
            _one_row[(triton.cdiv(outputs, tile.columns),)](
                *given, inputs, outputs, weight.fmt, tile.columns, tile.depth, num_warps=tile.warps
            )
        elif tokens:
            rows = 16 if tokens <= 16 else 64
            tile = Tile.of(rows, weight.fmt, x.element_size())
            _rows[triton.cdiv(tokens, rows), triton.cdiv(outputs, tile.columns)](
                *given, tokens, inputs, outputs, weight.fmt, rows, tile.columns, tile.depth,
                num_warps=tile.warps, num_stages=3,
            )  # fmt: skip
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales and bias."""
        return self._weight.nbytes + (self._bias.nbytes if self._bias is not None else 0)
