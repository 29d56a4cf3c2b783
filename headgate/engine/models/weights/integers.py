"""Matrices of packed integers: which of a checkpoint's tensors belong to one, and whether they fit together."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.models.weights.quantization import Packing
from headgate.engine.models.weights.tensors import WORDS, Tensors
from headgate.engine.quant.integers import IntegerWeight, Layout, words_of

_BITS = (4, 8)
_WEIGHT = ".weight"


def read_integers(source: Tensors, name: str, shape: tuple[int, int]) -> IntegerWeight | None:
    """The matrix `name` [outputs, inputs], a layer's weight, still memory-mapped; None where it is not of integers.

    Raises:
        CheckpointError: a tensor that belongs to it is missing or misshapen, or not what config.json says there is.
    """
    module, packing = name.removesuffix(_WEIGHT), source.packing
    words = next((f"{module}{end}" for end in WORDS if f"{module}{end}" in source), None)
    if words is None and source.dtype(name) != torch.int8:
        return None
    compressed = words is None or words.endswith(".weight_packed")
    if packing is None or packing.method not in (("compressed-tensors",) if compressed else ("gptq", "awq")):
        method = "no quantization_config" if packing is None else f"the quant_method {packing.method!r}"
        wanted = "'compressed-tensors'" if compressed else "'gptq' or 'awq'"
        raise CheckpointError(
            f"{source.folder}: tensor {words or name!r} takes a quantization_config with quant_method {wanted}; "
            f"config.json has {method}"
        )
    if compressed:
        return _Module(source, name, shape, packing).compressed(packed=words is not None)
    return _Module(source, name, shape, packing).grouped()


class _Module:
    """The tensors of one layer."""

    def __init__(self, source: Tensors, name: str, shape: tuple[int, int], packing: Packing) -> None:
        self._source, self._name, self._packing = source, name, packing
        self._module = name.removesuffix(_WEIGHT)
        self._outputs, self._inputs = shape

    def grouped(self) -> IntegerWeight:
        """Of GPTQ or AWQ."""
        outputs, inputs, awq = self._outputs, self._inputs, self._packing.method == "awq"
        if awq:
            bits, words = 4, (inputs, words_of(outputs, 4))
        else:
            bits = self._bits("qweight", [(words_of(inputs, bits), outputs) for bits in _BITS])
            words = (words_of(inputs, bits), outputs)
        if awq and outputs % 8:
            raise self._wrong(f"has {outputs} outputs; AWQ packs eight at a time")
        codes = self._codes("qweight", words, torch.int32)
        found = self._shape("scales")
        if len(found) != 2 or found[1] != outputs:
            raise self._wrong(f"has scales of {found}; they must be groups × {outputs}")
        count, scales = found[0], self._part("scales", found)
        zeros = self._part("qzeros", (count, words_of(outputs, bits)), torch.int32)
        groups = None if awq else self._groups("g_idx")
        run = self._run(count, groups)
        layout: Layout = "awq" if awq else "gptq"
        return self._weight(bits, layout, codes, scales, zeros, groups, run)

    def compressed(self, *, packed: bool) -> IntegerWeight:
        """Of compressed-tensors: in words, or in bytes."""
        outputs, inputs = self._outputs, self._inputs
        if packed:
            bits = self._bits("weight_packed", [(outputs, words_of(inputs, bits)) for bits in _BITS])
            codes = self._codes("weight_packed", (outputs, words_of(inputs, bits)), torch.int32)
            self._check_shape()
        else:
            bits, codes = 8, self._codes("weight", (outputs, inputs), torch.int8)
        found = self._shape("weight_scale")
        scales = self._part("weight_scale", found)
        if scales.numel() == 1:
            scales = scales.reshape(1, 1).expand(outputs, 1)
        elif found == (outputs,):
            scales = scales.unsqueeze(1)
        elif len(found) != 2 or found[0] != outputs:
            raise self._wrong(f"has a weight_scale of {found}; it must be one, {outputs} or {outputs} × groups")
        count = scales.shape[1]
        groups = self._groups("weight_g_idx")
        run = self._run(count, groups)
        layout: Layout = "packed" if packed else "bytes"
        zeros = self._compressed_zeros(bits, count, one=math.prod(found) == 1)
        return self._weight(bits, layout, codes, scales, zeros, groups, run)

    def _compressed_zeros(self, bits: int, count: int, *, one: bool) -> Tensor | None:
        """`one`: there is one for all outputs, as there is one scale."""
        at = f"{self._module}.weight_zero_point"
        if at not in self._source:
            if self._packing.zeros:
                raise self._wrong(f"lacks the tensor {at!r}, and config.json says that it is not symmetric")
            return None
        if self._source.dtype(at) == torch.int32:
            return self._part("weight_zero_point", (words_of(self._outputs, bits), count), torch.int32)
        found = self._source.shape(at)
        zeros = self._part("weight_zero_point", found, torch.int8)
        if one and zeros.numel() == 1:
            return zeros.reshape(1, 1).expand(self._outputs, 1)
        if found not in ((self._outputs, count), (self._outputs,)) or zeros.numel() != self._outputs * count:
            raise self._wrong(f"has a weight_zero_point of {found}; it must be {self._outputs} × {count}")
        return zeros.reshape(self._outputs, count)

    def _weight(
        self,
        bits: int,
        layout: Layout,
        codes: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        groups: Tensor | None,
        run: int,
    ) -> IntegerWeight:
        shape, short = (self._outputs, self._inputs), self._packing.short
        return IntegerWeight(self._called, shape, bits, layout, codes, scales, zeros, short, groups, run)

    def _bits(self, part: str, shapes: list[tuple[int, int]]) -> int:
        """The bits of a code: those whose words have the shape that is there; `shapes` are those of 4 and 8."""
        found = self._shape(part)
        if found not in shapes:
            four, eight = shapes
            raise self._wrong(f"has a {part} of {found}; codes of 4 bits take {four}, of 8 bits {eight}")
        return _BITS[shapes.index(found)]

    def _run(self, count: int, groups: Tensor | None) -> int:
        """How many inputs a group has where each has those that follow the last one's."""
        inputs = self._inputs
        stated = sorted(self._packing.runs, key=lambda run: inputs % run)
        run = next((run for run in stated if -(-inputs // run) == count), None)
        if run is None and count and inputs % count == 0:
            run = inputs // count
        if run is None and groups is None:
            raise self._wrong(f"has scales of {count} groups, which {inputs} inputs do not make")
        if groups is None and self._packing.ordered and count > 1:
            raise self._wrong("has no g_idx, and config.json says that its groups are ordered by one")
        return run or inputs

    def _groups(self, part: str) -> Tensor | None:
        at = f"{self._module}.{part}"
        return self._part(part, (self._inputs,), torch.int32) if at in self._source else None

    def _check_shape(self) -> None:
        at, shape = f"{self._module}.weight_shape", (self._outputs, self._inputs)
        if at not in self._source:
            return
        kind = torch.int32 if self._source.dtype(at) == torch.int32 else torch.int64
        stated = tuple(self._part("weight_shape", (2,), kind).tolist())
        self._source.release(at)
        if stated != shape:
            raise self._wrong(f"has a weight_shape that says {stated}, config.json means {shape}")

    def _codes(self, part: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        parameters = self._outputs * self._inputs
        return self._source.get(f"{self._module}.{part}", shape, dtype=dtype, parameters=parameters, of=self._name)

    def _part(self, part: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        return self._source.get(f"{self._module}.{part}", shape, dtype=dtype, parameters=0, of=self._name)

    def _shape(self, part: str) -> tuple[int, ...]:
        at = f"{self._module}.{part}"
        if at not in self._source:
            raise self._wrong(f"lacks the tensor {at!r}")
        return self._source.shape(at)

    @property
    def _called(self) -> str:
        return f"{self._source.folder}: the packed weight {self._name!r}"

    def _wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._called} {what}")
