"""The compiled operators behind the Kernels protocol, and whether they are there."""

from __future__ import annotations

import sysconfig
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headgate.engine.kernels.cpu.delta import CpuDeltaPasses
from headgate.engine.kernels.cpu.experts import NativeMixture, pack_experts
from headgate.engine.kernels.cpu.packed import (
    NativeBf16Linear,
    NativeInt4Linear,
    NativeInt8Linear,
    pack_int4,
    pack_int8,
)
from headgate.engine.kernels.cpu.plan import CpuPlan
from headgate.engine.kernels.cpu.step import CpuStep
from headgate.engine.kernels.interface import (
    AttentionBatch,
    AttentionShape,
    Drawing,
    Fp8Layers,
    HeadNorms,
    KVLayer,
    Mlp,
)
from headgate.engine.kernels.mixture import Mixture, MixtureWeights, Mxfp4Expert, PackedExperts, ReferenceMixture
from headgate.engine.kernels.reference import enter, feed_forward, rotate_and_write
from headgate.engine.kernels.standing import StepBound
from headgate.engine.quant.linear import Linear, PackedWeight, WeightFormat, linear

if TYPE_CHECKING:
    from headgate.engine.models.adapters.linear import Owners, Stack
    from headgate.engine.models.decoder import DecoderWeights
    from headgate.engine.models.spec import DecoderSpec, DeltaSpec


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """Whether the compiled kernels can be used. `why` says what they are, or what is in the way."""

    usable: bool
    why: str


