"""The Triton kernels behind the Kernels protocol. Importing this module imports Triton."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch, AttentionShape, Drawing, HeadNorms, KVLayer, Mlp
from headgate.engine.kernels.mixture import Mixture, MixtureWeights, Mxfp4Expert
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_attention import scored_attention
from headgate.engine.kernels.standing import StepBound
from headgate.engine.kernels.triton import attention, heads, rows, sampling
from headgate.engine.kernels.triton.adapted import TunedLinear
from headgate.engine.kernels.triton.decode_attention import decode_attention
from headgate.engine.kernels.triton.decoding import TritonRows
from headgate.engine.kernels.triton.few import Unnormed
from headgate.engine.kernels.triton.flashinfer import PromptAttention
from headgate.engine.kernels.triton.fp8 import TritonFp8
from headgate.engine.kernels.triton.linear import StoredLinear
from headgate.engine.kernels.triton.mixture import TritonMixture
from headgate.engine.kernels.triton.plan import DecodePlan, SeeingPlan, TritonPlan
from headgate.engine.kernels.triton.rows import Rounded
from headgate.engine.kernels.triton.standing import TritonStandingStep
from headgate.engine.kernels.triton.stored import Fp8Format, Stored
from headgate.engine.quant.linear import Linear, WeightFormat

if TYPE_CHECKING:
    from headgate.engine.models.adapters.linear import Owners, Stack


class TritonKernels(ReferenceKernels):
    """Implements the Kernels protocol on CUDA. What has no kernel here is plain torch."""

    def __init__(self, *, fp8: bool, prompts: PromptAttention | None = None) -> None:
        """`fp8`: whether the device multiplies fp8, from compute capability 8.9 on. `prompts`: what may be faster."""
        self._prompts = prompts
        self.fp8 = TritonFp8() if fp8 else None
        self.fp8_cache = fp8

    def linear(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> Linear:
        """See Kernels. Products of unquantised weights and more than a few tokens are cuBLAS's."""
        return StoredLinear(Stored.of(weight.contiguous(), fmt, importance), bias)

    def adapted(self, base: Linear, stack: Stack, owners: Owners) -> Linear | None:
        """See Kernels."""
        if not isinstance(base, StoredLinear):
            return None
        return TunedLinear(base, stack, owners)

    def enter(
        self, tokens: Tensor, positions: Tensor, embedding: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See Kernels."""
        return rows.enter(tokens, positions, embedding, *angles)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, into: object = None) -> Any:
        """See Kernels."""
        if _norms(into, x):
            return Unnormed(x.contiguous(), weight, eps)
        return rows.rms_norm(x.contiguous(), None, weight, eps, _takes(into, x))

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, into: object = None
    ) -> tuple[Any, Tensor]:
        """See Kernels. `residual` may be overwritten; the sum may be there only after `into` has run."""
        residual = residual.contiguous()
        if _norms(into, x):
            total = torch.empty_like(residual)
            return Unnormed(x.contiguous(), weight, eps, residual, total), total
        return rows.rms_norm(x.contiguous(), residual, weight, eps, _takes(into, x)), residual

    def swiglu(self, gate_up: Tensor, into: object = None) -> Any:
        """See Kernels."""
        return rows.swiglu(gate_up.contiguous(), _takes(into, gate_up))

    def geglu(self, gate_up: Tensor, into: object = None) -> Any:
        """See Kernels."""
        return rows.geglu(gate_up.contiguous(), _takes(into, gate_up))

    def feed_forward(self, mlp: Mlp, x: Any) -> Tensor:
        """See Kernels. The gates of a few tokens are part of the first product, or of what adapters add to it."""
        fused = isinstance(mlp.gate_up, StoredLinear) and mlp.activation == "silu" and not isinstance(x, Rounded)
        between = mlp.gate_up.gated(x) if isinstance(mlp.gate_up, StoredLinear) and fused else None
        return super().feed_forward(mlp, x) if between is None else mlp.down(between)

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
        return heads.rotate_and_write(q, k, v, norms, cos, sin, layer, slots)

    def try_out(self, shape: AttentionShape, layers: int, device: torch.device) -> None:
        """See Kernels."""
        if self._prompts is not None and shape.dtype in (torch.bfloat16, torch.float16):
            with torch.inference_mode():
                self._prompts.try_out(shape, layers, device, attention.paged_attention)

    def plan(self, batch: AttentionBatch, device: torch.device) -> Any:
        """See Kernels."""
        causal = TritonPlan.of(batch, device)
        return causal if batch.limits is None else self._seeing(causal, batch, batch.limits, device)

    def _seeing(
        self, causal: TritonPlan, batch: AttentionBatch, limits: Tensor, device: torch.device
    ) -> TritonPlan | SeeingPlan:
        ends = [0, *accumulate(batch.counts)]
        own = torch.cat([torch.arange(c - n + 1, c + 1) for n, c in zip(batch.counts, batch.contexts, strict=True)])
        wide = [i for i, (first, stop) in enumerate(pairwise(ends)) if bool((limits != own)[first:stop].any())]
        if not wide:
            return causal
        rows = torch.tensor([row for i in wide for row in range(ends[i], ends[i + 1])])
        alone = AttentionBatch(
            counts=[batch.counts[i] for i in wide],
            contexts=[batch.contexts[i] for i in wide],
            tables=[batch.tables[i] for i in wide],
            slots=batch.slots,
            block_size=batch.block_size,
            limits=limits[rows],
        )
        return SeeingPlan(causal, rows.to(device), super().plan(alone, device))

    def paged_attention(
        self, q: Tensor, layer: KVLayer, plan: Any, window: int | None, sinks: Tensor | None = None
    ) -> Tensor:
        """See Kernels. Sequences in which rows see later keys, which are seldom, are attended anew in plain torch."""
        if isinstance(plan, SeeingPlan):
            found = self.paged_attention(q, layer, plan.causal, window, sinks)
            seen = scored_attention(q.index_select(0, plan.rows), layer, plan.wide, window, sinks=sinks)
            return found.index_copy_(0, plan.rows, seen)
        return attention.paged_attention(q.contiguous(), layer, plan, window, self._prompts, sinks)

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
        """See Kernels. One launch where each of a few sequences lacks a token; with many, two are as fast."""
        if isinstance(plan, DecodePlan):
            programs = attention.programs_of(q.shape[0], k.shape[1], plan.longest)
            if programs > 1:
                return decode_attention(q, k, v, norms, cos, sin, layer, slots, plan, window, programs, sinks)
        return super().attend(q, k, v, norms, cos, sin, layer, slots, plan, window, sinks=sinks)

    def likeliest(self, logits: Tensor) -> Tensor:
        """See Kernels."""
        return sampling.likeliest(logits)

    def drawing(self) -> Drawing:
        """See Kernels."""
        return sampling.draw

    def rows(self) -> TritonRows:
        """See Kernels."""
        return TritonRows()

    def standing_step(self, bound: StepBound, device: torch.device) -> TritonStandingStep:
        """See Kernels."""
        return TritonStandingStep(bound, device)

    def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
        """See Kernels."""
        shared = weights.shared
        layers = None
        if shared is not None:
            layers = self.linear(shared.gate_up, None, fmt), self.linear(shared.down, None, fmt)
        experts = ((Stored.of(each.gate_up, fmt), Stored.of(each.down, fmt)) for each in weights.experts)
        return TritonMixture(weights, experts, layers)

    def mxfp4_mixture(self, weights: MixtureWeights, experts: Iterable[Mxfp4Expert]) -> Mixture:
        """See Kernels. They become the activations' dtype in registers."""
        return TritonMixture(weights, ((Stored.of_mxfp4(e.gate_up), Stored.of_mxfp4(e.down)) for e in experts), None)


def _takes(into: object, x: Tensor) -> Fp8Format | None:
    return into.takes(x.shape[0]) if isinstance(into, StoredLinear | TritonMixture) else None


def _norms(into: object, x: Tensor) -> bool:
    return isinstance(into, StoredLinear | TritonMixture) and into.norms(x.shape[0])
