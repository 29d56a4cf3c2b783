"""Layers of experts from the named tensors of a checkpoint: expanded, in fp8 or MXFP4 as they are, or packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from headgate.engine.kernels.interface import Kernels
from headgate.engine.kernels.mixture import ExpertWeights, Fp8Expert, Mixture, MixtureWeights, PackedExperts
from headgate.engine.models.opening import Opened
from headgate.engine.models.weights.expert_tensors import ExpertTensors, expert_tensors, shared_expert_tensors
from headgate.engine.models.weights.interleaved_experts import InterleavedExperts
from headgate.engine.models.weights.linear_reader import LinearReader
from headgate.engine.models.weights.quantized import stays_fp8
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import WeightFormat


class MixtureReader:
    """Assembles the mixtures of a decoder, whose matrices `linears` reads."""

    def __init__(
        self,
        opened: Opened[Tensors],
        linears: LinearReader,
        kernels: Kernels,
        dtype: torch.dtype,
        device: torch.device,
        fmt: WeightFormat,
    ) -> None:
        """`fmt`: of the experts."""
        self._source = opened.source
        self._spec = opened.spec
        self._linears = linears
        self._kernels = kernels
        self._dtype = dtype
        self._device = device
        self._fmt: WeightFormat = fmt

    def plain(self, at: str) -> Mixture:
        """Of experts that have a tensor for each matrix, or stacks of them, beside one that all share."""
        spec, names, hidden = self._spec.experts, self._spec.names, self._spec.hidden
        assert spec is not None
        experts = expert_tensors(self._source, at, self._spec)
        shared_expert = shared_expert_tensors(self._source, at, self._spec)
        name = f"{at}.experts"
        kept = self._kept_experts(name, spec.width)
        weights = MixtureWeights(
            router=self._linears.tensor(f"{at}.{names.router}.weight", spec.count, hidden),
            experts=(self._read(expert) for expert in experts),
            per_token=spec.per_token,
            normalize=spec.normalize,
            shared_gate=self._linears.tensor(f"{at}.mlp.shared_expert_gate.weight", 1, hidden)
            if shared_expert
            else None,
        )
        fp8 = self._fp8_mixture(weights, experts, shared_expert)
        if fp8 is not None:
            return fp8
        if shared_expert is not None and kept is None:
            weights = replace(weights, shared=self._read(shared_expert))
        return self._mixture(name, weights, kept)

    def interleaved(self, at: str) -> Mixture:
        """Of experts whose gates and ups take turns.

        Those in MXFP4 stay so where the kernels compute with them, whatever format is wanted: all have more bits.
        """
        spec, names, hidden = self._spec.experts, self._spec.names, self._spec.hidden
        assert spec is not None
        stacks = InterleavedExperts(self._source, at, self._spec)
        # What is rounded again is not rounded to bfloat16 before.
        dtype = self._dtype if self._fmt == "native" else torch.float32
        weights = MixtureWeights(
            router=self._linears.tensor(f"{at}.{names.router}.weight", spec.count, hidden),
            experts=stacks.plain(dtype, self._device),
            per_token=spec.per_token,
            normalize=spec.normalize,
            router_bias=self._linears.tensor(f"{at}.{names.router}.bias", spec.count),
            gate_up_bias=self._linears.convert(stacks.gate_up_bias),
            down_bias=self._linears.convert(stacks.down_bias),
            limit=spec.limit,
        )
        if stacks.packed:
            mixture = self._kernels.mxfp4_mixture(weights, stacks.mxfp4(self._device))
            if mixture is not None:
                return mixture
            if self._fmt == "native":
                self._linears.expanded += 3 * spec.count * spec.width * hidden * self._dtype.itemsize
        name = f"{at}.experts"
        return self._mixture(name, weights, self._kept_experts(name, spec.width))

    def _mixture(self, name: str, weights: MixtureWeights, kept: PackedExperts | None) -> Mixture:
        """The layer of `weights`, of which experts that were `kept` are not read."""
        fmt = self._fmt
        packed = kept or self._kernels.pack_experts(weights, fmt)
        if packed is None:
            return self._kernels.mixture(weights, fmt)
        if kept is None:
            self._linears.keep(f"{name}/gate_up", packed.gate_up)
            self._linears.keep(f"{name}/down", packed.down)
        return self._kernels.packed_mixture(weights, packed, fmt)

    def _fp8_mixture(
        self, weights: MixtureWeights, experts: Sequence[ExpertTensors], shared: ExpertTensors | None
    ) -> Mixture | None:
        """The layer whose experts stay in fp8; None where they are not, or cannot stay."""
        fp8 = self._linears.fp8
        every = experts if shared is None else [*experts, shared]
        if fp8 is None or not stays_fp8([matrix for expert in every for matrix in expert.matrices]):
            return None
        read = (self._read_fp8(expert) for expert in experts)
        return fp8.mixture(weights, read, self._read_fp8(shared) if shared is not None else None)

    def _read_fp8(self, expert: ExpertTensors) -> Fp8Expert:
        gate, up, down = (m.to(self._device) for m in expert.matrices if isinstance(m, Fp8Weight))
        gate_up = Fp8Weight.stacked([gate, up])
        assert gate_up is not None
        self._linears.release(expert.names)
        return Fp8Expert(gate_up, down)

    def _read(self, expert: ExpertTensors) -> ExpertWeights:
        gate, up, down = (self._linears.convert(matrix, self._fmt) for matrix in expert.matrices)
        read = ExpertWeights(torch.cat((gate, up)), down.contiguous())
        self._linears.release(expert.names)
        return read

    def _kept_experts(self, name: str, width: int) -> PackedExperts | None:
        gate_up, down = self._linears.kept(f"{name}/gate_up"), self._linears.kept(f"{name}/down")
        return PackedExperts(gate_up, down, width) if gate_up is not None and down is not None else None
