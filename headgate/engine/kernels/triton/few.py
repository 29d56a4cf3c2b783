"""Layers of a token or a few: one launch that also does what comes before and behind the product.

What counts is the weights' way from memory. Each program takes whole rows of them, asks for all of that at once, before
it waits for the launch before it, and keeps it in registers: while that launch ends, memory is busy already.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.stored import Stored

FEW = 4
"""Tokens up to which products go this way. None of them rounds activations, whatever the weights are."""
_LONGEST, _LONGEST_OF_SOME = 16384, 8192
"""Most inputs of one token, and of some: what a program keeps of them must fit in its registers."""
_BYTES = 32 << 10
"""Of weights that a program of four warps keeps, 64 registers of each thread: an SM holds several such programs."""
SMALL = 12 << 20
"""Bytes of a layer up to which programs keep half as much: all of them run together then, and are done sooner."""
_REREAD = 16 << 20
"""Bytes that all programs of a layer may read for a norm, which each of them computes anew: what the second-level cache
gives in the time that a launch of its own would take."""
_PROGRAMS = 128
"""About as many as a large GPU has SMs."""


@dataclass(frozen=True, slots=True)
class Unnormed:
    """The norm of one token, which the layer computes that takes it: of x, or of x + residual.

    Attributes:
        x: [1, width].
        weight: [width], of the norm.
        residual: like x.
        total: where the layer leaves x + residual; as long as it has not, nothing is there.
    """

    x: Tensor
    weight: Tensor
    eps: float
    residual: Tensor | None = None
    total: Tensor | None = None


def fits(weight: Stored, tokens: int) -> bool:
    """Whether so many tokens go this way."""
    longest = _LONGEST if tokens == 1 else _LONGEST_OF_SOME
    return 0 < tokens <= FEW and weight.fmt not in ("int4", "mxfp4") and weight.inputs <= longest


def norms(weight: Stored) -> bool:
    """Whether the layer should compute the norm of the token that it takes."""
    columns, _, _ = tile(weight, weight.outputs, 1, rows=1)
    # A sum's two rows and the norm's weights, mostly of two bytes each.
    return -(-weight.outputs // columns) * 6 * weight.inputs <= _REREAD


@triton.jit
def row(
    x: tl.tensor,
    residual: tl.tensor,
    scale: tl.tensor,
    total: tl.tensor,
    at: tl.tensor,
    there: tl.tensor,
    inputs: tl.tensor,
    eps: tl.tensor,
    keeps: tl.tensor,
) -> tl.tensor:
    """float32 [depth]: a token's activations as they are, or their norm, or that of their sum with `residual`.

    `scale`: the norm's weights, which are here already. Rounded wherever the operations one by one round. The program
    that `keeps` the sum leaves it in `total`.
    """
    value = tl.load(x + at, mask=there, other=0.0)
    if residual is not None:
        value = (value.to(tl.float32) + tl.load(residual + at, mask=there, other=0.0).to(tl.float32)).to(value.dtype)
        if keeps:
            tl.store(total + at, value, mask=there)
    wide = value.to(tl.float32)
    if scale is not None:
        factor = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / inputs + eps)
        wide = (wide * factor * scale.to(tl.float32)).to(value.dtype).to(tl.float32)
    return wide


@triton.jit
def weights(
    weight: tl.tensor, first: tl.tensor, inside: tl.tensor, at: tl.tensor, there: tl.tensor, inputs: tl.tensor
) -> tl.tensor:
    """The weights' rows from `first` int64 on, [columns, depth]. They are read once: others keep their place in L2."""
    place = (first + tl.arange(0, inside.shape[0]))[:, None] * inputs + at[None, :]
    return tl.load(weight + place, mask=inside[:, None] & there[None, :], other=0.0, eviction_policy="evict_first")


