"""Operations on rows: RMS norm, with the sum of the residual stream before it, and the gate of an MLP."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_GATES = 1024
"""Elements of a row that one program gates: 8 per thread of four warps, 16 bytes of bfloat16 per load."""


@triton.jit
def _norm(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    eps: tl.tensor,
    block: tl.constexpr,
) -> None:
    """A program per row, which stays in registers: read once, written once. `residual`, if any, becomes the sum."""
    start = tl.program_id(0).to(tl.int64) * width
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
    tl.store(out + start + column, (value * factor * scale).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """The norm of x's last dimension, or of x + residual, which `residual` holds afterwards. Both contiguous."""
    width = x.shape[-1]
    rows = x.numel() // width
    out = torch.empty_like(x)
    if rows:
        block = triton.next_power_of_2(width)
        _norm[(rows,)](x, residual, weight, out, width, eps, block, num_warps=min(max(block // 256, 1), 16))
    return out


@triton.jit
def _gate(gate_up: tl.tensor, out: tl.tensor, width: tl.tensor, block: tl.constexpr) -> None:
    """A program per row and run of `block` columns."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=inside)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(first half) * second half: contiguous [tokens, 2 * width] to [tokens, width]."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    if rows:
        block = min(_GATES, triton.next_power_of_2(width))
        _gate[(rows, triton.cdiv(width, block))](gate_up, out, width, block)
    return out
