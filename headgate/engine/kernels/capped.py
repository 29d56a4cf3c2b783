"""Attention that no kernel has: scores that are capped, and sinks, in plain torch on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels, gather
from headgate.engine.kernels.reference_plan import ReferencePlan

_SCORES = 1 << 24
"""Scores that are in memory at a time."""


class CappedAttention:
    """Causal attention over the paged cache with grouped heads, as `Kernels.paged_attention`, and with two parts more.

    Scores s become cap * tanh(s / cap) (Gemma 2). A head's sink is one more score, of a key that has no value: it takes
    a share of the attention (gpt-oss).
    """

    def __init__(self) -> None:
        self._reference = ReferenceKernels()

    def plan(self, batch: AttentionBatch, device: torch.device) -> ReferencePlan:
        """What `attend` needs of the geometry."""
        return self._reference.plan(batch, device)

    def attend(
        self,
        q: Tensor,
        layer: KVLayer,
        plan: ReferencePlan,
        window: int | None,
        *,
        cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """q [tokens, heads, head_dim], sinks [heads]; same shape out as q. The scale is head_dim ** -0.5."""
        heads, head_dim = q.shape[1:]
        kv_heads = layer.keys.shape[1]
        out = torch.empty_like(q)
        grouped_sinks = None if sinks is None else sinks.float().view(kv_heads, heads // kv_heads)
        for part in plan.decodes:
            rows, longest = part.slots.shape
            keys, values = (
                found.view(rows, longest, kv_heads, head_dim) for found in gather(layer, part.slots.flatten(), q)
            )
            queries = q.index_select(0, part.rows).view(rows, kv_heads, heads // kv_heads, head_dim)
            scores = torch.einsum("rkgd,rlkd->rkgl", queries.float(), keys.float()) * head_dim**-0.5
            weights = _shares(scores, plan.mask(part, window)[:, None, None, :], cap, grouped_sinks)
            out[part.rows] = (
                torch.einsum("rkgl,rlkd->rkgd", weights, values.float()).reshape(rows, heads, head_dim).to(q.dtype)
            )
        for prompt in plan.prompts:
            keys, values = gather(layer, prompt.slots, q)
            mask = plan.mask(prompt, window)
            at_once = max(_SCORES // (heads * keys.shape[0]), 1)
            for start in range(prompt.start, prompt.stop, at_once):
                stop = min(start + at_once, prompt.stop)
                queries = q[start:stop].view(stop - start, kv_heads, heads // kv_heads, head_dim)
                scores = torch.einsum("tkgd,lkd->tkgl", queries.float(), keys.float()) * head_dim**-0.5
                visible = mask[start - prompt.start : stop - prompt.start, None, None, :]
                weights = _shares(scores, visible, cap, grouped_sinks)
                attended = torch.einsum("tkgl,lkd->tkgd", weights, values.float())
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
