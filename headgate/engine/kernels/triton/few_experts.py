"""The experts of a token or a few: each pair of token and expert by itself, in three launches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton import few
from headgate.engine.kernels.triton.few import Unnormed, gated, row, scales_of, tile, times, weights
from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.stored import Stored
from headgate.engine.quant.fp8 import BLOCK

_WARPS = 8
"""Of a program that others wait for, or whose weights were asked for early: what is left is arithmetic."""

_ROUTER, _GATES, _DOWNS = 32 << 10, 16 << 10, 64 << 10
"""Bytes of weights that a program keeps. Gates cannot be asked for early: small programs are done sooner. One of downs
reads all of a token's experts."""
_KEPT = 32 << 10
"""Most activations between gates and downs of all of a token's experts: half of a program's registers."""


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
def likeliest(
    logits: tl.tensor,
    chosen: tl.tensor,
    shares: tl.tensor,
    count: tl.tensor,
    per_token: tl.constexpr,
    experts: tl.constexpr,
) -> None:
    """Softmax over a token's `count` experts, then the largest, the first of equal ones first.

    Where nothing is a number the shares are no numbers either.
    """
    expert = tl.arange(0, experts)
    logit, place = places(logits, count, experts)
    power = tl.exp(logit - tl.max(logit, axis=0))
    share = power / tl.sum(power, axis=0)
    wanted = (expert < count) & (place < per_token)
    tl.store(chosen + place, expert, mask=wanted)
    tl.store(shares + place, share, mask=wanted)


