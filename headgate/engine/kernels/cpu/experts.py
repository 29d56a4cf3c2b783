"""Mixture-of-experts layers in one compiled operator: routing, the chosen experts, their weighted sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.kernels.cpu.packed import pack_int4, pack_int8
from headgate.engine.kernels.mixture import ExpertWeights, MixtureWeights
from headgate.engine.quant.linear import PackedWeight, WeightFormat

# Inputs of a product in floating point are padded to a multiple of this (experts.h).
_FLOAT_DEPTH = 32


class NativeMixture:
    """What `ReferenceMixture` computes, with the weights packed for `torch.ops.headgate.experts`.

    int8 needs AVX-512 with VNNI (`torch.ops.headgate.int8_usable()`), int4 AVX2 (`int4_vectors()` is not empty);
    floating point runs everywhere. The shared expert becomes further experts of the common width that every token
    passes with the same weight: an MLP is the sum over slices of its width.
    """

    def __init__(self, weights: MixtureWeights, fmt: WeightFormat) -> None:
        """`fmt`: the format that the experts are kept in. Each expert is packed as it is read."""
        ops = torch.ops.headgate
        half = (ops.float_panel() if fmt == "native" else ops.int8_panel()) // 2
        count = weights.router.shape[0]
        experts = iter(weights.experts)
        first = next(experts)
        width = first.down.shape[1]
        parts = _slices(weights.shared, width) if weights.shared is not None else []
        total = count + len(parts)
        gate_up, down = _matrix(total, fmt), _matrix(total, fmt)
        for expert in _chain(first, experts, parts):
            gate_up.add(_interleave(expert.gate_up, half))
            down.add(expert.down)
        gates = [weights.shared_gate] if parts and weights.shared_gate is not None else []
        self._router = _pack_float(torch.cat([weights.router, *gates]))[None]
        tensors = (self._router, *gate_up.tensors, *down.tensors)
        counts = (count, len(parts), width, weights.per_token, weights.normalize)
        self._arguments = (*tensors, *counts)
        self._apply: Callable[..., Tensor] = ops.experts.default
        self._nbytes = sum(tensor.nbytes for tensor in tensors if tensor is not None)
        self._expert_nbytes = (self._nbytes - self._router.nbytes) // total

    def __call__(self, x: Tensor) -> Tensor:
        """See Mixture."""
        return self._apply(x, *self._arguments)

    @property
    def nbytes(self) -> int:
        """See Mixture."""
        return self._nbytes

    @property
    def expert_nbytes(self) -> int:
        """See Mixture."""
        return self._expert_nbytes


class _FloatMatrix:
    """The same matrix of every expert, in the compute dtype, packed one after the other into one tensor."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._added = 0
        self._packed = torch.empty(0)

    def add(self, weight: Tensor) -> None:
        """The next expert's [outputs, inputs]."""
        packed = _pack_float(weight)
        if not self._added:
            self._packed = packed.new_empty(self._count, *packed.shape)
        self._packed[self._added] = packed
        self._added += 1

    @property
    def tensors(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Weights [experts, panels, depth, panel, ...], and neither scales nor shifts."""
        return self._packed, None, None


class _QuantizedMatrix:
    """The same in 8 or 4 bits per weight with a scale per output."""

    def __init__(self, count: int, pack: Callable[[Tensor], PackedWeight]) -> None:
        """`pack` is `pack_int8` or `pack_int4`."""
        self._count = count
        self._added = 0
        self._pack = pack
        self._parts: list[Tensor] = []

    def add(self, weight: Tensor) -> None:
        """The next expert's [outputs, inputs] in floating point."""
        packed = self._pack(weight)
        parts = (packed.packed, packed.scales, packed.shift)
        if not self._added:
            self._parts = [part.new_empty(self._count, *part.shape) for part in parts]
        for all_of_them, part in zip(self._parts, parts, strict=True):
            all_of_them[self._added] = part
        self._added += 1

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights [experts, panels, ...], scales and shifts [experts, panels * panel]."""
        packed, scales, shift = self._parts
        return packed, scales, shift


def _matrix(count: int, fmt: WeightFormat) -> _FloatMatrix | _QuantizedMatrix:
    return (
        _FloatMatrix(count) if fmt == "native" else _QuantizedMatrix(count, pack_int8 if fmt == "int8" else pack_int4)
    )


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


def _pack_float(weight: Tensor) -> Tensor:
    """[outputs, inputs] to [panels, depth / step, panel, step], with 1 input (float32) or 2 (bfloat16) a step."""
    panel, step = torch.ops.headgate.float_panel(), 4 // weight.element_size()
    outputs, inputs = weight.shape
    padded = F.pad(weight, (0, -inputs % _FLOAT_DEPTH, 0, -outputs % panel))
    return padded.view(-1, panel, padded.shape[1] // step, step).transpose(1, 2).contiguous()
