"""Mixture-of-experts layers in one native call: routing, the chosen experts, their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.kernels.mixture import ExpertWeights, MixtureWeights, Mxfp4Expert, PackedExperts
from headgate.engine.quant.linear import PackedWeight
from headgate.engine.quant.mxfp4 import Mxfp4Weight

# Inputs of a product in floating point are padded to a multiple of this (experts.h).
_FLOAT_DEPTH = 32


class NativeMixture:
    """What `ReferenceMixture` computes, with packed weights, which a `torch.classes.headgate.Experts` has: `native`.

    int8 needs AVX2 (`torch.ops.headgate.int8_usable()`), int4 too (`int4_vectors()` is not empty);
    floating point runs everywhere. The shared expert becomes further experts of the common width that every token
    passes with the same weight: an MLP is the sum over slices of its width. There is none beside experts with biases.
    """

    def __init__(
        self, weights: MixtureWeights, width: int, gate_up: tuple[Tensor | None, ...], down: tuple[Tensor | None, ...]
    ) -> None:
        """`gate_up` and `down`: packed weights, scales and shifts of all experts, of `width` each."""
        count, hidden = weights.router.shape
        assert gate_up[0] is not None
        total = gate_up[0].shape[0]
        shared = total - count
        gates = [weights.shared_gate] if shared and weights.shared_gate is not None else []
        router = _pack_float(torch.cat([weights.router, *gates]))[None]
        tensors: tuple[Tensor | None, ...] = (router, *gate_up, *down)
        biases = _biases(weights)
        self.native: Any = torch.classes.headgate.Experts(
            *tensors, count, shared, hidden, width, weights.per_token, weights.normalize, *biases, weights.limit or 0.0
        )
        tensors += biases
        self._apply: Callable[[Tensor], Tensor] = self.native.forward
        self._nbytes = sum(tensor.nbytes for tensor in tensors if tensor is not None)
        self._expert_nbytes = (self._nbytes - router.nbytes) // total

    @classmethod
    def of(cls, weights: MixtureWeights) -> NativeMixture:
        """The layer with its experts in the compute dtype."""
        half = torch.ops.headgate.float_panel() // 2
        width, gate_up, down = _gather(weights, half, lambda weight: (_pack_float(weight),))
        return cls(weights, width, (*gate_up, None, None), (*down, None, None))

    @classmethod
    def packed(cls, weights: MixtureWeights, experts: PackedExperts) -> NativeMixture:
        """The layer of experts from `pack_experts`; those of `weights` are not read."""
        return cls(weights, experts.width, _parts(experts.gate_up), _parts(experts.down))

    @classmethod
    def of_mxfp4(cls, weights: MixtureWeights, experts: Iterable[Mxfp4Expert]) -> NativeMixture:
        """The layer of these experts, in their own bits; those of `weights` are not read."""
        half = torch.ops.headgate.float_panel() // 2
        count, gate_up, down, width = weights.router.shape[0], list[Tensor](), list[Tensor](), 0
        for place, expert in enumerate(experts):
            width = expert.down.inputs
            for packed, weight, turns in ((gate_up, expert.gate_up, half), (down, expert.down, None)):
                part = _pack_mxfp4(weight, turns)
                if not packed:
                    packed.append(part.new_empty(count, *part.shape))
                packed[0][place] = part
        return cls(weights, width, (*gate_up, None, None), (*down, None, None))

    def __call__(self, x: Tensor) -> Tensor:
        """See Mixture."""
        return self._apply(x)

    @property
    def nbytes(self) -> int:
        """See Mixture."""
        return self._nbytes

    @property
    def expert_nbytes(self) -> int:
        """See Mixture."""
        return self._expert_nbytes


def pack_experts(weights: MixtureWeights, pack: Callable[[Tensor], PackedWeight]) -> PackedExperts:
    """Experts in 8 or 4 bits, by `pack_int8` or `pack_int4`, each packed as it is read."""
    half = torch.ops.headgate.int8_panel() // 2
    width, gate_up, down = _gather(weights, half, lambda weight: _parts(pack(weight)))
    return PackedExperts(PackedWeight(*gate_up), PackedWeight(*down), width)


def _gather(
    weights: MixtureWeights, half: int, pack: Callable[[Tensor], tuple[Tensor, ...]]
) -> tuple[int, list[Tensor], list[Tensor]]:
    """An expert's width, and what `pack` makes of every expert's two matrices, one after the other in each tensor."""
    experts = iter(weights.experts)
    first = next(experts)
    width = first.down.shape[1]
    slices = _slices(weights.shared, width) if weights.shared is not None else []
    total = weights.router.shape[0] + len(slices)
    gate_up: list[Tensor] = []
    down: list[Tensor] = []
    for place, expert in enumerate(_chain(first, experts, slices)):
        for all_of_them, matrix in ((gate_up, _interleave(expert.gate_up, half)), (down, expert.down)):
            parts = pack(matrix)
            if not all_of_them:
                all_of_them += [part.new_empty(total, *part.shape) for part in parts]
            for whole, part in zip(all_of_them, parts, strict=True):
                whole[place] = part
    return width, gate_up, down


def _parts(weight: PackedWeight) -> tuple[Tensor, Tensor, Tensor]:
    return weight.packed, weight.scales, weight.shift


def _chain(
    first: ExpertWeights, others: Iterator[ExpertWeights], parts: list[ExpertWeights]
) -> Iterator[ExpertWeights]:
    yield first
    yield from others
    yield from parts


def _slices(shared: ExpertWeights, width: int) -> list[ExpertWeights]:
    """The shared expert as experts of `width`; zeros fill the last one up."""
    gate, up = shared.gate_up.chunk(2)
    missing = -gate.shape[0] % width
    gate, up = F.pad(gate, (0, 0, 0, missing)), F.pad(up, (0, 0, 0, missing))
    down = F.pad(shared.down, (0, missing))
    slices = [slice(at, at + width) for at in range(0, gate.shape[0], width)]
    return [ExpertWeights(torch.cat((gate[s], up[s])), down[:, s]) for s in slices]


def _interleave(gate_up: Tensor, half: int) -> Tensor:
    """Rows in turns of `half` gates and the `half` ups that belong to them; zeros fill the last turn up."""
    gate, up = (F.pad(part, (0, 0, 0, -part.shape[0] % half)) for part in gate_up.chunk(2))
    inputs = gate_up.shape[1]
    return torch.stack((gate.view(-1, half, inputs), up.view(-1, half, inputs)), dim=1).view(-1, inputs)


def _biases(weights: MixtureWeights) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """float32, of the router and both products, filled up to whole panels and in their order."""
    panel = torch.ops.headgate.float_panel()

    def filled(bias: Tensor) -> Tensor:
        return F.pad(bias.float(), (0, -bias.shape[-1] % panel)).contiguous()

    gate_up, parts = weights.gate_up_bias, (weights.router_bias, weights.down_bias)
    router, down = (None if bias is None else filled(bias) for bias in parts)
    if gate_up is not None:
        # Panels of all formats have as many outputs.
        gate_up = filled(torch.stack([_interleave(bias[:, None], panel // 2).flatten() for bias in gate_up]))
    return router, gate_up, down


def _pack_mxfp4(weight: Mxfp4Weight, half: int | None) -> Tensor:
    """As mxfp4.h has it; with `half` rows are in turns, see `_interleave`."""
    blocks, scales = weight.blocks.flatten(1), weight.scales
    if half is not None:
        blocks, scales = _interleave(blocks, half), _interleave(scales, half)
    packed: Tensor = torch.ops.headgate.mxfp4_pack(
        blocks.view(-1, *weight.blocks.shape[1:]).contiguous(), scales.contiguous()
    )
    return packed


def _pack_float(weight: Tensor) -> Tensor:
    """[outputs, inputs] to [panels, depth / step, panel, step], with 1 input (float32) or 2 (bfloat16) a step."""
    panel, step = torch.ops.headgate.float_panel(), 4 // weight.element_size()
    outputs, inputs = weight.shape
    padded = F.pad(weight, (0, -inputs % _FLOAT_DEPTH, 0, -outputs % panel))
    return padded.view(-1, panel, padded.shape[1] // step, step).transpose(1, 2).contiguous()