@triton.jit
def _router(
    x: tl.tensor,
    residual: tl.tensor,
    norm: tl.tensor,
    total: tl.tensor,
    normed: tl.tensor,
    weight: tl.tensor,
    logits: tl.tensor,
    chosen: tl.tensor,
    shares: tl.tensor,
    arrivals: tl.tensor,
    inputs: tl.tensor,
    count: tl.tensor,
    eps: tl.tensor,
    tokens: tl.constexpr,
    per_token: tl.constexpr,
    experts: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per run of experts, of all tokens; the last one to arrive chooses among all."""
    begin(pdl)
    first = tl.program_id(0).to(tl.int64) * columns
    column = first + tl.arange(0, columns)
    inside = column < count
    at = tl.arange(0, depth)
    there = at < inputs
    mine = weights(weight, first, inside, at, there, inputs)
    scale = norm
    if norm is not None:
        scale = tl.load(norm + at, mask=there, other=0.0)
    wait(pdl)
    for token in tl.static_range(tokens):
        given = row(x + token * inputs, residual, scale, total, at, there, inputs, eps, first == 0)
        tl.store(logits + token * count + column, times(mine, 1.0, given, "native"), mask=inside)
        if norm is not None:  # noqa: SIM102  decided when it is compiled
            if first == 0:
                tl.store(normed + token * inputs + at, given.to(x.dtype.element_ty), mask=there)
    tl.debug_barrier()
    arrived = tl.atomic_add(arrivals, 1, sem="acq_rel")
    tl.debug_barrier()
    if arrived == tl.num_programs(0) - 1:
        tl.store(arrivals, 0)  # for the next token
        for token in tl.static_range(tokens):
            likeliest(
                logits + token * count,
                chosen + token * per_token,
                shares + token * per_token,
                count,
                per_token,
                experts,
            )


@triton.jit
def _gates(
    x: tl.tensor,
    chosen: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    out: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    fmt: tl.constexpr,
    per_token: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per pair and run of its expert's `outputs` gates and ups."""
    at = tl.arange(0, depth)
    there = at < inputs
    wait(pdl)
    begin(pdl)  # only now: the next launch relies on what this one has waited for
    pair = tl.program_id(0)
    run = tl.program_id(1) * columns
    first = tl.load(chosen + pair).to(tl.int64) * 2 * outputs + run
    column = run + tl.arange(0, columns)
    inside = column < outputs
    one = weights(weight, first, inside, at, there, inputs)
    one_scales = scales_of(scales, first, inside, inputs, depth, fmt)
    two = weights(weight, first + outputs, inside, at, there, inputs)
    two_scales = scales_of(scales, first + outputs, inside, inputs, depth, fmt)
    given = row(x + pair // per_token * inputs, None, None, None, at, there, inputs, 0.0, False)
    done = gated(times(one, one_scales, given, fmt), times(two, two_scales, given, fmt), out.dtype.element_ty)
    tl.store(out + pair * outputs + column, done.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _weighed(
    x: tl.tensor,
    chosen: tl.tensor,
    shares: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    added: tl.tensor,
    gates: tl.tensor,
    out: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    fmt: tl.constexpr,
    normalize: tl.constexpr,
    per_token: tl.constexpr,
    pairs: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per token and run of outputs: of all its experts, so that memory is asked for all of that at once.

    `normalize`: the experts' shares are made to sum to one.
    """
    begin(pdl)
    token = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * columns
    turn = tl.arange(0, pairs)
    pair = token * per_token + turn
    real = turn < per_token
    column = start + tl.arange(0, columns)
    inside = column < outputs
    at = tl.arange(0, depth)
    there = at < inputs
    # Which experts that are `_gates` has waited for, before this launch began.
    expert = tl.load(chosen + pair, mask=real, other=0).to(tl.int64)
    output = expert[:, None] * outputs + column[None, :]
    w = tl.load(
        weight + output[:, :, None] * inputs + at[None, None, :],
        mask=(real[:, None] & inside[None, :])[:, :, None] & there[None, None, :],
        other=0.0,
        eviction_policy="evict_first",
    )
    if fmt == "fp8 blocks":
        # A program's rows of an expert lie in one block.
        block = tl.arange(0, depth // 128)
        blocks = tl.cdiv(inputs, 128)
        scale = tl.load(
            scales + ((expert * outputs + start) // 128 * blocks)[:, None] + block[None, :],
            mask=real[:, None] & (block < blocks)[None, :],
            other=0.0,
        )
    wait(pdl)
    given = tl.load(x + pair[:, None] * inputs + at[None, :], mask=real[:, None] & there[None, :], other=0.0)
    given = given.to(tl.float32)
    if fmt == "fp8 blocks":
        given = tl.reshape(tl.reshape(given, [pairs, depth // 128, 128]) * scale[:, :, None], [pairs, depth])
    sums = tl.sum(w.to(tl.float32) * given[:, None, :], axis=2)
    if fmt == "int8" or fmt == "fp8 rows":
        sums = sums * tl.load(scales + output, mask=real[:, None] & inside[None, :], other=0.0)
    # Rounded where the operations one by one round.
    share = tl.load(shares + pair, mask=real, other=0.0)
    total = tl.sum(sums.to(out.dtype.element_ty).to(tl.float32) * share[:, None], axis=0)
    if normalize:
        total = total / tl.sum(share, axis=0)
    if added is not None:
        shared = tl.load(added + token * outputs + column, mask=inside, other=0.0).to(tl.float32)
        total += shared / (1.0 + tl.exp(-tl.load(gates + token)))
    tl.store(out + token * outputs + column, total.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True)
class FewExperts:
    """A mixture as few tokens pass it.

    Attributes:
        router: float32 [experts, hidden].
        arrivals: int32 [1], zero before and after each use.
        normalize: whether a token's shares are made to sum to one.
        usual: whether there are no biases and gates are not clamped; others go another way.
    """

    router: Stored
    gate_up: Stored
    down: Stored
    per_token: int
    arrivals: Tensor
    normalize: bool
    usual: bool = True

    @property
    def experts(self) -> int:
        """How many there are to choose from."""
        return self.gate_up.values.shape[0]

    def fits(self, tokens: int) -> bool:
        """Whether so many tokens go this way."""
        blocks = self.gate_up.fmt == "fp8 blocks"
        whole = not blocks or (self.gate_up.outputs % (2 * BLOCK) == 0 and self.down.outputs % BLOCK == 0)
        kept = triton.next_power_of_2(self.per_token) * triton.next_power_of_2(self.down.inputs)
        return (
            self.usual
            and whole
            and kept <= _KEPT
            and all(few.fits(weight, tokens) for weight in (self.router, self.gate_up, self.down))
        )

    def routed(self, x: Tensor | Unnormed) -> tuple[Tensor, Tensor, Tensor]:
        """Experts int32 [tokens, per_token] and their shares, float32; and the tokens, normed."""
        plain, norm, eps = (x.x, x.weight, x.eps) if isinstance(x, Unnormed) else (x, None, 0.0)
        residual, total = (x.residual, x.total) if isinstance(x, Unnormed) else (None, None)
        tokens, count = plain.shape[0], self.experts
        logits, shares = (
            torch.empty(tokens, width, dtype=torch.float32, device=plain.device) for width in (count, self.per_token)
        )
        chosen = torch.empty_like(shares, dtype=torch.int32)
        normed = plain if norm is None else torch.empty_like(plain)
        columns, depth, _ = tile(self.router, count, tokens, rows=1, kept=_ROUTER)
        _router[(triton.cdiv(count, columns),)](
            plain, residual, norm, total, normed, self.router.values, logits, chosen, shares, self.arrivals,
            self.router.inputs, count, eps, tokens, self.per_token, triton.next_power_of_2(count), columns, depth,
            num_warps=_WARPS, **overlapping(),
        )  # fmt: skip
        return chosen, shares, normed

    def passed(self, x: Tensor, chosen: Tensor, shares: Tensor, added: Tensor | None, gates: Tensor | None) -> Tensor:
        """[tokens, hidden]: what the chosen experts make of each token, by their shares, summed.

        `added` [tokens, hidden] is added as well, by the sigmoid of its `gates`.
        """
        gate_up, down, width = self.gate_up, self.down, self.gate_up.outputs // 2
        between = x.new_empty(chosen.numel(), width)
        columns, depth, warps = tile(gate_up, width * self.per_token, 1, rows=2, kept=_GATES)
        _gates[(chosen.numel(), triton.cdiv(width, columns))](
            x, chosen, gate_up.values, gate_up.scales, between, gate_up.inputs, width, gate_up.fmt, self.per_token,
            columns, depth, num_warps=warps, **overlapping(),
        )  # fmt: skip
        out = x.new_empty(chosen.shape[0], down.outputs)
        pairs = triton.next_power_of_2(self.per_token)
        columns, depth, _ = tile(down, down.outputs, 1, rows=pairs, kept=_DOWNS)
        _weighed[(chosen.shape[0], triton.cdiv(down.outputs, columns))](
            between, chosen, shares, down.values, down.scales, added, gates, out, down.inputs, down.outputs, down.fmt,
            self.normalize, self.per_token, pairs, columns, depth, num_warps=_WARPS, **overlapping(),
        )  # fmt: skip
        return out
