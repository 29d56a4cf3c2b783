"""Weights of launches to come, asked for while memory has nothing else to do.

A step of a few tokens is a chain of launches, each of which asks early for its own weights. Attention reads little and
takes long, on few of the device's processors: programs of its launch that have no keys ask for what the layer reads
after its output, so that it lies in the second-level cache by then. Of experts those are asked for that a guess names:
what the router of the layer before would have chosen if it had been this layer's. A wrong guess costs reading, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.stored import Stored

_CHUNK = tl.constexpr(4096)
"""Bytes that are asked for at a time."""
_ALIGNED = 16
_LANES = 256
"""Chunks that a program asks for at a time, wanted or not: one for each thread of the largest programs."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Two weights that are read soon, of a layer or of those experts that `logits` let be expected.

    Attributes:
        first, second: contiguous, or [experts, ...], each expert's contiguous.
        logits: float32 [experts], which may change at any time; None of a layer.
        per_token: how many experts are expected; 1 of a layer.
    """

    first: Tensor
    second: Tensor
    logits: Tensor | None = None
    per_token: int = 1

    @classmethod
    def of(cls, first: Stored, second: Stored, logits: Tensor | None = None, per_token: int = 1) -> Fetched | None:
        """None where weights do not begin as the instruction wants it, at multiples of 16 bytes."""
        fetched = cls(first.values, second.values, logits, per_token)
        for weight in (fetched.first, fetched.second):
            apart = 0 if logits is None else weight[0].nbytes
            if weight.data_ptr() % _ALIGNED or apart % _ALIGNED:
                return None
        return fetched

    @property
    def experts(self) -> int:
        """How many there are to choose from."""
        return 1 if self.logits is None else self.logits.shape[0]

    def chunks(self, most: int) -> tuple[int, int]:
        """Of each expert, so many of both weights that all of it are `most` bytes at most."""
        left = most // self.per_token // _CHUNK.value
        first, second = (weight.nbytes // self.experts // _CHUNK.value for weight in (self.first, self.second))
        return min(first, left), min(second, max(0, left - first))


@triton.jit
def places(logits: tl.tensor, count: tl.tensor, experts: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """Logits [experts] of a token and, of each, how many of its `count` come before it, the first of equal ones first.

    All are counted at once: to look for one after the other takes a barrier each time. Logits are compared, which both
    sides load, so that no two experts get the same place. What other programs have only just written does not come from
    the first cache.
    """
    expert = tl.arange(0, experts)
    logit = tl.load(logits + expert, mask=expert < count, other=float("-inf"), cache_modifier=".cg")
    # Where nothing is a number any expert will do, so long as there is one.
    mine = tl.where(logit == logit, logit, float("-inf"))[None, :]
    run: tl.constexpr = max(1, 4096 // experts)
    before = tl.zeros([run, experts], tl.int32)
    for first in tl.static_range(0, experts, run):
        other = first + tl.arange(0, run)
        theirs = tl.load(logits + other, mask=other < count, other=float("-inf"), cache_modifier=".cg")
        theirs = tl.where(theirs == theirs, theirs, float("-inf"))[:, None]
        earlier = other[:, None] < expert[None, :]
        before += ((theirs > mine) | ((theirs == mine) & earlier)).to(tl.int32)
    return logit, tl.sum(before, axis=0)


@triton.jit
def ask(address: tl.tensor, wanted: tl.tensor) -> None:
    """For the chunks at these addresses; nobody waits for them."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p cp.async.bulk.prefetch.L2.global [$1], 4096; mov.s32 $0, 0; }",
        "=r,l,r",
        [address, wanted.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch(
    first: tl.tensor,
    second: tl.tensor,
    first_chunks: tl.tensor,
    second_chunks: tl.tensor,
    first_bytes: tl.tensor,
    second_bytes: tl.tensor,
    logits: tl.tensor,
    count: tl.tensor,
    part: tl.tensor,
    parts: tl.tensor,
    per_token: tl.constexpr,
    experts: tl.constexpr,
    lanes: tl.constexpr,
) -> None:
    """A part of the first chunks of both weights, of each expert that is expected; an expert's have so many bytes."""
    expert = tl.arange(0, experts)
    expected = expert < count
    if logits is not None:
        _, place = places(logits, count, experts)
        expected = expected & (place < per_token)
    lane = tl.arange(0, lanes)
    for begun in range(part * lanes, first_chunks + second_chunks, parts * lanes):
        chunk = begun + lane
        in_first = chunk < first_chunks
        of_first = first.to(tl.int64) + expert[:, None].to(tl.int64) * first_bytes + (chunk * _CHUNK)[None, :]
        of_second = second.to(tl.int64) + expert[:, None].to(tl.int64) * second_bytes
        of_second += ((chunk - first_chunks) * _CHUNK)[None, :]
        wanted = expected[:, None] & (chunk < first_chunks + second_chunks)[None, :]
        ask(tl.where(in_first[None, :], of_first, of_second), wanted)


def lanes(experts: int) -> int:
    """Chunks of each of so many experts, a power of two, that a program asks for at a time."""
    return max(2, _LANES // experts)


def arguments(fetched: Fetched, most: int) -> tuple[int, tuple[Any, ...], int, int]:
    """Programs to spend on asking for `most` bytes; arguments of `fetch` up to `count`, `per_token` and `experts`."""
    count = fetched.experts
    experts = triton.next_power_of_2(count)
    first, second = fetched.chunks(most)
    sizes = first, second, fetched.first.nbytes // count, fetched.second.nbytes // count
    asking = min(_PROGRAMS, triton.cdiv(first + second, lanes(experts)))
    return asking, (fetched.first, fetched.second, *sizes, fetched.logits, count), fetched.per_token, experts


_PROGRAMS = 96
"""Of a launch that ask: attention of a few tokens leaves about as many processors."""