def native_status() -> NativeStatus:
    """Load the compiled kernels, once per process however often it is asked."""
    library = Path(__file__).with_name(f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not library.exists():
        return NativeStatus(False, "not built: there was no compiler, or no torch beside it, when this was installed")
    try:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]  # torch has no annotation for it
        ops = torch.ops.headgate
        built_for: str = ops.torch_version()
        CpuKernels()  # an older build may lack an operator
    except (OSError, RuntimeError, AttributeError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        return NativeStatus(False, f"they do not load: {reason}; install again")
    if torch.__version__.split("+")[0] != built_for:
        return NativeStatus(False, f"built for torch {built_for}, this is {torch.__version__}; install again")
    return NativeStatus(True, f"C++, {ops.vectors()}")


class CpuKernels:
    """Implements the Kernels protocol for float32 and bfloat16 on the CPU, with sums in float32.

    `native_status` says whether it can be used.
    """

    fp8: Fp8Layers | None = None
    fp8_cache = False

    def __init__(self) -> None:
        ops = torch.ops.headgate
        # The overloads themselves: going through the packet costs as much as a small operator.
        self._rms_norm = ops.rms_norm.default
        self._add_rms_norm = ops.add_rms_norm_.default
        self._rope = ops.rope.default
        self._swiglu = ops.swiglu.default
        self._geglu = ops.geglu.default
        self._write_kv = ops.write_kv.default
        self._likeliest = ops.likeliest.default
        self._draw: Drawing = ops.draw.default
        self._forecast = ops.forecast.default
        self._outline = ops.outline.default
        self._paged_attention = ops.paged_attention.default
        self._delta_rule = ops.delta_rule.default
        torch.classes.headgate.Experts  # noqa: B018  the mixtures make some: an older build may lack them
        ops.mxfp4_pack  # noqa: B018  nor have mixtures of an older one biases
        self.int8 = bool(ops.int8_usable())
        self._int4 = bool(ops.int4_vectors())

    def linear(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> Linear:
        """See Kernels."""
        packed = self.pack(weight, fmt, importance)
        if packed is not None:
            return self.packed_linear(packed, weight.shape[0], bias, fmt)
        if fmt == "native" and weight.dtype == torch.bfloat16:
            return NativeBf16Linear(weight, bias)
        return linear(weight, bias, fmt, importance)

    def pack(self, weight: Tensor, fmt: WeightFormat, importance: Tensor | None = None) -> PackedWeight | None:
        """See Kernels."""
        if fmt == "int8" and self.int8:
            return pack_int8(weight)
        return pack_int4(weight, importance) if fmt == "int4" and self._int4 else None

    def packed_linear(self, weight: PackedWeight, outputs: int, bias: Tensor | None, fmt: WeightFormat) -> Linear:
        """See Kernels."""
        return NativeInt4Linear(weight, outputs, bias) if fmt == "int4" else NativeInt8Linear(weight, outputs, bias)

    def adapted(self, base: Linear, stack: Stack, owners: Owners) -> Linear | None:
        """See Kernels. Layers of factors are faster, each for the rows of its adapter."""

    def enter(
        self, tokens: Tensor, positions: Tensor, embedding: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See Kernels."""
        return enter(tokens, positions, embedding, angles)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, into: object = None) -> Tensor:  # noqa: ARG002
        """See Kernels."""
        y: Tensor = self._rms_norm(x, weight, eps)
        return y

    def add_rms_norm(
        self,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        into: object = None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """See Kernels. Both arguments are overwritten."""
        self._add_rms_norm(x, residual, weight, eps)
        return x, residual

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """See Kernels."""
        y: Tensor = self._rope(x, cos, sin)
        return y

    def swiglu(self, gate_up: Tensor, into: object = None) -> Tensor:  # noqa: ARG002
        """See Kernels."""
        y: Tensor = self._swiglu(gate_up)
        return y

    def geglu(self, gate_up: Tensor, into: object = None) -> Tensor:  # noqa: ARG002
        """See Kernels."""
        y: Tensor = self._geglu(gate_up)
        return y

    def feed_forward(self, mlp: Mlp, x: Tensor) -> Tensor:
        """See Kernels."""
        return feed_forward(self, mlp, x)

    def write_kv(self, layer: KVLayer, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """See Kernels. IndexError for a slot that is not there."""
        self._write_kv(layer.keys, layer.values, layer.key_scales, layer.value_scales, keys, values, slots)

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

    def plan(self, batch: AttentionBatch, device: torch.device) -> CpuPlan:  # noqa: ARG002  it is the CPU
        """See Kernels."""
        return CpuPlan.of(batch)

    def paged_attention(
        self, q: Tensor, layer: KVLayer, plan: CpuPlan, window: int | None, sinks: Tensor | None = None
    ) -> Tensor:
        """See Kernels. Keys and values are read where they are."""
        y: Tensor = self._paged_attention(
            q,
            layer.keys,
            layer.values,
            layer.key_scales,
            layer.value_scales,
            plan.geometry,
            plan.tables,
            plan.block_size,
            window,
            sinks,
            plan.limits,
        )
        return y

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
        plan: CpuPlan,
        window: int | None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """See Kernels."""
        q = self.rotate_and_write(q, k, v, norms, cos, sin, layer, slots)
        return self.paged_attention(q, layer, plan, window, sinks)

    def likeliest(self, logits: Tensor) -> Tensor:
        """See Kernels."""
        y: Tensor = self._likeliest(logits)
        return y

    def drawing(self) -> Drawing:
        """See Kernels."""
        return self._draw

    def forecast(self, logits: Tensor, count: int) -> Tensor:
        """See Kernels."""
        y: Tensor = self._forecast(logits, count)
        return y

    def outline(
        self, layer: KVLayer, tables: Sequence[Sequence[int]], counts: Sequence[int], block_size: int
    ) -> Tensor:
        """See Kernels."""
        spans, blocks = array("q"), array("i")
        for table, count in zip(tables, counts, strict=True):
            spans.extend((count, len(blocks)))
            blocks.extend(table)
        sequences, flat = torch.frombuffer(spans, dtype=torch.int64), torch.frombuffer(blocks, dtype=torch.int32)
        y: Tensor = self._outline(layer.values, layer.value_scales, sequences, flat, block_size)
        return y

    def rows(self) -> None:
        """See Kernels. The whole step takes as many steps as it is asked for."""

    def standing_step(self, bound: StepBound, device: torch.device) -> None:
        """See Kernels. Nothing is launched that could be recorded."""

    def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
        """See Kernels."""
        packed = self.pack_experts(weights, fmt)
        if packed is not None:
            return self.packed_mixture(weights, packed, fmt)
        if fmt == "native":
            return NativeMixture.of(weights)
        return ReferenceMixture(weights, lambda weight: self.linear(weight, None, fmt))

    def mxfp4_mixture(self, weights: MixtureWeights, experts: Iterable[Mxfp4Expert]) -> Mixture:
        """See Kernels. They are written out to the compute dtype some outputs at a time, in front of its product."""
        return NativeMixture.of_mxfp4(weights, experts)

    def pack_experts(self, weights: MixtureWeights, fmt: WeightFormat) -> PackedExperts | None:
        """See Kernels."""
        if (fmt == "int8" and self.int8) or (fmt == "int4" and self._int4):
            return pack_experts(weights, pack_int8 if fmt == "int8" else pack_int4)
        return None

    def packed_mixture(self, weights: MixtureWeights, experts: PackedExperts, fmt: WeightFormat) -> Mixture:  # noqa: ARG002
        """See Kernels. `Experts` tells formats apart by what it gets."""
        return NativeMixture.packed(weights, experts)

    def delta_passes(self, spec: DeltaSpec, batch: AttentionBatch) -> CpuDeltaPasses | None:
        """See Kernels."""
        return CpuDeltaPasses(spec, batch, self._delta_rule) if CpuDeltaPasses.takes(spec) else None

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> CpuStep | None:
        """See Kernels. For layers with packed weights."""
        return CpuStep.of(spec, weights)
