"""Plain torch for every operation, on any device: the oracle of the tests and the fallback where nothing faster is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.kernels.device_rows import RowKernels
from headgate.engine.kernels.interface import (
    AttentionBatch,
    AttentionShape,
    Drawing,
    Fp8Layers,
    HeadNorms,
    Kernels,
    KVLayer,
    Mlp,
)
from headgate.engine.kernels.mixture import Mixture, MixtureWeights, Mxfp4Expert, PackedExperts, ReferenceMixture
from headgate.engine.kernels.reference_attention import gather, scored_attention
from headgate.engine.kernels.reference_plan import Decodes, Prompt, ReferencePlan
from headgate.engine.kernels.reference_rows import ReferenceRows
from headgate.engine.kernels.standing import StandingStep, StepBound
from headgate.engine.quant.fp8 import round_activations
from headgate.engine.quant.linear import Linear, PackedWeight, WeightFormat, linear, quantize_rows

if TYPE_CHECKING:
    from headgate.engine.models.adapters.linear import Owners, Stack
    from headgate.engine.models.decoder import DecoderWeights
    from headgate.engine.models.spec import DecoderSpec, DeltaSpec

_RUN = 128
"""Logits of which the maximum is taken together."""
_OUTLINED_AT_ONCE = 4096
"""Tokens; more would take much memory beside the cache's."""


