"""Attention with all its scores at hand, in plain torch on any device: for what stock attention does not know."""

from __future__ import annotations

import torch
from torch import Tensor

from headgate.engine.kernels.interface import KVLayer
from headgate.engine.kernels.reference_plan import ReferencePlan

_SCORES = 1 << 24
"""Scores that are in memory at a time."""


def gather(layer: KVLayer, slots: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of the slots, [slots, kv_heads, head_dim] in the dtype of `like`."""
    if layer.key_scales is None or layer.value_scales is None:
        return layer.keys.index_select(0, slots), layer.values.index_select(0, slots)
    keys, values = (_expanded(*kept, slots, like.dtype) for kept in (
        (layer.keys, layer.key_scales), (layer.values, layer.value_scales)
    ))  # fmt: skip
    return keys, values


def _expanded(kept: Tensor, scales: Tensor, slots: Tensor, dtype: torch.dtype) -> Tensor:
    # Of eight-bit floats torch moves only the bits everywhere.
    rounded = kept.view(torch.int8).index_select(0, slots).view(kept.dtype)
    return (rounded.float() * scales.index_select(0, slots).unsqueeze(-1)).to(dtype)


def scored_attention(
    q: Tensor,
    layer: KVLayer,
    plan: ReferencePlan,
    window: int | None,
    *,
    cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """As `Kernels.paged_attention`, where scores s may become cap * tanh(s / cap) (Gemma 2)."""
    heads, head_dim = q.shape[1:]
    kv_heads = layer.keys.shape[1]
    # float32, or float64 where queries are.
    exact = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty_like(q)
    grouped_sinks = None if sinks is None else sinks.to(exact).view(kv_heads, heads // kv_heads)
    for part in plan.decodes:
        rows, longest = part.slots.shape
        keys, values = (
            found.view(rows, longest, kv_heads, head_dim) for found in gather(layer, part.slots.flatten(), q)
        )
        queries = q.index_select(0, part.rows).view(rows, kv_heads, heads // kv_heads, head_dim)
        scores = torch.einsum("rkgd,rlkd->rkgl", queries.to(exact), keys.to(exact)) * head_dim**-0.5
        weights = _shares(scores, plan.mask(part, window)[:, None, None, :], cap, grouped_sinks)
        out[part.rows] = (
            torch.einsum("rkgl,rlkd->rkgd", weights, values.to(exact)).reshape(rows, heads, head_dim).to(q.dtype)
        )
    for prompt in plan.prompts:
        keys, values = gather(layer, prompt.slots, q)
        mask = plan.mask(prompt, window)
        at_once = max(_SCORES // (heads * keys.shape[0]), 1)
        for start in range(prompt.start, prompt.stop, at_once):
            stop = min(start + at_once, prompt.stop)
            queries = q[start:stop].view(stop - start, kv_heads, heads // kv_heads, head_dim)
            scores = torch.einsum("tkgd,lkd->tkgl", queries.to(exact), keys.to(exact)) * head_dim**-0.5
            visible = mask[start - prompt.start : stop - prompt.start, None, None, :]
            weights = _shares(scores, visible, cap, grouped_sinks)
            attended = torch.einsum("tkgl,lkd->tkgd", weights, values.to(exact))
            out[start:stop] = attended.reshape(stop - start, heads, head_dim).to(q.dtype)
    return out


def _shares(scores: Tensor, visible: Tensor, cap: float | None, sinks: Tensor | None) -> Tensor:
    """Each key's share of a query's attention. Scores [rows, kv_heads, group, keys], sinks [kv_heads, group]."""
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is None:
        return scores.softmax(-1)
    lost = sinks.unsqueeze(-1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, lost], dim=-1).softmax(-1)[..., :-1]
