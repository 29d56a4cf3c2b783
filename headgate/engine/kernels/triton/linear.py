"""Linear layers: with weights as they are, int8, int4 or fp8."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton import few
from headgate.engine.kernels.triton.few import FEW, Unnormed
from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.products import Tile, row_product, tile_product
from headgate.engine.kernels.triton.rows import Rounded, exact, taken
from headgate.engine.kernels.triton.stock import StockProduct
from headgate.engine.kernels.triton.stored import Fp8Format, Stored

_SOME = 64
"""Tokens up to which tiles of ours read fp8 weights with more programs than stock products have."""
_ROWS = (1, 1), (16, 16), (256, 64), (sys.maxsize, 128)
"""Rows of a tile by the most tokens that it is for."""
_TOGETHER = 2048
"""Warps that keep a large GPU busy. Where tiles have fewer their inputs are shared out among programs."""
_LEAST_RUNS = 4
"""Of inputs that a program then reads one after the other, at least: less is not worth putting together."""


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
    pdl: tl.constexpr,
) -> None:
    """A program per run of outputs, all of one token."""
    begin(pdl)
    wait(pdl)
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    inside = column < outputs
    sums = row_product(
        x, x_scales, span, weight, scales, groups, column.to(tl.int64), inside, inputs, fmt, columns, depth
    )
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + column, sums.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _leave(
    sums: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    row: tl.tensor,
    real: tl.tensor,
    column: tl.tensor,
    inside: tl.tensor,
    outputs: tl.tensor,
) -> None:
    """Write sums float32 [columns, rows] of a tile, and the bias with them."""
    if bias is not None:
        sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[:, None]
    place = out + row[None, :] * outputs + column[:, None]
    tl.store(place, sums.to(out.dtype.element_ty), mask=real[None, :] & inside[:, None])


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
    partial: tl.tensor,
    arrivals: tl.tensor,
    tokens: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    fmt: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per tile of tokens and outputs, and part of the inputs; programs that share weights follow each other.

    With `partial` parts leave their sums there, and the last one to arrive adds them up, in their order.
    """
    begin(pdl)
    wait(pdl)
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    real, inside = row < tokens, column < outputs
    part, parts = tl.program_id(2), tl.num_programs(2)
    run = tl.cdiv(tl.cdiv(inputs, depth), parts) * depth
    sums = tile_product(
        x, x_scales, span, row, real, weight, scales, groups, column.to(tl.int64), inside, inputs, part * run,
        tl.minimum(part * run + run, inputs), fmt, rows, columns, depth,
    )  # fmt: skip
    if partial is None:
        _leave(sums, bias, out, row, real, column, inside, outputs)
    else:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        cell = tl.arange(0, columns)[:, None] * rows + tl.arange(0, rows)[None, :]
        mine = partial + tile * parts * (columns * rows) + cell
        tl.store(mine + part * (columns * rows), sums)
        tl.debug_barrier()  # all threads have left theirs
        before = tl.atomic_add(arrivals + tile, 1, sem="acq_rel")
        tl.debug_barrier()
        if before == parts - 1:
            tl.store(arrivals + tile, 0)  # for the next time
            total = tl.zeros([columns, rows], tl.float32)
            for other in range(parts):
                total += tl.load(mine + other * (columns * rows), cache_modifier=".cg")
            _leave(total, bias, out, row, real, column, inside, outputs)


