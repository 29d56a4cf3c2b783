"""Operations on rows: what tokens bring along, RMS norm, with the residual stream's sum before it, and an MLP's gate.

What a layer with fp8 weights takes leaves them rounded as well, so that no launch of its own reads it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from headgate.engine.kernels.triton.launch import begin, overlapping, wait
from headgate.engine.kernels.triton.products import rounded
from headgate.engine.kernels.triton.stored import Fp8Format, StoredFormat
from headgate.engine.quant.fp8 import BLOCK, E4M3

_GATES = 1024
"""Elements of a row that one program gates: 8 per thread of four warps, 16 bytes of bfloat16 per load."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """Activations as layers with fp8 weights take them.

    Attributes:
        exact: [tokens, width] in the compute dtype.
        values: e4m3 [lines, width], lines being tokens filled up to a multiple of four, as cuBLAS wants them.
        scales: float32 [runs, lines]: one run is a whole row, or 128 elements.
    """

    exact: Tensor
    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, x: Tensor, fmt: Fp8Format) -> Rounded:
        """`x` [tokens, width], contiguous, rounded."""
        tokens, width = x.shape
        new = cls.room(x, fmt)
        if tokens:
            block = triton.next_power_of_2(width)
            _round[(tokens,)](
                x,
                new.values,
                new.scales,
                width,
                new.span,
                block,
                _run(fmt, block),
                num_warps=_warps(block),
                **overlapping(),
            )
        return new

    @classmethod
    def room(cls, exact: Tensor, fmt: Fp8Format) -> Rounded:
        """For `exact`, to be rounded by a kernel."""
        tokens, width = exact.shape
        lines = -(-tokens // 4) * 4
        runs = 1 if fmt == "fp8 rows" else triton.cdiv(width, BLOCK)
        values = exact.new_empty(lines, width, dtype=E4M3)
        return cls(exact, values, exact.new_empty(runs, lines, dtype=torch.float32))

    @property
    def span(self) -> int:
        """Scales from one run of a row to its next."""
        return self.scales.shape[1]


def exact(x: Tensor | Rounded) -> Tensor:
    """The activations as they are."""
    return x.exact if isinstance(x, Rounded) else x


def taken(x: Tensor | Rounded, fmt: StoredFormat, rows: int) -> tuple[Tensor, Tensor | None, int]:
    """What products by tiles of `rows` rows, or one row each, read of x: values, scales, and their `span`."""
    if fmt not in ("fp8 rows", "fp8 blocks"):
        return exact(x), None, 0
    if isinstance(x, Tensor):
        if rows == 1 and fmt == "fp8 blocks":
            return x, None, 0
        x = Rounded.of(x, fmt)
    return x.values, x.scales, x.span


def _run(fmt: Fp8Format, block: int) -> int:
    return block if fmt == "fp8 rows" else min(BLOCK, block)


def _warps(block: int) -> int:
    return min(max(block // 256, 1), 16)


@triton.jit
def _enter(
    tokens: tl.tensor,
    positions: tl.tensor,
    embedding: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    x: tl.tensor,
    own_cos: tl.tensor,
    own_sin: tl.tensor,
    hidden: tl.tensor,
    half: tl.tensor,
    block: tl.constexpr,
    angles: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per token and run of its embedding.

    Launches behind it read angles before they wait: it lets none begin.
    """
    wait(pdl)
    line, run = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = run * block + tl.arange(0, block)
    inside = column < hidden
    value = tl.load(embedding + tl.load(tokens + line) * hidden + column, mask=inside)
    tl.store(x + line * hidden + column, value, mask=inside)
    if run == 0:
        at = tl.arange(0, angles)
        there = at < half
        place = tl.load(positions + line) * half + at
        tl.store(own_cos + line * half + at, tl.load(cos + place, mask=there), mask=there)
        tl.store(own_sin + line * half + at, tl.load(sin + place, mask=there), mask=there)


