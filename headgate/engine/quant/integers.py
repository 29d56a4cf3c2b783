"""Weights that checkpoints keep as integers of four or eight bits: GPTQ's, AWQ's and those of compressed-tensors.

All mean the same:

    weight[o, i] = scale[o, g] * (code[o, i] - zero[o, g]),   g the group of input i.

They differ in where the codes lie. Words are int32 of n codes, 8 of four bits or 4 of eight, the first in the lowest
bits; the last word is filled up.

    gptq     words [inputs / n, outputs], of one output each; zeros: words [groups, outputs / n]
    awq      words [inputs, outputs / 8], of one input each, its outputs in the order 0 2 4 6 1 3 5 7; zeros alike,
             words [groups, outputs / 8]
    packed   words [outputs, inputs / n], of one output each; zeros: words [outputs / n, groups], or int8
             [outputs, groups] less the middle of the codes
    bytes    int8 [outputs, inputs]; zeros: int8 [outputs, groups]

Scales are [groups, outputs] in the first two and [outputs, groups] in the others. Sources: AutoGPTQ and GPTQModel,
AutoAWQ, compressed-tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.errors import CheckpointError

Layout = Literal["gptq", "awq", "packed", "bytes"]

_WORD = 32
# Expanded at a time: its temporary copies stay in the processor's caches, and are nothing beside a layer.
_AT_A_TIME = 1 << 20


def words_of(count: int, bits: int) -> int:
    """Words that hold so many codes."""
    return -(-count * bits // _WORD)


def unpack_along(words: Tensor, bits: int) -> Tensor:
    """Codes of words int32 [rows, n]: uint8 [rows, n * 32 / bits]."""
    # A copy: of a single column `contiguous` leaves the words apart, and those cannot be seen as bytes.
    octets = words.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    if bits == 8:
        return octets
    pairs = octets.to(torch.int16)
    return (pairs | (pairs << 4)).bitwise_and_(0x0F0F).view(torch.uint8)


def unpack_down(words: Tensor, bits: int) -> Tensor:
    """Codes of words int32 [n, columns], those of a word in one column: uint8 [columns, n * 32 / bits]."""
    rows, columns = words.shape
    return unpack_along(words, bits).view(rows, columns, -1).transpose(0, 1).flatten(1)


def unpack_awq(words: Tensor) -> Tensor:
    """Codes of AWQ's words int32 [rows, n]: uint8 [n * 8, rows]. In a word are first the even ones, then the odd."""
    rows, columns = words.shape
    return unpack_along(words, 4).view(rows, columns, 2, 4).permute(1, 3, 2, 0).flatten(0, 2)


@dataclass(frozen=True, slots=True)
class IntegerWeight:
    """A matrix as its checkpoint has it; see above.

    Attributes:
        name: what errors call it.
        shape: outputs and inputs.
        bits: 4 or 8.
        layout: where codes are.
        codes: all of them, int32 words or int8.
        scales: floating point.
        zeros: int32 words or int8; without them zero is the middle of the codes.
        short: the zeros that are stored are less by one, word for word, than those that are meant.
        groups: int32 [inputs], the group of each; without it groups are runs of `run` inputs.
        run: inputs of a group.
    """

    name: str
    shape: tuple[int, int]
    bits: int
    layout: Layout
    codes: Tensor
    scales: Tensor
    zeros: Tensor | None
    short: bool
    groups: Tensor | None
    run: int

    def to(self, device: torch.device) -> IntegerWeight:
        """The same there."""
        zeros, groups = (part.to(device) if part is not None else None for part in (self.zeros, self.groups))
        return replace(self, codes=self.codes.to(device), scales=self.scales.to(device), zeros=zeros, groups=groups)

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The weight in floating point, [outputs, inputs]: the exact product in float32, rounded once to `dtype`.

        Raises:
            CheckpointError: a scale is no number, or a group is none of those there are.
        """
        outputs, inputs = self.shape
        scales, zeros, groups = self._all_scales(), self._all_zeros(), self._gathered()
        weight = torch.empty(self.shape, dtype=dtype, device=self.codes.device)
        # AWQ's words are of eight outputs.
        rows = max(8, _AT_A_TIME // max(1, inputs) // 8 * 8)
        for start in range(0, outputs, rows):
            span = slice(start, min(start + rows, outputs))
            values = self._rows(span).contiguous().float()
            if groups is not None:
                values.sub_(zeros[span].index_select(1, groups)).mul_(scales[span].index_select(1, groups))
            else:
                values = F.pad(values, (0, -inputs % self.run))
                runs = values.view(values.shape[0], -1, self.run)
                runs.sub_(zeros[span].unsqueeze(-1)).mul_(scales[span].unsqueeze(-1))
            weight[span] = values[:, :inputs]
        return weight

    def _rows(self, outputs: slice) -> Tensor:
        """The codes of these outputs, [outputs, inputs]."""
        if self.layout == "gptq":
            codes = unpack_down(self.codes[:, outputs], self.bits)
        elif self.layout == "awq":
            codes = unpack_awq(self.codes[:, outputs.start // 8 : outputs.stop // 8])
        else:
            codes = self.codes[outputs]
            codes = unpack_along(codes, self.bits) if self.layout == "packed" else codes
        return codes[:, : self.shape[1]]

    def _all_scales(self) -> Tensor:
        """float32 [outputs, groups]."""
        scales = self.scales.float()
        if not bool(scales.isfinite().all()):
            raise CheckpointError(f"{self.name}: a scale is no finite number; the checkpoint is damaged")
        return scales.t() if self.layout in ("gptq", "awq") else scales

    def _all_zeros(self) -> Tensor:
        """float32 [outputs, groups], in units of the codes as they are stored."""
        middle = 0 if self.layout == "bytes" else 1 << (self.bits - 1)
        zeros = self.zeros
        if zeros is None:
            outputs, groups = self.shape[0], self.scales.shape[0 if self.layout in ("gptq", "awq") else 1]
            return torch.full((outputs, groups), float(middle), device=self.codes.device)
        if zeros.dtype == torch.int8:
            return zeros.float() + middle
        if self.short:
            # What was subtracted from whole words, borrowing from the next code where one was zero, is added to them.
            zeros = zeros + (0x11111111 if self.bits == 4 else 0x01010101)
        if self.layout == "awq":
            return unpack_awq(zeros).float()
        unpacked = unpack_down(zeros, self.bits) if self.layout == "packed" else unpack_along(zeros, self.bits)
        return unpacked.t()[: self.shape[0]].float()

    def _gathered(self) -> Tensor | None:
        """The group of each input, int32 [inputs]; None where groups are runs."""
        groups = self.groups
        if groups is None:
            return None
        count = self.scales.shape[0 if self.layout in ("gptq", "awq") else 1]
        low, high = int(groups.min()), int(groups.max())
        if low < 0 or high >= count:
            outside = low if low < 0 else high
            raise CheckpointError(
                f"{self.name}: g_idx names the group {outside}; there are those from 0 to {count - 1}"
            )
        runs = torch.arange(self.shape[1], device=groups.device, dtype=groups.dtype) // self.run
        return None if torch.equal(groups, runs) else groups
