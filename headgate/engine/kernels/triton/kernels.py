"""The Triton kernels behind the Kernels protocol. Importing this module imports Triton."""

from __future__ import annotations

from torch import Tensor

from headgate.engine.kernels.interface import HeadNorms, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.triton import heads, rows


class TritonKernels(ReferenceKernels):
    """Implements the Kernels protocol on CUDA. What has no kernel here is plain torch."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See Kernels."""
        return rows.rms_norm(x.contiguous(), None, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See Kernels. `residual` is overwritten."""
        residual = residual.contiguous()
        return rows.rms_norm(x.contiguous(), residual, weight, eps), residual

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """See Kernels."""
        return rows.swiglu(gate_up.contiguous())

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