@triton.jit
def scales_of(
    scales: tl.tensor,
    first: tl.tensor,
    inside: tl.tensor,
    inputs: tl.tensor,
    depth: tl.constexpr,
    fmt: tl.constexpr,
) -> tl.tensor:
    """float32, those of the weights' rows from `first` on: [columns], of fp8 blocks [depth / 128]; 1 without any."""
    if fmt == "fp8 blocks":
        # All rows of a program lie in one block.
        run = tl.arange(0, depth // 128)
        runs = tl.cdiv(inputs, 128)
        found = tl.load(scales + first // 128 * runs + run, mask=run < runs, other=0.0)
    elif fmt == "native":
        found = 1.0
    else:
        found = tl.load(scales + first + tl.arange(0, inside.shape[0]), mask=inside, other=0.0)
    return found


@triton.jit
def times(weight: tl.tensor, scales: tl.tensor, given: tl.tensor, fmt: tl.constexpr) -> tl.tensor:
    """float32 [columns]: weights and their `scales_of`, which are here already, times activations float32 [depth]."""
    if fmt == "fp8 blocks":
        depth: tl.constexpr = given.shape[0]
        given = tl.reshape(tl.reshape(given, [depth // 128, 128]) * scales[:, None], [depth])
        sums = tl.sum(weight.to(tl.float32) * given[None, :], axis=1)
    else:
        sums = tl.sum(weight.to(tl.float32) * given[None, :], axis=1) * scales
    return sums


@triton.jit
def gated(gate: tl.tensor, up: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """silu(gate) * up, rounded where the operations one by one round."""
    gate = gate.to(dtype).to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up.to(dtype).to(tl.float32)


@triton.jit
def _few(
    x: tl.tensor,
    residual: tl.tensor,
    norm: tl.tensor,
    total: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    eps: tl.tensor,
    fmt: tl.constexpr,
    gate: tl.constexpr,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per run of outputs, of all tokens. `gate`: the weight has as many rows of gates, then of ups."""
    begin(pdl)
    first = tl.program_id(0).to(tl.int64) * columns
    column = first + tl.arange(0, columns)
    inside = column < outputs
    at = tl.arange(0, depth)
    there = at < inputs
    one = weights(weight, first, inside, at, there, inputs)
    one_scales = scales_of(scales, first, inside, inputs, depth, fmt)
    if gate:
        two = weights(weight, first + outputs, inside, at, there, inputs)
        two_scales = scales_of(scales, first + outputs, inside, inputs, depth, fmt)
    scale = norm
    if norm is not None:
        scale = tl.load(norm + at, mask=there, other=0.0)
    wait(pdl)
    keeps = first == 0
    for token in tl.static_range(tokens):
        given = row(x + token * inputs, residual, scale, total, at, there, inputs, eps, keeps)
        sums = times(one, one_scales, given, fmt)
        if bias is not None:
            sums += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        if gate:
            ups = times(two, two_scales, given, fmt)
            if bias is not None:
                ups += tl.load(bias + outputs + column, mask=inside, other=0.0).to(tl.float32)
            sums = gated(sums, ups, out.dtype.element_ty)
        tl.store(out + token * outputs + column, sums.to(out.dtype.element_ty), mask=inside)


def product(x: Tensor | Unnormed, weight: Stored, bias: Tensor | None, *, gate: bool = False) -> Tensor:
    """The layer's [tokens, outputs], or with `gate` silu(first half) * second half, for what `fits`; x contiguous."""
    plain = x.x if isinstance(x, Unnormed) else x
    dtype = weight.values.dtype if weight.fmt == "native" else plain.dtype
    outputs = weight.outputs // 2 if gate else weight.outputs
    out = torch.empty(plain.shape[0], outputs, dtype=dtype, device=plain.device)
    residual, norm, total, eps = (x.residual, x.weight, x.total, x.eps) if isinstance(x, Unnormed) else _AS_IT_IS
    columns, depth, warps = tile(weight, outputs, plain.shape[0], rows=2 if gate else 1)
    _few[(triton.cdiv(outputs, columns),)](
        plain, residual, norm, total, weight.values, weight.scales, bias, out, weight.inputs, outputs, eps, weight.fmt,
        gate, plain.shape[0], columns, depth, num_warps=warps, **overlapping(),
    )  # fmt: skip
    return out


_AS_IT_IS = None, None, None, 0.0


def tile(weight: Stored, outputs: int, tokens: int, rows: int, kept: int | None = None) -> tuple[int, int, int]:
    """Outputs of a program that reads `rows` rows of the weight for each; inputs, filled up; warps.

    `outputs`: of the launch. `kept`: bytes of weights that a program should keep, if that is known.
    """
    depth = max(128, triton.next_power_of_2(weight.inputs))
    line = rows * depth * weight.values.element_size()
    # Of a layer with few outputs, such as a router, each program takes less, so that there are some.
    least, most = max(2, 4 // rows), triton.next_power_of_2(triton.cdiv(outputs, _PROGRAMS))
    if kept is None:
        kept = _BYTES
        if tokens > 1:
            kept //= 2  # registers hold sums as well
        elif outputs * line < SMALL:
            kept, least = kept // 2, 2
    columns = max(least, min(kept // line, most, 16))
    return columns, depth, 4 if columns * line <= kept else 8
