"""In which order a projection's outputs are here, where a checkpoint has them in another: int64 indices of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headgate.engine.models.spec import DecoderSpec


def turned(spec: DecoderSpec, turning: int, still: int = 0) -> Tensor | None:
    """Of so many heads that turn, and of `still` behind them, as kernels turn them; None where it is the same."""
    dim = spec.head_dim
    order = spec.rope.order(dim)
    if order is None:
        return None
    every = torch.arange((turning + still) * dim).view(-1, dim)
    every[:turning] = every[:turning, order]
    return every.flatten()


def gated(spec: DecoderSpec) -> Tensor:
    """Queries, keys, values and gates, of outputs that have each head's gates behind its queries."""
    both = torch.arange(2 * spec.heads * spec.head_dim).view(spec.heads, 2, spec.head_dim)
    others = torch.arange(2 * spec.kv_heads * spec.head_dim) + both.numel()
    rows = torch.cat([both[:, 0].flatten(), others])
    order = turned(spec, spec.heads + spec.kv_heads, spec.kv_heads)
    return torch.cat([rows if order is None else rows[order], both[:, 1].flatten()])


def by_part(heads: int, widths: Sequence[int]) -> Tensor:
    """Part by part, of outputs that have the parts of a head behind each other."""
    every = torch.arange(heads * sum(widths)).view(heads, -1)
    return torch.cat([part.flatten() for part in torch.split(every, list(widths), dim=1)])
