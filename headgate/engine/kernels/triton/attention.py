"""Causal attention over the paged cache: the same program for prompts and for decoding, which share out keys too."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.interface import KVLayer
from headgate.engine.kernels.triton.flashinfer import PromptAttention
from headgate.engine.kernels.triton.launch import begin, overlapping, shared_memory, wait
from headgate.engine.kernels.triton.plan import ARRIVALS, DecodePlan, TritonPlan
from headgate.engine.kernels.triton.standing import StandingPlan

_LEAST_SPAN, _MOST_PARTS = 64, 32
"""Keys that a program reads at least, and programs that share a sequence's at most: beyond that there is as much to
put together as to read."""
_PROGRAMS = 512
"""Of a launch in which programs share keys, at most: about as many as the largest GPU holds at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Keys that are read at a time, warps of a program, and stages of its loads."""

    block: int
    warps: int
    stages: int


@triton.jit
def cells(
    tables: tl.tensor,
    key: tl.tensor,
    there: tl.tensor,
    kv_head: tl.tensor,
    kv_heads: tl.tensor,
    block_size: tl.constexpr,
    masked: tl.constexpr,
) -> tl.tensor:
    """int64 [block]: which heads of the cache the keys are, of which each looks up its block."""
    block = tl.load(tables + key // block_size, mask=there, other=0) if masked else tl.load(tables + key // block_size)
    return (block.to(tl.int64) * block_size + key % block_size) * kv_heads + kv_head


@triton.jit
def kept(
    cache: tl.tensor,
    scales: tl.tensor,
    head: tl.tensor,
    there: tl.tensor,
    dtype: tl.constexpr,
    dim: tl.constexpr,
    columns: tl.constexpr,
    masked: tl.constexpr,
) -> tl.tensor:
    """[block, columns]: keys or values of these heads, as numbers of `dtype`."""
    column = tl.arange(0, columns)
    cell = head[:, None] * dim + column[None, :]
    inside = (column < dim)[None, :]
    if masked:
        inside = there[:, None] & inside
    checked: tl.constexpr = masked or columns != dim
    found = tl.load(cache + cell, mask=inside, other=0.0) if checked else tl.load(cache + cell)
    if scales is not None:
        found = (found.to(tl.float32) * tl.load(scales + head, mask=there, other=0.0)[:, None]).to(dtype)
    return found


@triton.jit
def fold(
    asked: tl.tensor,
    position: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    key: tl.tensor,
    there: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    most: tl.tensor,
    total: tl.tensor,
    sums: tl.tensor,
    masked: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """A block of keys, folded into the softmax's maximum and total and into its sums of values.

    Softmax is kept running (Milakov and Gimelshein 2018), in powers of two. Unless `masked`, each query sees all keys.
    """
    scores = tl.dot(asked, tl.trans(k), input_precision="ieee") * scale
    if masked:
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
    return higher, total, sums


@triton.jit
def _read(
    asked: tl.tensor,
    position: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    tables: tl.tensor,
    first: tl.tensor,
    stop: tl.tensor,
    kv_head: tl.tensor,
    kv_heads: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    most: tl.tensor,
    total: tl.tensor,
    sums: tl.tensor,
    dim: tl.constexpr,
    block_size: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    masked: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The block of keys from `first` on, read and folded."""
    key = first + tl.arange(0, block)
    there = key < stop
    head = cells(tables, key, there, kv_head, kv_heads, block_size, masked)
    k = kept(keys, key_scales, head, there, asked.dtype, dim, columns, masked)
    v = kept(values, value_scales, head, there, asked.dtype, dim, columns, masked)
    most, total, sums = fold(asked, position, k, v, key, there, window, scale, most, total, sums, masked)
    return most, total, sums


@triton.jit
def arrive(
    partial: tl.tensor,
    logs: tl.tensor,
    arrivals: tl.tensor,
    mine: tl.tensor,
    real: tl.tensor,
    most: tl.tensor,
    total: tl.tensor,
    mean: tl.tensor,
    columns: tl.constexpr,
) -> tl.tensor:
    """Leave what a part gives at the rows `mine`, for `merged`; how many parts had arrived before it."""
    log = tl.where(total == 0.0, float("-inf"), most + tl.log2(total))
    tl.store(logs + mine, log, mask=real)
    tl.store(partial + mine[:, None] * columns + tl.arange(0, columns)[None, :], mean, mask=real[:, None])
    tl.debug_barrier()  # all threads have left theirs
    before = tl.atomic_add(arrivals, 1, sem="acq_rel")
    tl.debug_barrier()
    return before


