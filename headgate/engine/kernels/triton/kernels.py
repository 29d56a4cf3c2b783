"""The Triton kernels behind the Kernels protocol. Importing this module imports Triton."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headgate.engine.kernels.interface import AttentionBatch, Drawing, HeadNorms, KVLayer
from headgate.engine.kernels.mixture import Mixture, MixtureWeights
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.triton import attention, heads, rows, sampling
from headgate.engine.kernels.triton.decoding import TritonRows
from headgate.engine.kernels.triton.fp8 import TritonFp8
from headgate.engine.kernels.triton.linear import StoredLinear
from headgate.engine.kernels.triton.mixture import TritonMixture
from headgate.engine.kernels.triton.plan import TritonPlan
from headgate.engine.kernels.triton.stored import Fp8Format, Stored
from headgate.engine.quant.linear import Linear, WeightFormat


class TritonKernels(ReferenceKernels):
    """Implements the Kernels protocol on CUDA. What has no kernel here is plain torch."""

    def __init__(self, *, fp8: bool) -> None:
        """`fp8`: whether the device multiplies fp8, from compute capability 8.9 on."""
        self.fp8 = TritonFp8() if fp8 else None
        self.fp8_cache = fp8

    def linear(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> Linear:
        """See Kernels. Products of unquantised weights are cuBLAS's."""
        if fmt == "native":
            return super().linear(weight, bias, fmt)
        return StoredLinear(Stored.of(weight, fmt, importance), bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, into: object = None) -> Any:
        """See Kernels."""
        return rows.rms_norm(x.contiguous(), None, weight, eps, _takes(into))

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, into: object = None
    ) -> tuple[Any, Tensor]:
        """See Kernels. `residual` is overwritten."""
        residual = residual.contiguous()
        return rows.rms_norm(x.contiguous(), residual, weight, eps, _takes(into)), residual

    def swiglu(self, gate_up: Tensor, into: object = None) -> Any:
        """See Kernels."""
        return rows.swiglu(gate_up.contiguous(), _takes(into))

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

    def plan(self, batch: AttentionBatch, device: torch.device) -> Any:
        """See Kernels."""
        return TritonPlan.of(batch, device)

    def paged_attention(self, q: Tensor, layer: KVLayer, plan: Any, window: int | None) -> Tensor:
        """See Kernels."""
        return attention.paged_attention(q.contiguous(), layer, plan, window)

    def likeliest(self, logits: Tensor) -> Tensor:
        """See Kernels."""
        return sampling.likeliest(logits)

    def drawing(self) -> Drawing:
        """See Kernels."""
        return sampling.draw

    def rows(self) -> TritonRows:
        """See Kernels."""
        return TritonRows()

    def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
        """See Kernels."""
        shared = weights.shared
        layers = None
        if shared is not None:
            layers = self.linear(shared.gate_up, None, fmt), self.linear(shared.down, None, fmt)
        experts = ((Stored.of(each.gate_up, fmt), Stored.of(each.down, fmt)) for each in weights.experts)
        return TritonMixture(weights, experts, layers)


def _takes(into: object) -> Fp8Format | None:
    return into.takes if isinstance(into, StoredLinear | TritonMixture) else None
