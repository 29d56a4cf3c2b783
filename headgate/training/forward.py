"""Makes the forward and backward pass of a `transformers` model fast to train; the model's weights stay as they are.

On a CPU oneDNN compiles each new shape of a matrix product, so experts, whose token counts differ every time, run on
counts rounded up to a multiple of 64: then few shapes occur. Element-wise work is fused by torch's compiler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any

import torch
from torch.nn import functional as F

log = logging.getLogger(__name__)

ROUND = 64
"""Rows of an expert's products are a multiple of this."""


def prepare(model: Any, *, compiled: bool = False) -> Any:
    """Switches a model to the attention and expert functions below, in place. Returns the model.

    `compiled` also compiles it, which takes from half a minute to some minutes and needs a C++ compiler (CPU); without
    one the model trains uncompiled and the log says so.
    """
    from transformers import AttentionInterface
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    AttentionInterface.register("headgate_causal", _causal_attention)
    ALL_EXPERTS_FUNCTIONS.register("headgate_padded", _padded_experts)
    ALL_EXPERTS_FUNCTIONS.register("headgate_padded_compiled", partial(_padded_experts, fused=_compiled()))
    model.set_attn_implementation("headgate_causal")
    device = next(model.parameters()).device
    compiled = compiled and _compiler_works(device)
    if getattr(model.config, "num_experts", 0):
        padded = "headgate_padded_compiled" if compiled else "headgate_padded"
        model.set_experts_implementation(padded if device.type == "cpu" else "grouped_mm")
    if compiled:
        model.model.compile(dynamic=True)
    return model


@cache
def fastest(device: torch.device) -> torch.dtype:
    """The type of matrix products: bf16, or fp32 on a CPU where those take at most three quarters of the time.

    Without instructions for bf16 torch takes several times as long, which is not tried; with them it is measured once
    in a process, for on a Xeon without AMX it takes twice as long as fp32 all the same. A noisy minute decides nothing
    where the two are about equal: a run that goes on should multiply as it did before.
    """
    if device.type != "cpu":
        return torch.bfloat16
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return torch.float32
    slow = _product_seconds(torch.float32) > 0.75 * _product_seconds(torch.bfloat16)
    return torch.bfloat16 if slow else torch.float32


def _product_seconds(dtype: torch.dtype) -> float:
    """Seconds of a product of a layer's size on the CPU, the least of some."""
    left, right = torch.ones(1024, 256, dtype=dtype), torch.ones(256, 512, dtype=dtype)
    torch.mm(left, right)  # the first compiles
    taken: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        torch.mm(left, right)
        taken.append(time.perf_counter() - started)
    return min(taken)


def products(device: torch.device) -> torch.autocast:
    """Where matrix products run in bf16 if that is the faster type, else in the type of the weights."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=fastest(device) is torch.bfloat16)


def _compiler_works(device: torch.device) -> bool:
    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=device))
    except Exception as error:
        log.warning("torch.compile does not work here, training goes on without: %s", str(error).split("\n")[0])
        return False
    return True


def _causal_attention(
    _module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    scaling: float | None = None,
    **_options: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention over right-padded rows, [rows, heads, length, head_dim] to [rows, length, heads, head_dim].

    In fp32 under autocast too: torch's bf16 backward of this operation on a CPU is several times slower.
    """
    with torch.autocast(query.device.type, enabled=False):
        output = F.scaled_dot_product_attention(
            query.float(), key.float(), value.float(), is_causal=True, scale=scaling, enable_gqa=True
        )
    return output.transpose(1, 2), None