class StoredLinear:
    """Implements Linear. Activations stay as they are, but for fp8 weights, where more than FEW tokens become fp8."""

    def __init__(self, weight: Stored, bias: Tensor | None, stock: StockProduct | None = None) -> None:
        """`bias` [outputs] in the compute dtype; `stock`: torch's product for many tokens, where it has one."""
        self._weight, self._bias, self._stock = weight, bias, stock
        self._arrivals = torch.zeros(_TOGETHER // 4, dtype=torch.int32, device=weight.values.device)

    @property
    def weight(self) -> Stored:
        """Its weights."""
        return self._weight

    def takes(self, tokens: int) -> Fp8Format | None:
        """As what so many rows come best; None for as they are."""
        return None if self._few(tokens) else self._weight.fp8

    def _few(self, tokens: int) -> bool:
        """Whether so many tokens go by ordinary arithmetic: of large fp8 weights one, as others are soon more work."""
        weight = self._weight
        return few.fits(weight, tokens) and not (weight.fp8 and rounds(weight.values.nbytes, tokens))

    def norms(self, tokens: int) -> bool:
        """Whether so many tokens may come `Unnormed`."""
        return tokens == 1 and self._few(tokens) and few.norms(self._weight)

    def gated(self, x: Tensor | Unnormed) -> Tensor | None:
        """silu(first half) * second half of the layer's result, if it has a way to give that; of plain rows."""
        tokens = x.x.shape[0] if isinstance(x, Unnormed) else x.shape[0]
        whole = self._weight.fmt != "fp8 blocks" or self._weight.outputs % 256 == 0
        if not whole or not self._few(tokens):
            return None
        return few.product(_contiguous(x), self._weight, self._bias, gate=True)

    def __call__(self, x: Tensor | Rounded | Unnormed) -> Tensor:
        """Apply the layer to plain rows, to rounded ones, or to one that is to be normed, if `norms` says so."""
        weight = self._weight
        if isinstance(x, Unnormed):
            return few.product(x, weight, self._bias)
        plain = exact(x)
        tokens = plain.shape[0]
        if self._few(tokens):
            return few.product(plain.contiguous(), weight, self._bias)
        if weight.fmt == "native":
            return F.linear(plain, weight.values, self._bias)
        x = x if isinstance(x, Rounded) else x.contiguous()
        if self._stock is not None and tokens > _SOME and plain.dtype == torch.bfloat16:
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
                *given, weight.inputs, weight.outputs, weight.fmt, tile.columns, tile.depth, num_warps=tile.warps,
                **overlapping(),
            )  # fmt: skip
        else:
            grid = triton.cdiv(tokens, rows), triton.cdiv(weight.outputs, tile.columns)
            parts, partial = _parts(grid[0] * grid[1], weight.inputs // tile.depth, tile.warps), None
            if parts > 1:
                partial = plain.new_empty(parts * grid[0] * grid[1] * tile.columns * rows, dtype=torch.float32)
            # With some more registers, which it would take, a fourth program has no room beside three.
            limits = {"maxnreg": 128} if weight.fp8 and tile.warps == 4 else {}
            _rows[(*grid, parts)](
                *given, partial, self._arrivals, tokens, weight.inputs, weight.outputs, weight.fmt, rows, tile.columns,
                tile.depth, num_warps=tile.warps, num_stages=tile.stages, **limits, **overlapping(),
            )  # fmt: skip
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales and bias."""
        return self._weight.nbytes + (self._bias.nbytes if self._bias is not None else 0)


def _parts(tiles: int, runs: int, warps: int) -> int:
    """Among how many programs a tile's `runs` of inputs are shared out, if there are so many tiles: a power of two."""
    most = min(_TOGETHER // warps // tiles, runs // _LEAST_RUNS)
    return 1 << (most.bit_length() - 1) if most > 1 else 1


def rounds(nbytes: int, tokens: int) -> bool:
    """Whether a layer of so many bytes of fp8 weights rounds the activations of so many tokens."""
    return tokens > FEW or (tokens > 1 and nbytes >= few.SMALL)


def _contiguous(x: Tensor | Unnormed) -> Tensor | Unnormed:
    return x if isinstance(x, Unnormed) else x.contiguous()


def takes(layer: object, tokens: int) -> Fp8Format | None:
    """As what so many rows come best to a layer; None for as they are."""
    return layer.takes(tokens) if isinstance(layer, StoredLinear) else None
