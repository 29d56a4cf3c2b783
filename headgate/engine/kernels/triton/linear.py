"""Linear layers with rounded weights: int8, int4 or fp8."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.products import Tile, row_product, tile_product
from headgate.engine.kernels.triton.rows import Rounded, exact, taken
from headgate.engine.kernels.triton.stock import StockProduct
from headgate.engine.kernels.triton.stored import Fp8Format, Stored

_FEW = 64
"""Tokens up to which tiles of ours read fp8 weights with more programs than stock products have."""
_ROWS = (1, 1), (16, 16), (256, 64), (sys.maxsize, 128)
"""Rows of a tile by the most tokens that it is for."""


@triton.jit
def _one_row(
    x: tl.tensor,
    x_scales: tl.tensor,
    span: tl.tensor,
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
    sums = row_product(
        x, x_scales, span, weight, scales, groups, column.to(tl.int64), inside, inputs, fmt, columns, depth
    )
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + column, sums.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rows(
    x: tl.tensor,
    x_scales: tl.tensor,
    span: tl.tensor,
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
    sums = tile_product(
        x, x_scales, span, row, real, weight, scales, groups, column.to(tl.int64), inside, inputs, fmt, rows, columns,
        depth,
    )  # fmt: skip
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[:, None]
    place = out + row[None, :] * outputs + column[:, None]
    tl.store(place, sums.to(out.dtype.element_ty), mask=real[None, :] & inside[:, None])


class StoredLinear:
    """Implements Linear for rounded weights. Activations stay as they are for int8 and int4, and for fp8 become fp8."""

    def __init__(self, weight: Stored, bias: Tensor | None, stock: StockProduct | None = None) -> None:
        """`bias` [outputs] in the compute dtype; `stock`: torch's product for many tokens, where it has one."""
        self._weight, self._bias, self._stock = weight, bias, stock

    @property
    def takes(self) -> Fp8Format | None:
        """As what rows come best; None for as they are."""
        return self._weight.fp8

    def __call__(self, x: Tensor | Rounded) -> Tensor:
        """Apply the layer to plain rows, or to rounded ones."""
        weight, plain = self._weight, exact(x)
        tokens = plain.shape[0]
        x = x if isinstance(x, Rounded) else x.contiguous()
        if self._stock is not None and tokens > _FEW and plain.dtype == torch.bfloat16:
            return self._stock(x, self._bias)
        out = plain.new_empty(tokens, weight.outputs)
        if not tokens:
            return out
        rows = next(rows for most, rows in _ROWS if tokens <= most)
        values, scales, span = taken(x, weight.fmt, rows)
        tile = Tile.of(rows, weight.fmt, values.element_size())
        given = values, scales, span, weight.values, weight.scales, weight.groups, self._bias, out
        if rows == 1:
            _one_row[(triton.cdiv(weight.outputs, tile.columns),)](
                *given, weight.inputs, weight.outputs, weight.fmt, tile.columns, tile.depth, num_warps=tile.warps
            )
        else:
            _rows[triton.cdiv(tokens, rows), triton.cdiv(weight.outputs, tile.columns)](
                *given, tokens, weight.inputs, weight.outputs, weight.fmt, rows, tile.columns, tile.depth,
                num_warps=tile.warps, num_stages=3,
            )  # fmt: skip
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales and bias."""
        return self._weight.nbytes + (self._bias.nbytes if self._bias is not None else 0)


def takes(layer: object) -> Fp8Format | None:
    """As what rows come best to a layer; None for as they are."""
    return layer.takes if isinstance(layer, StoredLinear) else None