def _outline(layer: KVLayer, blocks: Sequence[int], count: int, block_size: int) -> Tensor:
    device = layer.values.device
    starts = torch.tensor(blocks[: -(-count // block_size)], device=device) * block_size
    slots = (starts[:, None] + torch.arange(block_size, device=device)).flatten()[:count]
    total = torch.zeros(layer.values.shape[1:], device=device)
    for first in range(0, count, _OUTLINED_AT_ONCE):
        part = slots[first : first + _OUTLINED_AT_ONCE]
        values = layer.values[part].float()
        if layer.value_scales is not None:
            values *= layer.value_scales[part][..., None]
        total += values.sum(0)
    return torch.cat([values[-1].flatten(), (total / count).flatten()])


def enter(
    tokens: Tensor, positions: Tensor, embedding: Tensor, angles: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """See Kernels."""
    cos, sin = (by_position.index_select(0, positions) for by_position in angles)
    return F.embedding(tokens, embedding), cos, sin


def rotate_and_write(
    kernels: Kernels,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: HeadNorms | None,
    cos: Tensor,
    sin: Tensor,
    layer: KVLayer,
    slots: Tensor,
) -> Tensor:
    """See Kernels: one operation of `kernels` after the other."""
    if norms is not None:
        q, k = kernels.rms_norm(q, norms.query, norms.eps), kernels.rms_norm(k, norms.key, norms.eps)
    q, k = kernels.rope(q, cos, sin), kernels.rope(k, cos, sin)
    kernels.write_kv(layer, k, v, slots)
    return q


def feed_forward(kernels: Kernels, mlp: Mlp, x: Any) -> Tensor:
    """See Kernels: one operation of `kernels` after the other. So et al. 2021 for relu2."""
    between = mlp.gate_up(x)
    if mlp.activation == "relu2":
        return mlp.down(F.relu(between).square())
    gated = kernels.swiglu if mlp.activation == "silu" else kernels.geglu
    return mlp.down(gated(between, mlp.down))


class ReferenceKernels:
    """Implements the Kernels protocol with stock torch operators."""

    fp8: Fp8Layers | None = None
    fp8_cache = True
    int8 = True

    def linear(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> Linear:
        """See Kernels."""
        return linear(weight, bias, fmt, importance)

    def pack(self, weight: Tensor, fmt: WeightFormat, importance: Tensor | None = None) -> None:
        """See Kernels. Stock operators bring layouts of their own, which cannot be kept."""

    def packed_linear(self, weight: PackedWeight, outputs: int, bias: Tensor | None, fmt: WeightFormat) -> Linear:
        """See Kernels."""
        raise NotImplementedError(f"{fmt}: plain torch packs nothing")

    def adapted(self, base: Linear, stack: Stack, owners: Owners) -> Linear | None:
        """See Kernels. AdaptedLinear is plain torch."""

    def enter(
        self, tokens: Tensor, positions: Tensor, embedding: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See Kernels."""
        return enter(tokens, positions, embedding, angles)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, into: object = None) -> Any:  # noqa: ARG002
        """See Kernels. Zhang and Sennrich 2019."""
        return F.rms_norm(x, (x.shape[-1],), weight, eps)

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, into: object = None
    ) -> tuple[Any, Tensor]:
        """See Kernels."""
        residual = residual + x
        return self.rms_norm(residual, weight, eps, into), residual

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """See Kernels. Su et al. 2021, in the half-split layout of Hugging Face checkpoints."""
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)

    def swiglu(self, gate_up: Tensor, into: object = None) -> Any:  # noqa: ARG002
        """See Kernels. Shazeer 2020."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def geglu(self, gate_up: Tensor, into: object = None) -> Any:  # noqa: ARG002
        """See Kernels. Shazeer 2020; the form by tanh is Hendrycks and Gimpel's of 2016."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * up

    def feed_forward(self, mlp: Mlp, x: Any) -> Tensor:
        """See Kernels."""
        return feed_forward(self, mlp, x)

    def write_kv(self, layer: KVLayer, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """See Kernels."""
        for cache, scales, given in (
            (layer.keys, layer.key_scales, keys),
            (layer.values, layer.value_scales, values),
        ):
            if scales is None:
                cache.index_copy_(0, slots, given)
                continue
            heads = given.flatten(0, 1)
            rounded, scale = (
                quantize_rows(heads) if cache.dtype == torch.int8 else round_activations(heads, blocks=False)
            )
            cache.view(torch.int8).index_copy_(0, slots, rounded.view(torch.int8).view(given.shape))
            scales.index_copy_(0, slots, scale.view(given.shape[:2]))

    def rotate_and_write(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        norms: HeadNorms | None,
        cos: Tensor,
        sin: Tensor,
        layer: KVLayer,
        slots: Tensor,
    ) -> Tensor:
        """See Kernels."""
        return rotate_and_write(self, q, k, v, norms, cos, sin, layer, slots)

    def try_out(self, shape: AttentionShape, layers: int, device: torch.device) -> None:
        """See Kernels. There is one way."""

    def plan(self, batch: AttentionBatch, device: torch.device) -> ReferencePlan:
        """See Kernels. Single-token rows are grouped by context, so that padding at most doubles what is read."""
        offsets = torch.arange(batch.block_size)
        starts = [0]
        for count in batch.counts:
            starts.append(starts[-1] + count)
        singles = sorted((i for i, c in enumerate(batch.counts) if c == 1), key=lambda i: batch.contexts[i])
        groups: list[list[int]] = []
        for i in singles:
            if groups and batch.contexts[i] <= max(2 * batch.contexts[groups[-1][0]], 128):
                groups[-1].append(i)
            else:
                groups.append([i])
        decodes = []
        for group in groups:
            longest = batch.contexts[group[-1]]
            blocks = -(-longest // batch.block_size)
            tables = torch.tensor([[*batch.tables[i][:blocks], *[0] * (blocks - len(batch.tables[i]))] for i in group])
            slots = (tables.unsqueeze(-1) * batch.block_size + offsets).flatten(1)[:, :longest]
            newest = torch.tensor([batch.contexts[i] - 1 for i in group])
            decodes.append(
                Decodes(
                    torch.tensor([starts[i] for i in group]).to(device),
                    slots.to(device),
                    (newest.unsqueeze(1) - torch.arange(longest)).to(device),
                )
            )
        prompts = []
        for i, count in enumerate(batch.counts):
            if count == 1:
                continue
            context = batch.contexts[i]
            table = torch.tensor(batch.tables[i][: -(-context // batch.block_size)])
            slots = (table.unsqueeze(-1) * batch.block_size + offsets).flatten()[:context]
            distance = torch.arange(context - count, context).unsqueeze(1) - torch.arange(context)
            if batch.limits is not None:
                limits = batch.limits[starts[i] : starts[i] + count].unsqueeze(1)
                distance.masked_fill_((distance < 0) & (torch.arange(context) < limits), 0)
            prompts.append(Prompt(starts[i], starts[i] + count, slots.to(device), distance.to(device)))
        return ReferencePlan(decodes, prompts)

    def paged_attention(
        self, q: Tensor, layer: KVLayer, plan: ReferencePlan, window: int | None, sinks: Tensor | None = None
    ) -> Tensor:
        """See Kernels. Keys and values are gathered, then stock attention runs on them."""
        if sinks is not None:
            return scored_attention(q, layer, plan, window, sinks=sinks)
        heads, head_dim = q.shape[1:]
        kv_heads = layer.keys.shape[1]
        out = torch.empty_like(q)
        for part in plan.decodes:
            rows, longest = part.slots.shape
            flat = part.slots.flatten()
            keys, values = (t.view(rows, longest, kv_heads, head_dim).transpose(1, 2) for t in gather(layer, flat, q))
            # The query heads that share a key head take the place of query positions: nothing is repeated.
            queries = q.index_select(0, part.rows).view(rows, kv_heads, heads // kv_heads, head_dim)
            mask = plan.mask(part, window)[:, None, None, :].expand(-1, -1, heads // kv_heads, -1)
            attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
            out[part.rows] = attended.reshape(rows, heads, head_dim)
        for prompt in plan.prompts:
            keys, values = (t.transpose(0, 1) for t in gather(layer, prompt.slots, q))
            queries = q[prompt.start : prompt.stop].transpose(0, 1)
            attended = F.scaled_dot_product_attention(
                queries[None], keys[None], values[None], attn_mask=plan.mask(prompt, window), enable_gqa=True
            )
            out[prompt.start : prompt.stop] = attended[0].transpose(0, 1)
        return out

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        norms: HeadNorms | None,
        cos: Tensor,
        sin: Tensor,
        layer: KVLayer,
        slots: Tensor,
        plan: Any,
        window: int | None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """See Kernels."""
        q = self.rotate_and_write(q, k, v, norms, cos, sin, layer, slots)
        return self.paged_attention(q, layer, plan, window, sinks)

    def likeliest(self, logits: Tensor) -> Tensor:
        """See Kernels.

        `Tensor.max` with a dimension looks at every element in turn: here the maxima of runs come first, by whole
        vectors, and then only the winning run is looked at closely.
        """
        n = logits.shape[-1]
        whole = n // _RUN * _RUN
        runs = [logits[:, :whole].reshape(logits.shape[0], whole // _RUN, _RUN).amax(-1)] if whole else []
        if whole < n:
            runs.append(logits[:, whole:].amax(-1, keepdim=True))
        start = torch.cat(runs, dim=-1).max(-1).indices * _RUN
        # Past the end the last element repeats, which an earlier one of equal value precedes.
        places = (start.unsqueeze(-1) + torch.arange(_RUN, device=logits.device)).clamp_(max=n - 1)
        best = logits.gather(-1, places).max(-1)
        tokens = places.gather(-1, best.indices.unsqueeze(-1)).squeeze(-1)
        # A NaN anywhere in a row is its maximum.
        return torch.where(best.values.isfinite(), tokens, -1)

    def drawing(self) -> Drawing | None:
        """See Kernels."""

    def forecast(self, logits: Tensor, count: int) -> Tensor:
        """See Kernels."""
        logprobs = logits.float().log_softmax(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1, keepdim=True)
        return torch.cat([logprobs.topk(count, -1).values, entropy], dim=-1)

    def outline(
        self, layer: KVLayer, tables: Sequence[Sequence[int]], counts: Sequence[int], block_size: int
    ) -> Tensor:
        """See Kernels."""
        return torch.stack(
            [_outline(layer, blocks, count, block_size) for blocks, count in zip(tables, counts, strict=True)]
        )

    def rows(self) -> RowKernels:
        """See Kernels."""
        return ReferenceRows()

    def delta_passes(self, spec: DeltaSpec, batch: AttentionBatch) -> None:
        """See Kernels."""

    def standing_step(self, bound: StepBound, device: torch.device) -> StandingStep | None:  # noqa: ARG002
        """See Kernels. Plain torch goes by the lengths of a step's sequences."""
        return None

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> None:
        """See Kernels. Plain torch has an operation at a time."""

    def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
        """See Kernels."""
        return ReferenceMixture(weights, lambda weight: self.linear(weight, None, fmt))

    def mxfp4_mixture(self, weights: MixtureWeights, experts: Iterable[Mxfp4Expert]) -> Mixture | None:
        """See Kernels."""

    def pack_experts(self, weights: MixtureWeights, fmt: WeightFormat) -> None:
        """See Kernels."""

    def packed_mixture(self, weights: MixtureWeights, experts: PackedExperts, fmt: WeightFormat) -> Mixture:
        """See Kernels."""
        raise NotImplementedError(f"{fmt}: plain torch packs nothing")