def enter(
    tokens: Tensor, positions: Tensor, embedding: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See Kernels. All contiguous."""
    count, hidden, half = len(tokens), embedding.shape[1], cos.shape[1]
    x, own_cos, own_sin = embedding.new_empty(count, hidden), cos.new_empty(count, half), sin.new_empty(count, half)
    if count:
        _enter[(count, triton.cdiv(hidden, _GATES))](
            tokens, positions, embedding, cos, sin, x, own_cos, own_sin, hidden, half, _GATES,
            triton.next_power_of_2(half), **overlapping(),
        )  # fmt: skip
    return x, own_cos, own_sin


@triton.jit
def _store_rounded(
    value: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    row: tl.tensor,
    begin: tl.tensor,
    width: tl.tensor,
    span: tl.tensor,
    run: tl.constexpr,
) -> None:
    """float32 elements of a row from column `begin` on, those past `width` being zero, to fp8."""
    low, step = rounded(value, run)
    column = begin + tl.arange(0, value.shape[0])
    tl.store(values + row * width + column, low, mask=column < width)
    number = begin // run + tl.arange(0, value.shape[0] // run)
    tl.store(scales + number * span + row, step, mask=number * run < width)


@triton.jit
def _round(
    x: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    width: tl.tensor,
    span: tl.tensor,
    block: tl.constexpr,
    run: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row."""
    begin(pdl)
    wait(pdl)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    value = tl.load(x + row * width + column, mask=column < width, other=0.0).to(tl.float32)
    _store_rounded(value, values, scales, row, 0, width, span, run)


@triton.jit
def _norm(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    width: tl.tensor,
    span: tl.tensor,
    eps: tl.tensor,
    block: tl.constexpr,
    run: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row, which stays in registers: read once, written once. `residual`, if any, becomes the sum."""
    begin(pdl)
    wait(pdl)
    row = tl.program_id(0).to(tl.int64)
    start = row * width
    column = tl.arange(0, block)
    inside = column < width
    value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        kept = residual + start + column
        # The sum is rounded before it is normalised: the next layer adds to what was stored, not to what was meant.
        total = (value + tl.load(kept, mask=inside, other=0.0).to(tl.float32)).to(residual.dtype.element_ty)
        tl.store(kept, total, mask=inside)
        value = total.to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / width + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    normed = (value * factor * scale).to(out.dtype.element_ty)
    tl.store(out + start + column, normed, mask=inside)
    if values is not None:
        _store_rounded(normed.to(tl.float32), values, scales, row, 0, width, span, run)


def rms_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, wanted: Fp8Format | None
) -> Tensor | Rounded:
    """The norm of x's last dimension, or of x + residual, which `residual` holds afterwards. Both contiguous.

    `wanted`: rounded as well, of x [tokens, width].
    """
    width = x.shape[-1]
    lines = x.numel() // width
    out = torch.empty_like(x)
    low = Rounded.room(out, wanted) if wanted is not None else None
    if lines:
        block = triton.next_power_of_2(width)
        run = _run(wanted, block) if wanted is not None else 1
        _norm[(lines,)](
            x, residual, weight, out, low and low.values, low and low.scales, width, low and low.span, eps, block, run,
            num_warps=_warps(block), **overlapping(),
        )  # fmt: skip
    return low or out


@triton.jit
def _gate(
    gate_up: tl.tensor,
    out: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    width: tl.tensor,
    span: tl.tensor,
    block: tl.constexpr,
    run: tl.constexpr,
    gelu: tl.constexpr,
    pdl: tl.constexpr,
) -> None:
    """A program per row and run of `block` columns."""
    begin(pdl)
    wait(pdl)
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * block
    column = start + tl.arange(0, block)
    inside = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * width + column, mask=inside, other=0.0).to(tl.float32)
    # (1 + tanh z) / 2 = 1 / (1 + e^-2z) with z = sqrt(2 / pi) * (gate + 0.044715 * gate^3).
    power = gate * (gate * gate * 0.0713548163 + 1.59576912) if gelu else gate
    product = (gate / (1.0 + tl.exp(-power)) * up).to(out.dtype.element_ty)
    tl.store(out + row * width + column, product, mask=inside)
    if values is not None:
        _store_rounded(product.to(tl.float32), values, scales, row, start, width, span, run)


def swiglu(gate_up: Tensor, wanted: Fp8Format | None = None) -> Tensor | Rounded:
    """silu(first half) * second half: contiguous [tokens, 2 * width] to [tokens, width]; `wanted`: rounded as well."""
    return _gated(gate_up, wanted, gelu=False)


def geglu(gate_up: Tensor, wanted: Fp8Format | None = None) -> Tensor | Rounded:
    """The same with gelu, by tanh."""
    return _gated(gate_up, wanted, gelu=True)


def _gated(gate_up: Tensor, wanted: Fp8Format | None, *, gelu: bool) -> Tensor | Rounded:
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(tokens, width)
    low = Rounded.room(out, wanted) if wanted is not None else None
    if tokens:
        whole = triton.next_power_of_2(width)
        # A scale for a whole row takes a program that sees it.
        block = whole if wanted == "fp8 rows" else min(_GATES, whole)
        run = _run(wanted, block) if wanted is not None else 1
        _gate[(tokens, triton.cdiv(width, block))](
            gate_up, out, low and low.values, low and low.scales, width, low and low.span, block, run, gelu,
            num_warps=max(4, _warps(block)), **overlapping(),
        )  # fmt: skip
    return low or out
