"""Linear layers from the named tensors of a checkpoint: several stacked, in a format, packed now or before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from headgate.engine.kernels.interface import Kernels
from headgate.engine.models.adapters.files import AdaptedWeight
from headgate.engine.models.weights.formats import LayerFormats
from headgate.engine.models.weights.quantized import Matrix, read_matrix
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.int4 import importance_behind
from headgate.engine.quant.linear import Linear, PackedWeight, WeightFormat

_ROWS_AT_A_TIME = 1 << 14  # whole panels of outputs, however a kernel packs them


@dataclass(frozen=True, slots=True)
class Stacked:
    """A linear layer and the checkpoint's layers that it is made of, stacked in this order.

    Attributes:
        linear: the layer.
        names: those of the checkpoint's layers.
        widths: outputs of each.
        inputs: of all of them.
        order: where its outputs are not as they were stacked, which of these each is.
    """

    linear: Linear
    names: tuple[str, ...]
    widths: tuple[int, ...]
    inputs: int
    order: Tensor | None


class LinearReader:
    """Reads matrices, and makes layers of them."""

    def __init__(
        self,
        source: Tensors,
        kernels: Kernels,
        dtype: torch.dtype,
        device: torch.device,
        formats: LayerFormats,
        kept: Mapping[str, Tensor],
    ) -> None:
        """For `kernels`; `kept`: what is packed already, by the names of `packed`."""
        self._source = source
        self._kernels = kernels
        self._dtype = dtype
        self._device = device
        self._kept = kept
        # Whoever wants another format gets it, of the weights that fp8 stands for.
        self.fp8 = kernels.fp8 if {formats.others, *formats.attention} == {"native"} else None
        """What keeps weights in fp8 as they are, where some may stay so."""
        self.packed: dict[str, Tensor] = {}
        """Parts of all packed weights by name, if any had to be packed; empty if all were kept."""
        self.stacked: list[Stacked] = []
        """What was read of attention, MLPs and a head of its own."""
        self.expanded = 0
        """Bytes of weights that the checkpoint has quantized, and that stay in the compute dtype here."""

    def linear(
        self,
        names: tuple[str, ...],
        widths: tuple[int, ...],
        inputs: int,
        bias: bool,
        fmt: WeightFormat,
        norm: Tensor | None = None,
        order: Tensor | None = None,
    ) -> Linear:
        """One layer of the checkpoint's layers `names` stacked, in one product instead of several; behind `norm`.

        `order`: of its outputs, where they are not to be as they are stacked.
        """
        # Looked up even where a packed form was kept: what the checkpoint must have is checked the same.
        tensors = [f"{name}.weight" for name in names]
        sources = [
            read_matrix(self._source, name, (width, inputs)) for name, width in zip(tensors, widths, strict=True)
        ]
        biases = [self.tensor(f"{n}.bias", w) for n, w in zip(names, widths, strict=True)] if bias else None
        both = _ordered(_stack(biases), order) if biases else None
        low = [source.to(self._device) for source in sources if isinstance(source, Fp8Weight)] if self.fp8 else []
        stacked = Fp8Weight.stacked(low) if len(low) == len(sources) else None
        if stacked is not None and order is not None:
            stacked = stacked.reordered(order)
        if self.fp8 is not None and stacked is not None:
            self.release(tensors)
            layer = self.fp8.linear(stacked, both)
        else:
            layer = self.pack(
                "+".join(names),
                tensors,
                lambda: _ordered(_stack([self.convert(source, fmt) for source in sources]), order),
                sum(widths),
                both,
                fmt,
                norm,
            )
        self.stacked.append(Stacked(layer, names, widths, inputs, order))
        return layer

    def pack(
        self,
        name: str,
        sources: Sequence[str],
        weight: Callable[[], Tensor],
        outputs: int,
        bias: Tensor | None,
        fmt: WeightFormat,
        norm: Tensor | None,
    ) -> Linear:
        """The layer of `weight`, made of the tensors `sources`, which are not read where its packed form was kept."""
        packed = self.kept(name)
        if packed is None:
            read = weight()
            importance = importance_behind(norm) if norm is not None else None
            packed = self._packed_rows(read, sources, fmt, importance)
            if packed is None:
                layer = self._kernels.linear(read, bias, fmt, importance)
                self.release(sources)
                return layer
            self.keep(name, packed)
        return self._kernels.packed_linear(packed, outputs, bias, fmt)

    def _packed_rows(
        self, weight: Tensor, sources: Sequence[str], fmt: WeightFormat, importance: Tensor | None
    ) -> PackedWeight | None:
        """Some outputs at a time, so that a large head is never in memory as a whole beside its packed form."""
        parts: list[PackedWeight] = []
        for start in range(0, weight.shape[0], _ROWS_AT_A_TIME):
            part = self._kernels.pack(weight[start : start + _ROWS_AT_A_TIME], fmt, importance)
            if part is None:
                return None
            parts.append(part)
            self.release(sources)
        if len(parts) == 1:
            return parts[0]
        return PackedWeight(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(PackedWeight)))

    def release(self, sources: Sequence[str]) -> None:
        """These tensors were read. What no layer copied is mapped again when it is used."""
        for name in sources:
            self._source.release(name)

    def kept(self, name: str) -> PackedWeight | None:
        """A weight as it was packed before, if it was."""
        parts = [self._kept.get(f"{name}/{field.name}") for field in fields(PackedWeight)]
        return PackedWeight(*kept) if len(kept := [p for p in parts if p is not None]) == len(parts) else None

    def keep(self, name: str, weight: PackedWeight) -> None:
        """Put it among the `packed`."""
        for field in fields(PackedWeight):
            self.packed[f"{name}/{field.name}"] = getattr(weight, field.name)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A matrix or vector as it is computed with, whatever it is stored as."""
        if len(shape) == 2:
            return self.convert(read_matrix(self._source, name, (shape[0], shape[1])))
        return self.convert(self._source.get(name, shape))

    def convert(self, matrix: Matrix, fmt: WeightFormat = "native") -> Tensor:
        """One of a layer in format `fmt`, as numbers that this is made of."""
        if isinstance(matrix, Tensor):
            return matrix.to(device=self._device, dtype=self._dtype)
        # What is rounded again is not rounded to bfloat16 before.
        weight = matrix.to(self._device).expand(self._dtype if fmt == "native" else torch.float32)
        plain = isinstance(matrix, AdaptedWeight) and isinstance(matrix.base, Tensor)
        self.expanded += weight.nbytes if fmt == "native" and not plain else 0
        return weight


def _stack(tensors: list[Tensor]) -> Tensor:
    # A single tensor stays memory-mapped where its dtype and device allow.
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]


def _ordered(tensor: Tensor, order: Tensor | None) -> Tensor:
    return tensor if order is None else tensor[order]
