"""Experts as gpt-oss has them: in a tensor for each product, gates and ups in turns, with biases, plain or in MXFP4."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError
from headgate.engine.kernels.mixture import ExpertWeights, Mxfp4Expert
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.weights.tensors import BLOCK_SCALES, BLOCKS, Tensors
from headgate.engine.quant.mxfp4 import GROUP, MOST_SCALE, Mxfp4Weight


class InterleavedExperts:
    """The experts of a layer, still memory-mapped: each is read when it is asked for.

    Attributes:
        packed: whether they are in MXFP4.
        gate_up_bias: [experts, 2 * width], the gates first.
        down_bias: [experts, hidden].
    """

    def __init__(self, source: Tensors, at: str, spec: DecoderSpec) -> None:
        """Of the layer `at`.

        Raises:
            CheckpointError: a tensor is missing, damaged or misshapen.
        """
        assert spec.experts is not None
        count, width, hidden = spec.experts.count, spec.experts.width, spec.hidden
        names, self._source = spec.names, source
        gate_up, down = (f"{at}.{names.experts}.{name}" for name in (names.expert_gate, names.expert_down))
        self._names = gate_up, down
        self.packed = gate_up + BLOCKS in source
        bias = source.get(f"{gate_up}_bias", (count, 2 * width))
        self.gate_up_bias = torch.cat((bias[:, ::2], bias[:, 1::2]), dim=1)
        self.down_bias = source.get(f"{down}_bias", (count, hidden))
        self._plain: tuple[Tensor, Tensor] | None = None
        self._blocks: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
        if self.packed:
            self._blocks = self._mxfp4(gate_up, count, 2 * width, hidden), self._mxfp4(down, count, hidden, width)
        else:
            stacks = source.get(gate_up, (count, hidden, 2 * width)), source.get(down, (count, width, hidden))
            self._plain = stacks

    def _mxfp4(self, name: str, count: int, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
        source, groups = self._source, inputs // GROUP
        if inputs % GROUP:
            raise CheckpointError(f"config.json: experts in MXFP4 take multiples of {GROUP} inputs, got {inputs}")
        shape = count, outputs, groups
        numbers = count * outputs * inputs
        blocks = source.get(name + BLOCKS, (*shape, GROUP // 2), dtype=torch.uint8, parameters=numbers, of=name)
        scales = source.get(name + BLOCK_SCALES, shape, dtype=torch.uint8, parameters=0, of=name)
        if int(scales.max()) > MOST_SCALE:
            raise CheckpointError(f"{source.folder}: {name!r}: a scale is no number that weights have; it is damaged")
        return blocks, scales

    def mxfp4(self, device: torch.device) -> Iterator[Mxfp4Expert]:
        """Those of a checkpoint that has them `packed`."""
        assert self._blocks is not None
        (gate_up, gate_up_scales), (down, down_scales) = self._blocks
        for expert in range(len(gate_up)):
            gates = Mxfp4Weight(*(_in_halves(part[expert]).to(device) for part in (gate_up, gate_up_scales)))
            yield Mxfp4Expert(gates, Mxfp4Weight(down[expert].to(device), down_scales[expert].to(device)))
            self._release()

    def plain(self, dtype: torch.dtype, device: torch.device) -> Iterator[ExpertWeights]:
        """All of them in `dtype`."""
        if self._plain is None:
            for packed in self.mxfp4(device):
                yield ExpertWeights(packed.gate_up.expand(dtype), packed.down.expand(dtype))
            return
        gate_up, down = self._plain
        for expert in range(len(gate_up)):
            gates = _in_halves(gate_up[expert].t()).to(device=device, dtype=dtype)
            yield ExpertWeights(gates, down[expert].t().to(device=device, dtype=dtype).contiguous())
            self._release()

    def _release(self) -> None:
        for name in self._names:
            self._source.release(name)


def _in_halves(turns: Tensor) -> Tensor:
    """Rows that are in turns, one after the other."""
    return torch.cat((turns[::2], turns[1::2]))
