"""Products of rows and stored weights, as parts of kernels: of one row by itself, or of tiles of rows by tensor cores.

int8 and int4 weights become the activations' dtype, or float32, in registers. Integers up to 256 are exact in bfloat16
and float16: only the sums round, and scales come after them. MXFP4 weights are exact in bfloat16 with theirs.
fp8 weights are multiplied by fp8 activations.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from headgate.engine.kernels.triton.stored import StoredFormat


@dataclass(frozen=True, slots=True)
class Tile:
    """Outputs that a program computes, inputs that it reads at a time, its warps, and stages of its loads."""

    columns: int
    depth: int
    warps: int
    stages: int = 3

    @classmethod
    def of(cls, rows: int, fmt: StoredFormat, size: int) -> Tile:
        """For `rows` rows of activations of `size` bytes per element: 1 for `row_product`, 16 to 128 for tiles.

        Few rows read weights and little else: narrow tiles make the programs that read them many. What three stages
        hold fits in shared memory, and what a thread unpacks of int4 in its registers.
        """
        if rows == 1:
            if fmt == "fp8 blocks":
                return cls(16, 128, 4)
            return cls(8, 1024 // size if fmt == "native" else 1024 if fmt in ("int4", "mxfp4") else 512, 4)
        columns, depth, warps = (32, 256, 2) if rows == 16 else (64, 64, 8 if rows == 128 else 4)
        if fmt in ("fp8 rows", "fp8 blocks"):
            return cls(columns, 128, warps)
        narrow = fmt == "native" or size > 2 or (fmt in ("int4", "mxfp4") and rows == 16)
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
def _floats(word: tl.tensor, place: tl.constexpr) -> tl.tensor:
    """The e2m1 numbers at a place of words, times 2^-14, as float32."""
    # Of float16 those of the same bits, which have as small an exponent: its numbers below the normal ones count.
    sign = word << (12 - 4 * place) if place < 3 else word >> (4 * place - 12)
    rest = word << (9 - 4 * place) if place < 3 else word >> (4 * place - 9)
    return ((sign & 0x8000) | (rest & 0xE00)).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _mxfp4(
    weight: tl.tensor, groups: tl.tensor, output: tl.tensor, group: tl.tensor, inside: tl.tensor, most: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """float32 [columns, groups, 32] and what they are multiplied by, [columns, groups]."""
    cell = output[:, None] * most + group[None, :]
    there = inside[:, None] & (group < most)[None, :]
    word = tl.load(weight + cell[:, :, None] * 4 + tl.arange(0, 4)[None, None, :], mask=there[:, :, None], other=0)
    scale = (tl.load(groups + cell, mask=there, other=0).to(tl.int32) << 23).to(tl.float32, bitcast=True) * 16384.0
    # In the order of `_unpacked`.
    even = tl.join(tl.join(_floats(word, 0), _floats(word, 4)), tl.join(_floats(word, 2), _floats(word, 6)))
    odd = tl.join(tl.join(_floats(word, 1), _floats(word, 5)), tl.join(_floats(word, 3), _floats(word, 7)))
    return tl.reshape(tl.join(even, odd), [word.shape[0], word.shape[1], 32]), scale


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
def rounded(value: tl.tensor, run: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """float32 [count] as fp8, and float32 [count / run] scales: of each `run` elements the largest becomes 448."""
    runs = tl.reshape(value, [value.shape[0] // run, run])
    most = tl.max(tl.abs(runs), axis=1)
    step = tl.where(most == 0.0, 1.0, most / 448.0)
    return tl.reshape((runs / step[:, None]).to(tl.float8e4nv), [value.shape[0]]), step


@triton.jit
def row_product(
    row: tl.tensor,
    row_scales: tl.tensor,
    span: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    groups: tl.tensor,
    output: tl.tensor,
    inside: tl.tensor,
    inputs: tl.tensor,
    fmt: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> tl.tensor:
    """float32 [columns]: the row at `row` times the weights' rows `output` int64 [columns], where `inside`.

    By ordinary arithmetic, without padding to what tensor cores take; it is the weights' way from memory that counts.
    `row_scales` are those of fp8 activations, the next run's `span` further on; without them blocks are met by
    activations that are rounded here.
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
    elif fmt == "mxfp4":
        few = tl.zeros([columns, depth // 32], tl.float32)
        most = tl.cdiv(inputs, 32)
        for begin in tl.range(0, most, depth // 32, num_stages=3):
            group = begin + tl.arange(0, depth // 32)
            numbers, scale = _mxfp4(weight, groups, output, group, inside, most)
            at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
            given = tl.load(row + at, mask=at < inputs, other=0.0).to(tl.float32)
            few += scale * tl.sum(numbers * given[None, :, :], axis=2)
        sums = tl.sum(few, axis=1)
    else:
        wide = tl.zeros([columns, depth], tl.float32)
        for begin in tl.range(0, inputs, depth, num_stages=3):
            at = begin + tl.arange(0, depth)
            there = at < inputs
            given = tl.load(row + at, mask=there, other=0.0)
            w = tl.load(
                weight + output[:, None] * inputs + at[None, :], mask=inside[:, None] & there[None, :], other=0.0
            )
            if fmt == "fp8 blocks":
                tl.static_assert(depth == 128)
                block = begin // 128
                scale = tl.load(scales + output // 128 * tl.cdiv(inputs, 128) + block, mask=inside, other=0.0)
                if row_scales is None:
                    given, step = rounded(given.to(tl.float32), 128)
                    scale = scale * tl.sum(step, axis=0)
                else:
                    scale = scale * tl.load(row_scales + block * span)
                wide += w.to(tl.float32) * given.to(tl.float32)[None, :] * scale[:, None]
            else:
                wide += w.to(tl.float32) * given.to(tl.float32)[None, :]
        sums = tl.sum(wide, axis=1)
    if fmt == "fp8 rows":
        sums = sums * tl.load(row_scales)
    if fmt != "native" and fmt != "fp8 blocks" and fmt != "mxfp4":
        sums = sums * tl.load(scales + output, mask=inside, other=0.0)
    return sums


@triton.jit
def tile_product(
    x: tl.tensor,
    x_scales: tl.tensor,
    span: tl.tensor,
    line: tl.tensor,
    real: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    groups: tl.tensor,
    output: tl.tensor,
    inside: tl.tensor,
    inputs: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    fmt: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
) -> tl.tensor:
    """float32 [columns, rows]: the weights' rows `output` times rows `line` int64 [rows] of x, where `inside`, `real`.

    Of the inputs from `start`, a multiple of `depth`, to `stop`.

    The weights are the first operand, which tensor cores take from registers, where they are unpacked. `x_scales` are
    those of fp8 activations, one per row, the next run's `span` further on.
    """
    sums = tl.zeros([columns, rows], tl.float32)
    first = x + line[:, None] * inputs
    for begin in range(start, stop, depth):
        at = begin + tl.arange(0, depth)
        there = (at < inputs)[None, :]
        a = tl.load(first + at[None, :], mask=real[:, None] & there, other=0.0)
        if fmt == "int4":
            group = begin // 32 + tl.arange(0, depth // 32)
            codes, step, base = _groups(weight, groups, output, group, inside, tl.cdiv(inputs, 32))
            w = tl.reshape((codes * step[:, :, None] + base[:, :, None]).to(a.dtype), [columns, depth])
        elif fmt == "mxfp4":
            group = begin // 32 + tl.arange(0, depth // 32)
            numbers, scale = _mxfp4(weight, groups, output, group, inside, tl.cdiv(inputs, 32))
            w = tl.reshape((numbers * scale[:, :, None]).to(a.dtype), [columns, depth])
        else:
            w = tl.load(weight + output[:, None] * inputs + at[None, :], mask=inside[:, None] & there, other=0.0)
        if fmt == "fp8 blocks":
            tl.static_assert(depth == 128)
            block = begin // 128
            scale = tl.load(scales + output // 128 * tl.cdiv(inputs, 128) + block, mask=inside, other=0.0)
            step = tl.load(x_scales + block * span + line, mask=real, other=0.0)
            sums += tl.dot(w, tl.trans(a)) * (scale[:, None] * step[None, :])
        elif fmt == "fp8 rows":
            # Hopper's tensor cores add up fp8 products in fewer bits than float32 has: not too many in a row.
            sums += tl.dot(w, tl.trans(a), max_num_imprecise_acc=depth)
        else:
            sums += tl.dot(w.to(a.dtype), tl.trans(a), input_precision="ieee")
    if fmt == "fp8 rows":
        sums = sums * tl.load(x_scales + line, mask=real, other=0.0)[None, :]
    if fmt != "native" and fmt != "fp8 blocks" and fmt != "mxfp4":
        sums = sums * tl.load(scales + output, mask=inside, other=0.0)[:, None]
    return sums
