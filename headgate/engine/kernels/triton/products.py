"""Products of rows and stored weights, as parts of kernels: of one row by itself, or of tiles of rows by tensor cores.

Weights become the activations' dtype, or float32, in registers. Integers up to 256 are exact in bfloat16 and float16:
only the sums round, and int8's and int4's scales come after them.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from headgate.engine.quant.linear import WeightFormat


@dataclass(frozen=True, slots=True)
class Tile:
    """Outputs that a program computes, inputs that it reads at a time, and its warps."""

    columns: int
    depth: int
    warps: int

    @classmethod
    def of(cls, rows: int, fmt: WeightFormat, size: int) -> Tile:
        """For `rows` rows of activations of `size` bytes per element: 1 for `row_product`, 16 to 128 for tiles.

        Few rows read weights and little else: narrow tiles make the programs that read them many.
        """
        if rows == 1:
            return cls(8, {"native": 1024 // size, "int8": 512, "int4": 1024}[fmt], 4)
        columns, depth, warps = (32, 256, 2) if rows == 16 else (64, 64, 8 if rows == 128 else 4)
        # What three stages hold fits in shared memory, and what a thread unpacks of int4 in its registers.
        narrow = fmt == "native" or size > 2 or (fmt == "int4" and rows == 16)
        return cls(columns, depth // 2 if narrow else depth, warps)


@triton.jit
def _codes(word: tl.tensor, place: tl.constexpr) -> tl.tensor:
    """16 more than the codes at a place of words, as float32."""
    # A code in the highest bits of the fraction of 16 is 16 + code: cheaper than to convert an integer.
    moved = word << (19 - 4 * place) if place < 5 else word >> (4 * place - 19)
    return ((moved & 0x780000) | 0x41800000).to(tl.float32, bitcast=True)


@triton.jit
def _unpacked(word: tl.tensor) -> tl.tensor:
    """Codes, 16 more, float32 [columns, groups, 32] from words [columns, groups, 4]."""
    # Joined tensors get a dimension behind the others: those that are joined first differ in the highest bit.
    even = tl.join(tl.join(_codes(word, 0), _codes(word, 4)), tl.join(_codes(word, 2), _codes(word, 6)))
    odd = tl.join(tl.join(_codes(word, 1), _codes(word, 5)), tl.join(_codes(word, 3), _codes(word, 7)))
    return tl.reshape(tl.join(even, odd), [word.shape[0], word.shape[1], 32])


@triton.jit
def _groups(
    weight: tl.tensor, groups: tl.tensor, output: tl.tensor, group: tl.tensor, inside: tl.tensor, most: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Codes as `_unpacked`, and what they are multiplied by and added to, [columns, groups], to be int8 values."""
    cell = output[:, None] * most + group[None, :]
    there = inside[:, None] & (group < most)[None, :]
    word = tl.load(weight + cell[:, :, None] * 4 + tl.arange(0, 4)[None, None, :], mask=there[:, :, None], other=0)
    both = tl.load(groups + cell, mask=there, other=0).to(tl.int32)
    step = (both & 255).to(tl.float32)
    return _unpacked(word), step, (both >> 8).to(tl.float32) - 24.0 * step


@triton.jit
def row_product(
    row: tl.tensor,
    weight: tl.tensor,
    groups: tl.tensor,
    output: tl.tensor,
    inside: tl.tensor,
    inputs: tl.tensor,
    fmt: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> tl.tensor:
    """float32 [columns]: the row at `row` times the weights' rows `output` int64 [columns], where `inside`.

    By ordinary arithmetic, without padding to what tensor cores take: it is the weights' way from memory that counts.
    """
    if fmt == "int4":
        few = tl.zeros([columns, depth // 32], tl.float32)
        most = tl.cdiv(inputs, 32)
        for begin in tl.range(0, most, depth // 32, num_stages=3):
            group = begin + tl.arange(0, depth // 32)
            codes, step, base = _groups(weight, groups, output, group, inside, most)
            at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
            given = tl.load(row + at, mask=at < inputs, other=0.0).to(tl.float32)
            few += step * tl.sum(codes * given[None, :, :], axis=2) + base * tl.sum(given, axis=1)[None, :]
        sums = tl.sum(few, axis=1)
    else:
        wide = tl.zeros([columns, depth], tl.float32)
        for begin in tl.range(0, inputs, depth, num_stages=3):
            at = begin + tl.arange(0, depth)
            there = at < inputs
            given = tl.load(row + at, mask=there, other=0.0).to(tl.float32)
            w = tl.load(weight + output[:, None] * inputs + at[None, :], mask=inside[:, None] & there[None, :], other=0)
            wide += given[None, :] * w.to(tl.float32)
        sums = tl.sum(wide, axis=1)
    return sums


@triton.jit
def tile_product(
    x: tl.tensor,
    line: tl.tensor,
    real: tl.tensor,
    weight: tl.tensor,
    groups: tl.tensor,
    output: tl.tensor,
    inside: tl.tensor,
    inputs: tl.tensor,
    fmt: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> tl.tensor:
    """float32 [columns, rows]: the weights' rows `output` times rows `line` int64 [rows] of x, where `inside`, `real`.

    The weights are the first operand, which tensor cores take from registers, where they are unpacked.
    """
    sums = tl.zeros([columns, rows], tl.float32)
    first = x + line[:, None] * inputs
    for begin in range(0, inputs, depth):
        at = begin + tl.arange(0, depth)
        there = (at < inputs)[None, :]
        a = tl.load(first + at[None, :], mask=real[:, None] & there, other=0.0)
        if fmt == "int4":
            group = begin // 32 + tl.arange(0, depth // 32)
            codes, step, base = _groups(weight, groups, output, group, inside, tl.cdiv(inputs, 32))
            w = tl.reshape((codes * step[:, :, None] + base[:, :, None]).to(a.dtype), [columns, depth])
        else:
            w = tl.load(weight + output[:, None] * inputs + at[None, :], mask=inside[:, None] & there, other=0)
        sums += tl.dot(w.to(a.dtype), tl.trans(a), input_precision="ieee")
    return sums