@triton.jit
def merged(
    partial: tl.tensor,
    logs: tl.tensor,
    begun: tl.tensor,
    parts: tl.tensor,
    used: tl.constexpr,
    lines: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
) -> tl.tensor:
    """[lines, columns]: the mean of what parts left of `used` rows each, weighed by their softmax's totals.

    `begun`: where the first part's rows begin. Other programs have only just written them: not from the first cache.
    """
    number = tl.arange(0, chunk * lines)
    column = tl.arange(0, columns)
    most = tl.full([lines], float("-inf"), tl.float32)
    total = tl.zeros([lines], tl.float32)
    sums = tl.zeros([lines, columns], tl.float32)
    for first in range(0, parts, chunk):
        part, line = first + number // lines, number % lines
        there = (part < parts) & (line < used)
        at = begun + part * used + line
        log = tl.load(logs + at, mask=there, other=float("-inf"), cache_modifier=".cg")
        mean = tl.load(
            partial + at[:, None] * columns + column[None, :], mask=there[:, None], other=0.0, cache_modifier=".cg"
        )
        log = tl.reshape(log, [chunk, lines])
        higher = tl.maximum(most, tl.max(log, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(log - base[None, :])
        fade = tl.exp2(most - base)
        total = total * fade + tl.sum(weight, axis=0)
        means = tl.reshape(mean, [chunk, lines, columns]) * weight[:, :, None]
        sums = sums * fade[:, None] + tl.sum(means, axis=0)
        most = higher
    return sums / total[:, None]


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
    arrivals: tl.tensor,
    tiles: tl.tensor,
    geometry: tl.tensor,
    tables: tl.tensor,
    sinks: tl.tensor,
    kv_heads: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    least: tl.tensor,
    most_heads: tl.constexpr,
    dim: tl.constexpr,
    block_size: tl.constexpr,
    group: tl.constexpr,
    queries: tl.constexpr,
    rows: tl.constexpr,
    lines: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per tile of queries, key head and part of the keys.

    The `group` query heads that share a key head are rows of one product: keys are read once for all of them, and a
    single token still fills some of the 16 rows of a tensor core's operand. With `partial`, parts leave there what they
    give, and the last of them to arrive puts them together; without, there is one. A head's sink is one more key of
    the first part.
    """
    begin(pdl)
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    # The geometry was there before the first launch of a layer: no need to wait for the one before.
    at = geometry + tl.load(tiles + 2 * tile) * 4
    first = tl.load(tiles + 2 * tile + 1)
    count, context = tl.load(at + 1), tl.load(at + 2)
    start_row = tl.load(at).to(tl.int64)
    table = tables + tl.load(at + 3)
    row = tl.arange(0, rows)
    query = first + row // group
    real = (row < queries * group) & (query < count)
    column = tl.arange(0, columns)
    wide = column < dim
    line = (start_row + query) * (kv_heads * group) + kv_head * group + row % group
    place = line[:, None] * dim + column[None, :]
    # Later keys than the tile's last query sees, and earlier ones than its first sees, are not read.
    position = context - count + query
    stop = tl.minimum(context - count + first + queries, context)
    start = 0
    if window is not None:
        start = tl.maximum(context - count + first - window + 1, 0)
    parts, part = 1, 0
    if partial is not None:
        span = tl.maximum(tl.cdiv(tl.cdiv(context, tl.num_programs(2)), block) * block, least)
        parts, part = tl.cdiv(context, span), tl.program_id(2)
        start = tl.maximum(start, part * span)
        stop = tl.minimum(stop, part * span + span)
    wait(pdl)
    if part < parts:
        asked = tl.load(q + place, mask=real[:, None] & wide[None, :], other=0.0)
        most = tl.full([rows], float("-inf"), tl.float32)
        total = tl.zeros([rows], tl.float32)
        sums = tl.zeros([rows, columns], tl.float32)
        if sinks is not None:  # noqa: SIM102  this is known when it is compiled
            if part == 0:
                most = tl.load(sinks + kv_head * group + row % group) * 1.4426950408889634
                total += 1.0
        masked_from = start
        if window is None:
            # All queries of the tile see the keys up to the first one's own.
            free = tl.maximum(tl.minimum(stop, context - count + first + 1) - start, 0) // block * block
            masked_from = start + free
            for key in range(start, masked_from, block):
                most, total, sums = _read(
                    asked, position, keys, values, key_scales, value_scales, table, key, stop, kv_head, kv_heads,
                    window, scale, most, total, sums, dim, block_size, columns, block, False,
                )  # fmt: skip
        for key in range(masked_from, stop, block):
            most, total, sums = _read(
                asked, position, keys, values, key_scales, value_scales, table, key, stop, kv_head, kv_heads, window,
                scale, most, total, sums, dim, block_size, columns, block, True,
            )  # fmt: skip
        # Nothing was seen where the total is 0; a NaN is not 0 and stays visible.
        mean = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        if parts == 1:
            tl.store(out + place, mean.to(out.dtype.element_ty), mask=real[:, None] & wide[None, :])
        if partial is not None:
            used: tl.constexpr = queries * group
            begun = (tile * kv_heads + kv_head).to(tl.int64) * tl.num_programs(2) * used
            if parts > 1:
                arrival = arrivals + tile * most_heads + kv_head
                mine = begun + part * used + row
                before = arrive(partial, logs, arrival, mine, row < used, most, total, mean, columns)
                if before == parts - 1:
                    tl.store(arrival, 0)  # for the next layer
                    whole = merged(partial, logs, begun, parts, used, lines, columns, 64 // lines)
                    last = tl.arange(0, lines)
                    asker = first + last // group
                    owner = (start_row + asker) * (kv_heads * group) + kv_head * group + last % group
                    theirs = (last < used) & (asker < count)
                    tl.store(
                        out + owner[:, None] * dim + column[None, :],
                        whole.to(out.dtype.element_ty),
                        mask=theirs[:, None] & wide[None, :],
                    )


def paged_attention(
    q: Tensor,
    layer: KVLayer,
    plan: TritonPlan | DecodePlan | StandingPlan,
    window: int | None = None,
    prompts: PromptAttention | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """See Kernels. q contiguous. `prompts` attends what it takes of a step, and knows of no sinks."""
    heads, dim = q.shape[1:]
    kv_heads = layer.keys.shape[1]
    group = heads // kv_heads
    columns = max(16, triton.next_power_of_2(dim))
    # With 128 rows of wider heads, or of keys that are converted on the way, a thread's registers overflow.
    most_rows, shared = 128 if columns <= 128 and layer.key_scales is None else 64, shared_memory()
    if most_rows * columns * q.element_size() > shared // 2:
        most_rows //= 2
    tiles, out = plan.tiles(group, most_rows), torch.empty_like(q)

    def launch(work: Tensor, queries: int, programs: int) -> None:
        logs, partial = None, None
        if programs > 1:
            logs = q.new_empty(work.shape[0], kv_heads, programs, queries * group, dtype=torch.float32)
            partial = q.new_empty(*logs.shape, columns, dtype=torch.float32)
        rows = max(16, triton.next_power_of_2(queries * group))
        tile = _tile(rows, columns, q.element_size(), shared)
        _attend[(work.shape[0], kv_heads, programs)](
            q, layer.keys, layer.values, layer.key_scales, layer.value_scales, out, partial, logs, tiles.arrivals, work,
            plan.geometry, plan.tables, sinks, kv_heads, window, dim**-0.5 * math.log2(math.e), _LEAST_SPAN, ARRIVALS,
            dim, plan.block_size, group, queries, rows, triton.next_power_of_2(queries * group), columns, tile.block,
            num_warps=tile.warps, num_stages=tile.stages, **overlapping(),
        )  # fmt: skip

    theirs = (
        prompts is not None
        and sinks is None
        and isinstance(plan, TritonPlan)
        and prompts.attended(q, layer, plan, tiles, window, out)
    )
    if tiles.many.shape[0] and not theirs:
        launch(tiles.many, tiles.many_queries, 1)
    if tiles.few.shape[0]:
        launch(tiles.few, tiles.few_queries, programs_of(tiles.few.shape[0], kv_heads, tiles.longest))
    return out


def _tile(rows: int, columns: int, size: int, shared: int) -> Tile:
    """For so many rows of queries and heads of `columns` elements of `size` bytes, in `shared` bytes of memory."""
    width = columns * size
    tile = (
        Tile(128, 8, 3) if rows == 128 and width <= 256 else Tile(64 if width <= 256 else 32, 4 if rows < 128 else 8, 3)
    )
    # Queries, keys and values pass through it, and float32 weights, which tensor cores do not take from registers.
    while (rows + 2 * tile.block) * width + (rows * tile.block * 4 if size == 4 else 0) > shared and tile.block > 16:
        tile = replace(tile, block=tile.block // 2)
    return tile


def programs_of(sequences: int, kv_heads: int, longest: int) -> int:
    """How many share the keys of a sequence: of shapes alone, as what is launched must not depend on contexts."""
    if kv_heads > ARRIVALS:
        return 1
    most = min(_MOST_PARTS, -(-longest // _LEAST_SPAN))
    return max(1, min(most, _PROGRAMS // (sequences * kv_heads)))