def _swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def _swiglu_backward(grad: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.float().chunk(2, -1)
    grad = grad.float()
    sigmoid = torch.sigmoid(gate)
    return torch.cat((grad * up * sigmoid * (1 + gate * (1 - sigmoid)), grad * gate * sigmoid), -1).to(gate_up.dtype)


def _mixed(given: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What each token's experts gave [tokens, active, hidden], weighted and added up: [tokens, hidden] in fp32."""
    return (given.float() * weights.unsqueeze(-1)).sum(1)


def _mixed_backward(
    grad: torch.Tensor, given: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the gradient [tokens, hidden] those of `given`, in its dtype, and of `weights`."""
    grad = grad.unsqueeze(1)
    return (grad * weights.unsqueeze(-1)).to(given.dtype), (given.float() * grad).sum(-1)


def _collected(given: torch.Tensor) -> torch.Tensor:
    """The sum over what each token was copied to, in fp32."""
    return given.float().sum(1)


@dataclass(frozen=True, slots=True)
class _Fused:
    """The element-wise parts of a mixture layer, compiled or not."""

    swiglu: Callable[..., torch.Tensor] = _swiglu
    swiglu_backward: Callable[..., torch.Tensor] = _swiglu_backward
    mixed: Callable[..., torch.Tensor] = _mixed
    mixed_backward: Callable[..., tuple[torch.Tensor, torch.Tensor]] = _mixed_backward
    collected: Callable[..., torch.Tensor] = _collected


@cache
def _compiled() -> _Fused:
    # Nothing is compiled before the first call.
    plain = _Fused()
    return _Fused(**{part.name: torch.compile(getattr(plain, part.name), dynamic=True) for part in fields(_Fused)})


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _padded_experts(
    module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, fused: _Fused = _Fused()
) -> torch.Tensor:
    """The experts' part of a mixture layer, [tokens, hidden] to [tokens, hidden].

    `chosen` int64 and `weights` are [tokens, active]. Rows are sorted by expert, each expert's rows rounded up with
    copies of the first token, whose results nobody reads.
    """
    tokens, active = chosen.shape
    experts: int = module.gate_up_proj.shape[0]
    flat = chosen.reshape(-1)
    counts = torch.bincount(flat, minlength=experts)
    ends = ((counts + ROUND - 1) // ROUND * ROUND).cumsum(0)
    order = torch.argsort(flat, stable=True)
    owner = flat[order]
    begins = torch.cat((ends.new_zeros(1), ends[:-1]))
    place_sorted = (begins - (counts.cumsum(0) - counts))[owner] + torch.arange(tokens * active)
    source = torch.zeros(int(ends[-1]), dtype=torch.int64)
    source[place_sorted] = order // active
    place = torch.empty_like(place_sorted)
    place[order] = place_sorted
    bounds = list(zip(begins.tolist(), ends.tolist(), strict=True))
    layout = (place.view(tokens, active), source)
    weighted = (weights, module.gate_up_proj, module.down_proj)
    output: torch.Tensor = _Experts.apply(hidden, *weighted, layout, bounds, fused)  # type: ignore[no-untyped-call]
    return output.to(hidden.dtype)


class _Experts(torch.autograd.Function):
    """Each expert's SwiGLU on its slice of the rows: plain products that write into slices of one buffer."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weights: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        layout: tuple[torch.Tensor, torch.Tensor],
        bounds: list[tuple[int, int]],
        fused: _Fused,
    ) -> torch.Tensor:
        """`hidden` [tokens, hidden]; `gate_up` [experts, 2 * width, hidden]; `down` [experts, hidden, width].

        `layout` is the rows of each token [tokens, active], and the token of each row [rows].
        """
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
        gate_up, down = gate_up.to(dtype), down.to(dtype)
        place, source = layout
        rows = hidden.to(dtype).index_select(0, source)
        projected = rows.new_empty(rows.shape[0], gate_up.shape[1])
        for expert, (begin, end) in enumerate(bounds):
            torch.mm(rows[begin:end], gate_up[expert].T, out=projected[begin:end])
        inner = fused.swiglu(projected)
        output = torch.empty_like(rows)
        for expert, (begin, end) in enumerate(bounds):
            torch.mm(inner[begin:end], down[expert].T, out=output[begin:end])
        given = output.index_select(0, place.view(-1)).view(*place.shape, -1)
        ctx.save_for_backward(weights, gate_up, down, place, rows, projected, inner, given)
        ctx.bounds, ctx.fused = bounds, fused
        return fused.mixed(given, weights)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of hidden, weights, `gate_up` and `down`, in fp32."""
        weights, gate_up, down, place, rows, projected, inner, given = ctx.saved_tensors
        fused: _Fused = ctx.fused
        grad_given, grad_weights = fused.mixed_backward(grad, given, weights)
        # Rows that only fill up an expert get the gradient of nothing.
        grad_output = torch.zeros_like(rows).index_copy_(0, place.view(-1), grad_given.flatten(0, 1))
        grad_inner, grad_down = torch.empty_like(inner), torch.empty_like(down)
        for expert, (begin, end) in enumerate(ctx.bounds):
            torch.mm(grad_output[begin:end], down[expert], out=grad_inner[begin:end])
            # Of no rows it is zeros.
            torch.mm(grad_output[begin:end].T, inner[begin:end], out=grad_down[expert])
        grad_projected = fused.swiglu_backward(grad_inner, projected)
        grad_rows, grad_gate_up = torch.empty_like(rows), torch.empty_like(gate_up)
        for expert, (begin, end) in enumerate(ctx.bounds):
            torch.mm(grad_projected[begin:end], gate_up[expert], out=grad_rows[begin:end])
            torch.mm(grad_projected[begin:end].T, rows[begin:end], out=grad_gate_up[expert])
        grad_hidden = fused.collected(grad_rows.index_select(0, place.view(-1)).view_as(given))
        return grad_hidden, grad_weights, grad_gate_up.float(), grad_down.float(), None, None, None
