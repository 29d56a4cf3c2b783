"""Makes the forward and backward pass of a `transformers` model fast to train; the model's weights stay as they are.

On a CPU oneDNN compiles each new shape of a matrix product, so experts, whose token counts differ every time, run on
counts rounded up to a multiple of 64: then few shapes occur. Element-wise work is fused by torch's compiler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
    ALL_EXPERTS_FUNCTIONS.register("headgate_padded_compiled", partial(_padded_experts, swiglu=_compiled_swiglu()))
    model.set_attn_implementation("headgate_causal")
    device = next(model.parameters()).device
    compiled = compiled and _compiler_works(device)
    if getattr(model.config, "num_experts", 0):
        padded = "headgate_padded_compiled" if compiled else "headgate_padded"
        model.set_experts_implementation(padded if device.type == "cpu" else "grouped_mm")
    if compiled:
        model.model.compile(dynamic=True)
    return model


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


Swiglu = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]
"""Of [rows, 2 * width] the result [rows, width]; of its gradient and the input the input's gradient."""
_SWIGLU: Swiglu = (_swiglu, _swiglu_backward)


@cache
def _compiled_swiglu() -> Swiglu:
    # Nothing is compiled before the first call.
    return torch.compile(_swiglu, dynamic=True), torch.compile(_swiglu_backward, dynamic=True)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _padded_experts(
    module: Any, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, swiglu: Swiglu = _SWIGLU
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
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
    rows = hidden.to(dtype).index_select(0, source)
    output: torch.Tensor = _Experts.apply(rows, module.gate_up_proj, module.down_proj, bounds, swiglu)  # type: ignore[no-untyped-call]
    mixed = output.index_select(0, place).view(tokens, active, -1) * weights.unsqueeze(-1)
    total: torch.Tensor = mixed.sum(1).to(hidden.dtype)
    return total


class _Experts(torch.autograd.Function):
    """Each expert's SwiGLU on its slice of the rows: plain products that write into slices of one buffer."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        bounds: list[tuple[int, int]],
        swiglu: Swiglu,
    ) -> torch.Tensor:
        """`rows` [rows, hidden]; `gate_up` [experts, 2 * width, hidden]; `down` [experts, hidden, width]."""
        gate_up, down = gate_up.to(rows.dtype), down.to(rows.dtype)
        projected = rows.new_empty(rows.shape[0], gate_up.shape[1])
        for expert, (begin, end) in enumerate(bounds):
            torch.mm(rows[begin:end], gate_up[expert].T, out=projected[begin:end])
        inner = swiglu[0](projected)
        output = torch.empty_like(rows)
        for expert, (begin, end) in enumerate(bounds):
            torch.mm(inner[begin:end], down[expert].T, out=output[begin:end])
        ctx.save_for_backward(rows, projected, inner, gate_up, down)
        ctx.bounds, ctx.swiglu = bounds, swiglu
        return output

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
        """Gradients of rows, `gate_up` and `down`, the latter two in fp32."""
        rows, projected, inner, gate_up, down = ctx.saved_tensors
        grad = grad.contiguous()
        grad_inner, grad_down = torch.empty_like(inner), torch.zeros_like(down)
        for expert, (begin, end) in enumerate(ctx.bounds):
            torch.mm(grad[begin:end], down[expert], out=grad_inner[begin:end])
            torch.mm(grad[begin:end].T, inner[begin:end], out=grad_down[expert])
        grad_projected = ctx.swiglu[1](grad_inner, projected)
        grad_rows, grad_gate_up = torch.empty_like(rows), torch.zeros_like(gate_up)
        for expert, (begin, end) in enumerate(ctx.bounds):
            torch.mm(grad_projected[begin:end], gate_up[expert], out=grad_rows[begin:end])
            torch.mm(grad_projected[begin:end].T, rows[begin:end], out=grad_gate_up[expert])
        return grad_rows, grad_gate_up.float(), grad_down.float(), None, None
