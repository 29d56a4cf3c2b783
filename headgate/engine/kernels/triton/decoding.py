"""Steps on rows that the device holds: their inputs, and what becomes of the rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.device_rows import DeviceStep, RowState
from headgate.engine.kernels.triton import sampling
from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.noise import splitmix64
from headgate.engine.kernels.triton.plan import ARRIVALS, DecodePlan


@triton.jit
def _begin(
    order: tl.tensor,
    numbers: tl.tensor,
    tables: tl.tensor,
    tokens: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    keys: tl.tensor,
    geometry: tl.tensor,
    tiles: tl.tensor,
    arrivals: tl.tensor,
    blocks: tl.tensor,
    block_size: tl.tensor,
    columns: tl.constexpr,
    most_heads: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row of the step."""
    begin(pdl)
    wait(pdl)
    line = tl.program_id(0)
    row = tl.load(order + line)
    of = numbers + row * columns
    position = tl.load(of + 1)
    tl.store(tokens + line, tl.load(of))
    tl.store(positions + line, position)
    block = tl.load(tables + row * blocks + position // block_size).to(tl.int64)
    tl.store(slots + line, block * block_size + position % block_size)
    # The token that is drawn has the next position.
    key = splitmix64(tl.load(of + 2).to(tl.uint64, bitcast=True) ^ (position + 1).to(tl.uint64, bitcast=True))
    tl.store(keys + 2 * line, (key >> 32).to(tl.int32))
    tl.store(keys + 2 * line + 1, (key & 0xFFFFFFFF).to(tl.int32))
    tl.store(geometry + 4 * line, line)
    tl.store(geometry + 4 * line + 1, 1)
    tl.store(geometry + 4 * line + 2, (position + 1).to(tl.int32))
    tl.store(geometry + 4 * line + 3, (row * blocks).to(tl.int32))
    tl.store(arrivals + line * most_heads + tl.arange(0, most_heads), tl.zeros([most_heads], tl.int32))
    tl.store(tiles + 2 * line, line)
    tl.store(tiles + 2 * line + 1, 0)


@triton.jit
def _advance(
    order: tl.tensor,
    numbers: tl.tensor,
    choices: tl.tensor,
    counts: tl.tensor,
    chosen: tl.tensor,
    logprobs: tl.tensor,
    out: tl.tensor,
    last: tl.tensor,
    width: tl.tensor,
    columns: tl.constexpr,
    settings: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row of the step."""
    begin(pdl)
    wait(pdl)
    line = tl.program_id(0)
    row, token = tl.load(order + line), tl.load(chosen + line)
    tl.store(out + line, token.to(tl.float64))
    tl.store(out + tl.num_programs(0) + line, tl.load(logprobs + line).to(tl.float64))
    if row != last:
        token = tl.maximum(token, 0)
        of = numbers + row * columns
        tl.store(of, token)
        tl.store(of + 1, tl.load(of + 1) + 1)
        choice = choices + row * settings
        if (tl.load(choice + 3) != 1.0) | (tl.load(choice + 4) != 0.0) | (tl.load(choice + 5) != 0.0):
            count = counts + row * width + token
            tl.store(count, tl.load(count) + 1)


class TritonRows:
    """Implements the RowKernels protocol."""

    def begin(self, state: RowState, order: Tensor) -> DeviceStep:
        """See RowKernels."""
        rows = len(order)

        def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=order.device)

        tokens, positions, slots = (numbers(rows) for _ in range(3))
        keys = numbers(rows, 2, dtype=torch.int32)
        geometry, tiles = numbers(rows, 4, dtype=torch.int32), numbers(rows, 2, dtype=torch.int32)
        arrivals = numbers(rows, ARRIVALS, dtype=torch.int32)
        blocks = state.tables.shape[1]
        _begin[(rows,)](
            order, state.numbers, state.tables, tokens, positions, slots, keys, geometry, tiles, arrivals,
            blocks, state.block_size, state.numbers.shape[1], ARRIVALS, num_warps=1, **overlapping(),
        )  # fmt: skip
        plan = DecodePlan(geometry, tiles, arrivals, state.tables, blocks * state.block_size, state.block_size)
        return DeviceStep(tokens, positions, slots, keys, plan)

    def choose(self, logits: Tensor, state: RowState, order: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """See RowKernels."""
        return sampling.choose(logits, state, order, keys)

    def advance(self, state: RowState, order: Tensor, chosen: Tensor, logprobs: Tensor, out: Tensor) -> None:
        """See RowKernels."""
        _advance[(len(order),)](
            order, state.numbers, state.choices, state.counts, chosen, logprobs, out, state.rows, state.counts.shape[1],
            state.numbers.shape[1], state.choices.shape[1], num_warps=1, **overlapping(),
        )  # fmt: skip
