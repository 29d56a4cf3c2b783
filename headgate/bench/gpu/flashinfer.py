"""`headgate bench gpu`, FlashInfer's attention beside ours in steps with long prompts, where it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headgate.engine.kernels.checks.inputs import Draw, Sizes, paged
from headgate.engine.kernels.checks.line import Line, judged
from headgate.engine.kernels.interface import AttentionBatch, AttentionShape, Kernels, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels

Spans = Sequence[tuple[int, int]]
_BESIDE: Spans = ((300, 2400), (40, 41), (0, 90), (599, 600))
"""A long prompt behind a cached one, a short one, and tokens that are decoded beside them."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Attention of one layer in a step. Slots that no query sees hold NaN."""

    q: Tensor
    layer: KVLayer
    batch: AttentionBatch

    @classmethod
    def of(cls, draw: Draw, sizes: Sizes, spans: Spans) -> _Step:
        batch, slots = paged(spans, draw.order)
        seen = torch.zeros(slots, dtype=torch.bool)
        for table, context in zip(batch.tables, batch.contexts, strict=True):
            places = torch.tensor(table).unsqueeze(1) * batch.block_size + torch.arange(batch.block_size)
            seen[places.flatten()[:context]] = True
        keys, values = (draw(slots, sizes.kv_heads, sizes.head_dim) for _ in range(2))
        for part in (keys, values):
            part[~seen.to(draw.device)] = math.nan
        return cls(draw(sum(batch.counts), sizes.heads, sizes.head_dim), KVLayer(keys, values), batch)

    def exact(self) -> Tensor:
        """In float64."""
        kernels = ReferenceKernels()
        layer = KVLayer(self.layer.keys.double().nan_to_num(), self.layer.values.double().nan_to_num())
        return kernels.paged_attention(self.q.double(), layer, kernels.plan(self.batch, self.q.device), None)

    def by(self, kernels: Kernels) -> Callable[[], Tensor]:
        """The call, its plan made beforehand as for all layers of a step."""
        plan = kernels.plan(self.batch, self.q.device)
        return lambda: kernels.paged_attention(self.q, self.layer, plan, None)


def prompt_attention(
    draw: Draw,
    mixed: Kernels,
    ours: Kernels,
    models: Mapping[str, tuple[int, int, int]],
    steps: Mapping[str, Spans],
    seconds: Callable[[Callable[[], object]], float],
) -> Iterator[Line]:
    """A check of a mixed step for each model, then the time of each step's attention, a layer of it.

    Args:
        draw: of the dtype to be computed in.
        mixed: kernels that may take FlashInfer's attention.
        ours: the same without.
        models: heads, key heads and layers by name; heads are of 128.
        steps: first new token and context of each sequence, by name.
        seconds: how long a call takes.
    """
    for model, (heads, kv_heads, layers) in models.items():
        sizes = Sizes(heads=heads, kv_heads=kv_heads)
        mixed.try_out(AttentionShape(heads, kv_heads, sizes.head_dim, draw.dtype, 16), layers, draw.device)
        step = _Step.of(draw, sizes, _BESIDE)
        yield judged(f"a mixed step, {model}", draw, step.by(mixed)(), step.exact())
        for name, spans in steps.items():
            step = _Step.of(draw, sizes, spans)
            theirs, alone = seconds(step.by(mixed)), seconds(step.by(ours))
            text = f"{theirs * 1e6:,.0f} µs, ours alone {alone * 1e6:,.0f} ({alone / theirs:.2f})"
            yield Line(f"{name}, {model}", text, {"seconds": theirs, "ours_seconds": alone})
