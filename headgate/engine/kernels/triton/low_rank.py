"""What low-rank adapters add to a layer's rows, each row its own adapter's: y += up(down(x)), in two launches.

The first makes a row's few numbers of its inputs, the second adds what they give to its outputs; rows without an
adapter end there at once. What is launched depends on shapes alone: which adapter is whose is read on the device, as
are the ranks that it has. With few rows a program has one of them, without padding to what tensor cores take. With many
it has a tile, and goes through the adapters that occur there one by one: in a prompt mostly one.

After "Punica" (Chen et al. 2023) and "S-LoRA" (Sheng et al. 2023), which gather and batch factors like this.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.few import Unnormed, gated
from headgate.engine.kernels.triton.few import row as activations
from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.models.adapters.linear import RUN, Stack

_ALONE = 4096
"""Rows times ranks up to which each row reads its factors by itself; beyond, those of an adapter are read too often."""
_RANKS, _COLUMNS, _DEEP = 4, 256, 16
"""Of a program of one row: ranks it computes; outputs it adds to, and ranks it reads at a time for that."""
_BYTES = 8 << 10
"""Most of a factor's row that such a program asks for at once: with _RANKS of them 64 registers of each thread."""
_SOME = 2048
"""Rows up to which tiles are small, so that there are many of them."""
_NOBODY = tl.constexpr(1 << 62)


def alone(rows: int, stack: Stack) -> bool:
    """Whether so many rows go one by one; only then they may come Unnormed, or be gated."""
    return rows * stack.down.shape[1] <= _ALONE


def whole(stack: Stack) -> bool:
    """Whether a program sees all inputs of a row at once, as norms take."""
    return stack.down.shape[2] * stack.down.element_size() <= _BYTES


