"""Causal attention over the paged cache: the same program for prompts and for decoding, which share out keys too."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.interface import KVLayer
from headgate.engine.kernels.triton.plan import DecodePlan, TritonPlan


@triton.jit
def _part(
    asked: tl.tensor,
    position: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    tables: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    kv_head: tl.tensor,
    kv_heads: tl.tensor,
    dim: tl.tensor,
    block_size: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """What the keys from `start` to `stop` give: the softmax's maximum and total, and its sums of values.

    Keys come in blocks of their own size, whatever the cache's: each looks up its slot in the block table. Softmax is
    kept running (Milakov and Gimelshein 2018), in powers of two.
    """
    column = tl.arange(0, columns)
    most = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    sums = tl.zeros([rows, columns], tl.float32)
    for begin in range(start, stop, block):
        key = begin + tl.arange(0, block)
        there = key < stop
        slot = tl.load(tables + key // block_size, mask=there, other=0).to(tl.int64) * block_size
        head = (slot + key % block_size) * kv_heads + kv_head
        cell = head[:, None] * dim + column[None, :]
        inside = there[:, None] & (column < dim)[None, :]
        k = tl.load(keys + cell, mask=inside, other=0.0)
        v = tl.load(values + cell, mask=inside, other=0.0)
        if key_scales is not None:
            k = (k.to(tl.float32) * tl.load(key_scales + head, mask=there, other=0.0)[:, None]).to(asked.dtype)
            v = (v.to(tl.float32) * tl.load(value_scales + head, mask=there, other=0.0)[:, None]).to(asked.dtype)
        scores = tl.dot(asked, tl.trans(k), input_precision="ieee") * scale
        seen = there[None, :] & (key[None, :] <= position[:, None])
        if window is not None:
            seen = seen & (position[:, None] - key[None, :] < window)
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        # A row that has seen no key yet has no maximum to subtract.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(scores - base[:, None])
        fade = tl.exp2(most - base)
        total = total * fade + tl.sum(weight, axis=1)
        sums = sums * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        most = higher
    return most, total, sums


@triton.jit
def _attend(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    logs: tl.tensor,
    tiles: tl.tensor,
    geometry: tl.tensor,
    tables: tl.tensor,
    kv_heads: tl.tensor,
    dim: tl.tensor,
    block_size: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    splits: tl.tensor,
    group: tl.constexpr,
    queries: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """A program per tile of queries, key head and share of the parts that the keys are split into.

    The `group` query heads that share a key head are rows of one product: keys are read once for all of them, and a
    single token still fills some of the 16 rows of a tensor core's operand. With `partial`, what each part gives is
    left there for `_combine`; without, there is one.
    """
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    at = geometry + tl.load(tiles + 2 * tile) * 5
    first = tl.load(tiles + 2 * tile + 1)
    count, context = tl.load(at + 1), tl.load(at + 2)
    table = tables + tl.load(at + 3)
    row = tl.arange(0, rows)
    query = first + row // group
    real = (row < queries * group) & (query < count)
    column = tl.arange(0, columns)
    wide = column < dim
    line = (tl.load(at) + query).to(tl.int64) * (kv_heads * group) + kv_head * group + row % group
    place = line[:, None] * dim + column[None, :]
    asked = tl.load(q + place, mask=real[:, None] & wide[None, :], other=0.0)
    # Later keys than the tile's last query sees, and earlier ones than its first sees, are not read.
    position = context - count + query
    stop = tl.minimum(context - count + first + queries, context)
    start = 0
    if window is not None:
        start = tl.maximum(context - count + first - window + 1, 0)
    if partial is None:
        most, total, sums = _part(
            asked, position, keys, values, key_scales, value_scales, table, start, stop, kv_head, kv_heads, dim,
            block_size, window, scale, rows, columns, block,
        )  # fmt: skip
        # Nothing was seen where the total is 0; a NaN is not 0 and stays visible.
        mean = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out + place, mean.to(out.dtype.element_ty), mask=real[:, None] & wide[None, :])
    else:
        span = tl.load(at + 4)
        for part in range(tl.program_id(2), tl.cdiv(context, span), tl.num_programs(2)):
            most, total, sums = _part(
                asked, position, keys, values, key_scales, value_scales, table, tl.maximum(start, part * span),
                tl.minimum(stop, part * span + span), kv_head, kv_heads, dim, block_size, window, scale, rows, columns,
                block,
            )  # fmt: skip
            mean = sums / tl.where(total == 0.0, 1.0, total)[:, None]
            kept = ((tile * kv_heads + kv_head) * splits + part).to(tl.int64) * (queries * group) + row
            used = row < queries * group
            tl.store(logs + kept, tl.where(total == 0.0, float("-inf"), most + tl.log2(total)), mask=used)
            tl.store(partial + kept[:, None] * columns + column[None, :], mean, mask=used[:, None])


@triton.jit
def _combine(
    partial: tl.tensor,
    logs: tl.tensor,
    out: tl.tensor,
    tiles: tl.tensor,
    geometry: tl.tensor,
    kv_heads: tl.tensor,
    dim: tl.tensor,
    splits: tl.tensor,
    group: tl.constexpr,
    queries: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """A program per sequence, head and query: the mean of its parts' results, each weighed by its softmax's total."""
    tile, head, query = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = geometry + tl.load(tiles + 2 * tile) * 5
    if query < tl.load(at + 1):
        part = tl.arange(0, block)
        column = tl.arange(0, columns)
        there = part < tl.cdiv(tl.load(at + 2), tl.load(at + 4))
        kept = ((tile * kv_heads + head // group) * splits + part).to(tl.int64) * (queries * group)
        kept += query * group + head % group
        log = tl.load(logs + kept, mask=there, other=float("-inf"))
        weight = tl.exp2(log - tl.max(log, axis=0))
        means = tl.load(partial + kept[:, None] * columns + column[None, :], mask=there[:, None], other=0.0)
        mean = tl.sum(weight[:, None] * means, axis=0) / tl.sum(weight, axis=0)
        line = (tl.load(at) + query).to(tl.int64) * (kv_heads * group) + head
        tl.store(out + line * dim + column, mean.to(out.dtype.element_ty), mask=column < dim)


def paged_attention(q: Tensor, layer: KVLayer, plan: TritonPlan | DecodePlan, window: int | None) -> Tensor:
    """See Kernels. q contiguous."""
    heads, dim = q.shape[1:]
    kv_heads = layer.keys.shape[1]
    group = heads // kv_heads
    columns = max(16, triton.next_power_of_2(dim))
    # With 128 rows of wider heads, or of keys that are converted on the way, a thread's registers overflow.
    most_rows = 128 if columns <= 128 and layer.key_scales is None else 64
    tiles, out = plan.tiles(group, most_rows), torch.empty_like(q)
    # Three stages of keys and values must fit in shared memory beside the queries: 163 KiB on an A100.
    block = 64 if columns * q.element_size() <= 256 else 32

    def launch(work: Tensor, queries: int, programs: int, partial: Tensor | None, logs: Tensor | None) -> None:
        rows = max(16, triton.next_power_of_2(queries * group))
        _attend[(work.shape[0], kv_heads, programs)](
            q, layer.keys, layer.values, layer.key_scales, layer.value_scales, out, partial, logs, work, plan.geometry,
            plan.tables, kv_heads, dim, plan.block_size, window, dim**-0.5 * math.log2(math.e), tiles.splits, group,
            queries, rows, columns, block, num_warps=4 if rows < 128 else 8, num_stages=3,
        )  # fmt: skip

    few = tiles.few.shape[0]
    if few and tiles.splits == 1:
        launch(tiles.few, tiles.few_queries, 1, None, None)
    elif few:
        logs = q.new_empty(few, kv_heads, tiles.splits, tiles.few_queries * group, dtype=torch.float32)
        partial = q.new_empty(*logs.shape, columns, dtype=torch.float32)
        launch(tiles.few, tiles.few_queries, tiles.programs, partial, logs)
        _combine[(few, heads, tiles.few_queries)](
            partial, logs, out, tiles.few, plan.geometry, kv_heads, dim, tiles.splits, group,
            tiles.few_queries, columns, triton.next_power_of_2(tiles.splits),
        )  # fmt: skip
    if tiles.many.shape[0]:
        launch(tiles.many, tiles.many_queries, 1, None, None)
    return out
