"""Attention of sequences that each lack one token, with all that comes before it, in one launch.

Of these launches there is one per layer and token, and with few sequences none has much to read: what counts is how
soon each is done. Keys that are in the cache are asked for before the launch before has ended; the new one is made of
its projection by the program that also needs it, and never read back.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.interface import HeadNorms, KVLayer
from headgate.engine.kernels.triton.attention import Tile, arrive, cells, fold, kept, merged
from headgate.engine.kernels.triton.few import FEW
from headgate.engine.kernels.triton.launch import begin, overlapping, shared_memory, wait
from headgate.engine.kernels.triton.plan import ARRIVALS, DecodePlan


@triton.jit
def _paired(at: tl.tensor, real: tl.tensor, dim: tl.constexpr, columns: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """[rows, columns] of what lies at `at` [rows, 1], and the element that the rotation pairs with each."""
    column = tl.arange(0, columns)[None, :]
    half: tl.constexpr = dim // 2
    inside = real & (column < dim)
    other = tl.where(column < half, column + half, column - half)
    return tl.load(at + column, mask=inside, other=0.0), tl.load(at + other, mask=inside, other=0.0)


@triton.jit
def _turned(
    one: tl.tensor,
    two: tl.tensor,
    one_scale: tl.tensor,
    two_scale: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    eps: tl.tensor,
    dim: tl.constexpr,
) -> tl.tensor:
    """float32 [heads, columns]: heads and what each element is paired with, normed if there is a scale, and rotated."""
    one, two = one.to(tl.float32), two.to(tl.float32)
    if one_scale is not None:
        factor = 1.0 / tl.sqrt(tl.sum(one * one, axis=1, keep_dims=True) / dim + eps)
        one = one * factor * one_scale.to(tl.float32)
        two = two * factor * two_scale.to(tl.float32)
    first_half = tl.arange(0, one.shape[1])[None, :] < dim // 2
    return one * cos + tl.where(first_half, -two, two) * sin


@triton.jit
def _rounded(
    value: tl.tensor, cache: tl.tensor, scales: tl.tensor, dtype: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """float32 [1, columns] as the cache keeps it, its scale [1, 1], and as float32 what is read back of that."""
    kind: tl.constexpr = cache.dtype.element_ty
    step = tl.full([1, 1], 1.0, tl.float32)
    if scales is None:
        low = value.to(kind)
        back = low.to(tl.float32)
    else:
        most = tl.max(tl.abs(value), axis=1, keep_dims=True)
        # A maximum passes over NaN. An infinite scale lets it be seen: what is read back is 0 * inf.
        sound = tl.sum(tl.where(value == value, 0, 1), axis=1, keep_dims=True) == 0
        largest: tl.constexpr = 127.0 if kind == tl.int8 else 448.0
        step = tl.where(sound, tl.where(most == 0.0, 1.0, most / largest), float("inf"))
        value = tl.where(sound, value / step, 0.0)
        if kind == tl.int8:
            # Adding 1.5 * 2^23 leaves no bit for a fraction: the sum rounds to the nearest integer, ties to even.
            value = (value + 12582912.0) - 12582912.0
        low = value.to(kind)
        back = (low.to(tl.float32) * step).to(dtype).to(tl.float32)
    return low, step, back


@triton.jit
def _arrived(keys: tl.tensor, values: tl.tensor) -> Any:
    """The same, once both are there: else the compiler waits for keys before it asks for values and what comes next."""
    narrow: tl.constexpr = keys.dtype.primitive_bitwidth == 16
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $2; mov.b32 $1, $3;",
        "=r,=r,r,r",
        [keys, values],
        dtype=(keys.dtype, values.dtype),
        is_pure=False,
        pack=2 if narrow else 1,
    )


@triton.jit
def _decode(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    q_norm: tl.tensor,
    k_norm: tl.tensor,
    eps: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    slots: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    logs: tl.tensor,
    arrivals: tl.tensor,
    geometry: tl.tensor,
    tables: tl.tensor,
    sinks: tl.tensor,
    q_stride: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    kv_heads: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    least: tl.tensor,
    programs: tl.tensor,
    most_heads: tl.constexpr,
    dim: tl.constexpr,
    block_size: tl.constexpr,
    group: tl.constexpr,
    rows: tl.constexpr,
    lines: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per sequence, key head and part of the keys; the last part begins with the new key.

    As in `attention`, the `group` query heads of a key head are rows of one product, and the last part to arrive puts
    together what all of them left.
    """
    begin(pdl)
    line, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    # The geometry was there before the first launch of a layer, and so were angles and slots.
    both = tl.load(geometry.to(tl.pointer_type(tl.int64)) + line * 2 + 1)
    context = both.to(tl.int32)
    table, position = tables + (both >> 32), context - 1
    span = tl.maximum(tl.cdiv(tl.cdiv(context, programs), block) * block, least)
    parts, part = tl.cdiv(context, span), tl.program_id(2)
    start, stop = part * span, tl.minimum(position, part * span + span)
    if window is not None:
        start = tl.maximum(start, position - window + 1)
    dtype: tl.constexpr = out.dtype.element_ty
    row = tl.arange(0, rows)
    column = tl.arange(0, columns)
    at = tl.zeros([rows], tl.int32) + position
    if part < parts:
        key = start + tl.arange(0, block)
        there = key < stop
        head = cells(table, key, there, kv_head, kv_heads, block_size, True)
        first_keys = kept(keys, key_scales, head, there, dtype, dim, columns, True)
        first_values = kept(values, value_scales, head, there, dtype, dim, columns, True)
        slot = tl.load(slots + line)
        one = tl.zeros([1, 1], tl.int64)
        wide = (column < dim)[None, :]
        angle = line * (dim // 2) + (column % (dim // 2))[None, :]
        cosine, sine = tl.load(cos + angle, mask=wide, other=0.0), tl.load(sin + angle, mask=wide, other=0.0)
        q_scale, q_scale_of_other, k_scale, k_scale_of_other = q_norm, q_norm, k_norm, k_norm
        if q_norm is not None:
            q_scale, q_scale_of_other = _paired(q_norm + one, one == 0, dim, columns)
            k_scale, k_scale_of_other = _paired(k_norm + one, one == 0, dim, columns)
        if pdl:
            first_keys, first_values = _arrived(first_keys, first_values)
        wait(pdl)
        # All at once, before any of it is looked at.
        is_last = part == parts - 1
        heads = (q + line * q_stride + (kv_head * group + row) * dim)[:, None]
        query, query_other = _paired(heads, (row < group)[:, None], dim, columns)
        latest, latest_other = _paired(k + line * k_stride + kv_head * dim + one, (one == 0) & is_last, dim, columns)
        new_value = tl.load(v + line * v_stride + kv_head * dim + one + column[None, :], mask=wide & is_last, other=0.0)
        asked = _turned(query, query_other, q_scale, q_scale_of_other, cosine, sine, eps, dim).to(dtype)
        most = tl.full([rows], float("-inf"), tl.float32)
        total = tl.zeros([rows], tl.float32)
        sums = tl.zeros([rows, columns], tl.float32)
        if is_last:
            new_key = _turned(latest, latest_other, k_scale, k_scale_of_other, cosine, sine, eps, dim)
            low_key, key_step, new_key = _rounded(new_key, keys, key_scales, dtype)
            low_value, value_step, given = _rounded(new_value.to(tl.float32), values, value_scales, dtype)
            place = slot * kv_heads + kv_head
            tl.store(keys + place * dim + one + column[None, :], low_key, mask=wide)
            tl.store(values + place * dim + one + column[None, :], low_value, mask=wide)
            if key_scales is not None:
                tl.store(key_scales + place + one, key_step)
                tl.store(value_scales + place + one, value_step)
            most = tl.sum(asked.to(tl.float32) * new_key, axis=1) * scale
            total = tl.full([rows], 1.0, tl.float32)
            sums = sums + given
            if sinks is not None:
                # One more key, without a value.
                sink = tl.load(sinks + kv_head * group + row, mask=row < group, other=0.0) * 1.4426950408889634
                higher = tl.maximum(most, sink)
                share = tl.exp2(most - higher)
                total = share + tl.exp2(sink - higher)
                sums = sums * share[:, None]
                most = higher
        # All keys from `start` on are seen.
        most, total, sums = fold(asked, at, first_keys, first_values, key, there, None, scale, most, total, sums, True)
        # Most parts end here, and should not even prepare to go on.
        if start + block < stop:
            whole = start + (stop - start) // block * block
            for run in range(start + block, whole, block):
                key = run + tl.arange(0, block)
                there = key < stop
                head = cells(table, key, there, kv_head, kv_heads, block_size, False)
                more_keys = kept(keys, key_scales, head, there, dtype, dim, columns, False)
                more_values = kept(values, value_scales, head, there, dtype, dim, columns, False)
                most, total, sums = fold(
                    asked, at, more_keys, more_values, key, there, None, scale, most, total, sums, False
                )
            for run in range(whole, stop, block):
                key = run + tl.arange(0, block)
                there = key < stop
                head = cells(table, key, there, kv_head, kv_heads, block_size, True)
                last_keys = kept(keys, key_scales, head, there, dtype, dim, columns, True)
                last_values = kept(values, value_scales, head, there, dtype, dim, columns, True)
                most, total, sums = fold(
                    asked, at, last_keys, last_values, key, there, None, scale, most, total, sums, True
                )
        # Nothing was seen where the total is 0; a NaN is not 0 and stays visible.
        mean = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        owner = ((line * kv_heads + kv_head) * group + row)[:, None] * dim + column[None, :]
        theirs = (row < group)[:, None] & (column < dim)[None, :]
        if parts == 1:
            tl.store(out + owner, mean.to(dtype), mask=theirs)
        begun = (line * kv_heads + kv_head) * programs * group
        if parts > 1:
            arrival = arrivals + line * most_heads + kv_head
            mine = begun + part * group + row
            before = arrive(partial, logs, arrival, mine, row < group, most, total, mean, columns)
            if before == parts - 1:
                tl.store(arrival, 0)  # for the next layer
                merged_parts = merged(partial, logs, begun, parts, group, lines, columns, 64 // lines)
                last = tl.arange(0, lines)
                place = ((line * kv_heads + kv_head) * group + last)[:, None] * dim + column[None, :]
                tl.store(out + place, merged_parts.to(dtype), mask=(last < group)[:, None] & (column < dim)[None, :])


def decode_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: HeadNorms | None,
    cos: Tensor,
    sin: Tensor,
    layer: KVLayer,
    slots: Tensor,
    plan: DecodePlan,
    window: int | None,
    programs: int,
    sinks: Tensor | None = None,
) -> Tensor:
    """See Kernels.attend. The heads of a token lie side by side in q, k and v, which may be parts of one projection.

    `programs`: how many share the keys of a sequence, 2 at least.
    """
    tokens, heads, dim = q.shape
    kv_heads = k.shape[1]
    group = heads // kv_heads
    columns, lines = max(16, triton.next_power_of_2(dim)), triton.next_power_of_2(group)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    logs = q.new_empty(tokens, kv_heads, programs, group, dtype=torch.float32)
    partial = q.new_empty(*logs.shape, columns, dtype=torch.float32)
    query, key, eps = (norms.query, norms.key, norms.eps) if norms is not None else (None, None, 0.0)
    converts = layer.key_scales is not None
    tile = _tile(columns * q.element_size(), group, tokens, converts=converts, shared=shared_memory())
    _decode[(tokens, kv_heads, programs)](
        q, k, v, query, key, eps, cos, sin, slots, layer.keys, layer.values, layer.key_scales, layer.value_scales, out,
        partial, logs, plan.arrivals, plan.geometry, plan.tables, sinks, q.stride(0), k.stride(0), v.stride(0),
        kv_heads, window, dim**-0.5 * math.log2(math.e), tile.block, programs, ARRIVALS, dim, plan.block_size,
        group, max(16, lines), lines, columns, tile.block,
        num_warps=tile.warps, num_stages=tile.stages, **overlapping(),
    )  # fmt: skip
    return out


def _tile(width: int, group: int, tokens: int, *, converts: bool, shared: int) -> Tile:
    """For heads of `width` bytes, which the cache `converts` or has as they are, in `shared` bytes of shared memory.

    Of a token or a few with small groups as many keys as fit in registers are asked for at once: few parts are put
    together. With larger ones small programs are sooner, which find room beside those of the launch before and ask for
    keys before it has ended. Where programs wait for SMs: the fewer at a time, the sooner the first are there.
    """
    if width <= 256 and tokens <= FEW and group < 4:
        # Keys and values pass through it, and a quarter as much on the way to being put together.
        return Tile(256 if not converts and 256 * width * 5 // 2 <= shared else 128, 8, 3)
    return Tile(64 if width <= 256 and group >= 8 and tokens > FEW else 32, 4, 3)
