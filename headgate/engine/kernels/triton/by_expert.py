"""Pairs of token and expert sorted by expert, in one launch, for products in tiles of one expert each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.launch import begin, overlapping, wait

_CHUNK = 1024
"""Pairs that a program looks at together."""


@triton.jit
def _sort(
    chosen: tl.tensor,
    pairs: tl.tensor,
    experts: tl.tensor,
    most: tl.tensor,
    count: tl.tensor,
    tiles: tl.tensor,
    size: tl.constexpr,
    bins: tl.constexpr,
    chunk: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per expert, which counts all of them and places its own pairs; the last one marks tiles left over."""
    begin(pdl)
    wait(pdl)
    expert = tl.program_id(0)
    number = tl.arange(0, bins)
    counts = tl.zeros([bins], tl.int32)
    for first in range(0, most, chunk):
        at = first + tl.arange(0, chunk)
        counts += tl.histogram(tl.load(chosen + at, mask=at < most, other=count), bins)
    filled = tl.where(number < count, (counts + size - 1) // size * size, 0)
    start = tl.sum(tl.where(number < expert, filled, 0), axis=0)
    stop = start + tl.sum(tl.where(number == expert, filled, 0), axis=0)
    if expert < count:
        place = start
        for first in range(0, most, chunk):
            at = first + tl.arange(0, chunk)
            mine = (tl.load(chosen + at, mask=at < most, other=count) == expert).to(tl.int32)
            tl.store(pairs + place + tl.cumsum(mine, axis=0) - 1, at, mask=mine > 0)
            place += tl.sum(mine, axis=0)
        rest = place + tl.arange(0, size)
        tl.store(pairs + rest, rest * 0 + most, mask=rest < stop)
    else:
        stop = tiles * size
    for first in range(start // size, stop // size, bins):
        tl.store(experts + first + number, number * 0 + expert, mask=first + number < stop // size)


def by_expert(chosen: Tensor, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Pairs int32 [tiles, size] of `chosen` int32 [tokens, per_token], sorted, each of `count` experts' filled up to
    whole tiles with a pair that there is not; and the tiles' experts, int32.

    As many tiles as there can be, whatever was chosen, so that the host need not know: those past the last have expert
    `count`, and any pairs.
    """
    most = chosen.numel()
    tiles = min(most, triton.cdiv(most, size) + count)
    pairs = torch.empty(tiles, size, dtype=torch.int32, device=chosen.device)
    experts = torch.empty(tiles, dtype=torch.int32, device=chosen.device)
    bins = max(128, triton.next_power_of_2(count + 1))
    _sort[(count + 1,)](chosen, pairs, experts, most, count, tiles, size, bins, _CHUNK, **overlapping())
    return pairs, experts