@triton.jit
def _span(
    spans: tl.tensor, number: tl.tensor, first: tl.tensor, last: tl.tensor, runs: tl.tensor, some: tl.constexpr,
    run: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """The ranks of an adapter that outputs from `first` to `last` have something of: from one on, before one."""
    at = first // run + tl.arange(0, some)
    there = at <= last // run
    place = spans + (number * (runs + 1) + 1 + at) * 2
    start = tl.min(tl.load(place, mask=there, other=0x7FFFFFFF), axis=0)
    return start, tl.max(tl.load(place + 1, mask=there, other=0), axis=0)


@triton.jit
def _ups(
    up: tl.tensor, line: tl.tensor, start: tl.tensor, stop: tl.tensor, column: tl.tensor, inside: tl.tensor,
    outputs: tl.tensor, deep: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Rows `start` to `stop` of an adapter's factor, whose rows begin at `line`: [deep, columns]."""
    rank = start + tl.arange(0, deep)
    place = up + (line + rank)[:, None] * outputs + column[None, :]
    return tl.load(place, mask=(rank < stop)[:, None] & inside[None, :], other=0.0)


@triton.jit
def _added(
    ups: tl.tensor, low: tl.tensor, up: tl.tensor, line: tl.tensor, start: tl.tensor, stop: tl.tensor,
    column: tl.tensor, inside: tl.tensor, outputs: tl.tensor, deep: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """float32 [columns]: what ranks `start` to `stop` of the row at `low` give; `ups` are the first of the factor."""
    rank = start + tl.arange(0, deep)
    given = tl.load(low + rank, mask=rank < stop, other=0.0)
    sums = tl.sum(ups.to(tl.float32) * given[:, None], axis=0)
    for further in tl.range(start + deep, stop, deep, num_stages=2):
        rank = further + tl.arange(0, deep)
        given = tl.load(low + rank, mask=rank < stop, other=0.0)
        more = _ups(up, line, further, stop, column, inside, outputs, deep)
        sums += tl.sum(more.to(tl.float32) * given[:, None], axis=0)
    return sums


@triton.jit
def _shrink(
    x: tl.tensor,
    residual: tl.tensor,
    norm: tl.tensor,
    down: tl.tensor,
    spans: tl.tensor,
    numbers: tl.tensor,
    low: tl.tensor,
    inputs: tl.tensor,
    most: tl.tensor,
    runs: tl.tensor,
    eps: tl.tensor,
    ranks: tl.constexpr,
    depth: tl.constexpr,
    longer: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row and run of ranks; `longer`: there are more inputs than `depth`.

    It asks for its factors before it waits: whose each row is, was told before the step's first launch.
    """
    begin(pdl)
    row = tl.program_id(0).to(tl.int64)
    number = tl.load(numbers + row)
    first = tl.program_id(1) * ranks
    last = tl.load(spans + number * (runs + 1) * 2 + 1)
    rank = first + tl.arange(0, ranks)
    inside = rank < last
    line = down + (number * most + rank) * inputs
    at = tl.arange(0, depth)
    there = at < inputs
    weight = tl.load(line[:, None] + at[None, :], mask=inside[:, None] & there[None, :], other=0.0)
    scale = norm
    if norm is not None:
        scale = tl.load(norm + at, mask=there, other=0.0)
    wait(pdl)
    if first < last:
        start = x + row * inputs
        given = activations(start, residual, scale, x, at, there, inputs, eps, False)
        sums = tl.sum(weight.to(tl.float32) * given[None, :], axis=1)
        if longer:
            for further in tl.range(depth, inputs, depth, num_stages=2):
                at = further + tl.arange(0, depth)
                there = at < inputs
                more = tl.load(line[:, None] + at[None, :], mask=inside[:, None] & there[None, :], other=0.0)
                given = tl.load(start + at, mask=there, other=0.0).to(tl.float32)
                sums += tl.sum(more.to(tl.float32) * given[None, :], axis=1)
        tl.store(low + row * most + rank, sums, mask=inside)


@triton.jit
def _expand(
    y: tl.tensor,
    low: tl.tensor,
    up: tl.tensor,
    spans: tl.tensor,
    numbers: tl.tensor,
    out: tl.tensor,
    outputs: tl.tensor,
    most: tl.tensor,
    runs: tl.tensor,
    gate: tl.constexpr,
    columns: tl.constexpr,
    some: tl.constexpr,
    deep: tl.constexpr,
    run: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row and run of outputs. `gate`: y has as many gates, then ups, and `out` gets what they make."""
    begin(pdl)
    row = tl.program_id(0).to(tl.int64)
    number = tl.load(numbers + row)
    line = number * most
    first = tl.program_id(1) * columns
    last = tl.minimum(first + columns, outputs) - 1
    column = first + tl.arange(0, columns)
    inside = column < outputs
    width = 2 * outputs if gate else outputs
    start, stop = _span(spans, number, first, last, runs, some, run)
    one = _ups(up, line, start, stop, column, inside, width, deep)
    if gate:
        start_two, stop_two = _span(spans, number, outputs + first, outputs + last, runs, some, run)
        two = _ups(up, line, start_two, stop_two, outputs + column, inside, width, deep)
    wait(pdl)
    given = low + row * most
    place = y + row * width + column
    if gate:
        gates = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        gates += _added(one, given, up, line, start, stop, column, inside, width, deep)
        ups = tl.load(place + outputs, mask=inside, other=0.0).to(tl.float32)
        ups += _added(two, given, up, line, start_two, stop_two, outputs + column, inside, width, deep)
        made = gated(gates, ups, out.dtype.element_ty)
        tl.store(out + row * outputs + column, made.to(out.dtype.element_ty), mask=inside)
    elif start < stop:
        sums = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        sums += _added(one, given, up, line, start, stop, column, inside, width, deep)
        tl.store(place, sums.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _following(numbers: tl.tensor, number: tl.tensor) -> tl.tensor:
    """The least of the rows' numbers above one."""
    return tl.min(tl.where(numbers > number, numbers, _NOBODY), axis=0)


@triton.jit
def _shrink_tile(
    x: tl.tensor,
    down: tl.tensor,
    spans: tl.tensor,
    numbers: tl.tensor,
    low: tl.tensor,
    tokens: tl.tensor,
    inputs: tl.tensor,
    most: tl.tensor,
    runs: tl.tensor,
    rows: tl.constexpr,
    ranks: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per tile of rows and ranks."""
    begin(pdl)
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    number = tl.load(numbers + row, mask=row < tokens, other=0)
    first = tl.program_id(1) * ranks
    rank = first + tl.arange(0, ranks)
    wait(pdl)
    current = _following(number, 0)
    while current < _NOBODY:
        last = tl.load(spans + current * (runs + 1) * 2 + 1)
        if first < last:
            mine, inside = number == current, rank < last
            sums = tl.zeros([rows, ranks], tl.float32)
            for begun in range(0, inputs, depth):
                at = begun + tl.arange(0, depth)
                there = (at < inputs)[None, :]
                given = tl.load(x + row[:, None] * inputs + at[None, :], mask=mine[:, None] & there, other=0.0)
                line = down + (current * most + rank)[:, None] * inputs
                weight = tl.load(line + at[None, :], mask=inside[:, None] & there, other=0.0)
                sums += tl.dot(given, tl.trans(weight), input_precision="ieee")
            tl.store(low + row[:, None] * most + rank[None, :], sums, mask=mine[:, None] & inside[None, :])
        current = _following(number, current)


@triton.jit
def _expand_tile(
    y: tl.tensor,
    low: tl.tensor,
    up: tl.tensor,
    spans: tl.tensor,
    numbers: tl.tensor,
    tokens: tl.tensor,
    outputs: tl.tensor,
    most: tl.tensor,
    runs: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    some: tl.constexpr,
    deep: tl.constexpr,
    run: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per tile of rows and outputs."""
    begin(pdl)
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)
    number = tl.load(numbers + row, mask=row < tokens, other=0)
    first = tl.program_id(1) * columns
    last = tl.minimum(first + columns, outputs) - 1
    column = first + tl.arange(0, columns)
    inside = column < outputs
    wait(pdl)
    sums = tl.zeros([rows, columns], tl.float32)
    current = _following(number, 0)
    while current < _NOBODY:
        start, stop = _span(spans, current, first, last, runs, some, run)
        mine = number == current
        for begun in range(start, stop, deep):
            rank = begun + tl.arange(0, deep)
            place = low + row[:, None] * most + rank[None, :]
            given = tl.load(place, mask=mine[:, None] & (rank < stop)[None, :], other=0.0)
            ups = _ups(up, current * most, begun, stop, column, inside, outputs, deep)
            found = tl.dot(given.to(ups.dtype), ups, input_precision="ieee")
            # Not by a product with zeros: a factor may be infinite in 16 bits.
            sums += tl.where(mine[:, None], found, 0.0)
        current = _following(number, current)
    place = y + row[:, None] * outputs + column[None, :]
    there = (number > 0)[:, None] & inside[None, :]
    sums += tl.load(place, mask=there, other=0.0).to(tl.float32)
    tl.store(place, sums.to(y.dtype.element_ty), mask=there)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows of a program, outputs that it adds to, inputs that it reads at a time, its warps."""

    rows: int
    columns: int
    depth: int
    warps: int

    @classmethod
    def of(cls, rows: int, stack: Stack) -> _Tile:
        """For so many rows of a step; of float32 a program holds less in its registers."""
        if stack.down.element_size() > 2:
            return cls(16, 64, 64, 4)
        return cls(16, 128, 128, 4) if rows <= _SOME else cls(64, 128, 128, 8)


def shrink(x: Tensor | Unnormed, stack: Stack, numbers: Tensor) -> Tensor:
    """What `expand` takes: float32 [rows, rank] of x [rows, inputs], contiguous, of which it writes what is needed.

    `numbers`: int64 [rows], each row's place in `stack`, 0 for none.
    """
    plain = x.x if isinstance(x, Unnormed) else x
    rows, (_, rank, inputs) = plain.shape[0], stack.down.shape
    low = torch.empty(rows, rank, dtype=torch.float32, device=plain.device)
    given, runs = (stack.down, stack.spans, numbers, low), stack.spans.shape[1] - 1
    if rows and alone(rows, stack):
        residual, norm, eps = (x.residual, x.weight, x.eps) if isinstance(x, Unnormed) else (None, None, 0.0)
        depth = min(triton.next_power_of_2(inputs), _BYTES // stack.down.element_size())
        _shrink[rows, triton.cdiv(rank, _RANKS)](
            plain, residual, norm, *given, inputs, rank, runs, eps, _RANKS, depth, inputs > depth, num_warps=4,
            **overlapping(),
        )  # fmt: skip
    elif rows:
        tile, ranks = _Tile.of(rows, stack), min(64, max(16, triton.next_power_of_2(rank)))
        _shrink_tile[triton.cdiv(rows, tile.rows), triton.cdiv(rank, ranks)](
            plain, *given, rows, inputs, rank, runs, tile.rows, ranks, tile.depth, num_warps=tile.warps, **overlapping()
        )
    return low


def expand(y: Tensor, low: Tensor, stack: Stack, numbers: Tensor, *, gate: bool = False) -> Tensor:
    """Add to y [rows, outputs], contiguous, what `shrink` gave makes, in place.

    Returns:
        y; with `gate`, for rows that go one by one, silu(first half) * second half of it, and y stays as it was.
    """
    (rows, width), (_, rank, _) = y.shape, stack.up.shape
    outputs = width // 2 if gate else width
    out = y.new_empty(rows, outputs) if gate else y
    given, runs = (low, stack.up, stack.spans, numbers), stack.spans.shape[1] - 1
    if rows and alone(rows, stack):
        deep = min(triton.next_power_of_2(rank), _DEEP)
        _expand[rows, triton.cdiv(outputs, _COLUMNS)](
            y, *given, out, outputs, rank, runs, gate, _COLUMNS, _some(_COLUMNS), deep, RUN, num_warps=4,
            **overlapping(),
        )  # fmt: skip
    elif rows:
        tile, deep = _Tile.of(rows, stack), 16 if rank <= 16 else 32
        _expand_tile[triton.cdiv(rows, tile.rows), triton.cdiv(outputs, tile.columns)](
            y, *given, rows, outputs, rank, runs, tile.rows, tile.columns, _some(tile.columns), deep, RUN,
            num_warps=tile.warps, **overlapping(),
        )  # fmt: skip
    return out


def _some(columns: int) -> int:
    """Most runs that so many outputs lie in, filled up: ups begin where no run does."""
    return int(triton.next_power_of_2(columns // RUN + 1))
