"""Weights in ggml's blocks, as GGUF files keep them: llama.cpp's, and so Ollama's and LM Studio's.

A row of a matrix is a run of blocks of 32 or 256 inputs, each with its scales. Source of the layouts: llama.cpp's
`ggml-common.h` and `ggml-quants.c`. Halves of bytes are lower ones first, and of a block all lower halves before the
upper ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError

# Expanded at a time: its temporary copies stay in the processor's caches, and are nothing beside a layer.
_AT_A_TIME = 1 << 18
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""The values of MXFP4's codes, times two."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """A way to keep numbers in blocks.

    Attributes:
        name: llama.cpp's.
        numbers: of a block.
        nbytes: of a block.
        expand: uint8 [blocks, nbytes] to float32 [blocks, numbers].
    """

    name: str
    numbers: int
    nbytes: int
    expand: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class GgmlWeight:
    """A matrix as a GGUF file has it.

    Attributes:
        name: what errors call it.
        kind: of its blocks.
        rows: uint8 [outputs, bytes of a row].
        order: which row of `rows` each output is; without it they are as they are there.
    """

    name: str
    kind: BlockType
    rows: Tensor
    order: Tensor | None = None

    def to(self, device: torch.device) -> GgmlWeight:
        """The same there."""
        return replace(self, rows=self.rows.to(device), order=self.order.to(device) if self.order is not None else None)

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The weight in floating point, [outputs, inputs]: what llama.cpp has in float32, rounded once to `dtype`.

        Raises:
            CheckpointError: a scale is no number.
        """
        outputs, inputs = self.rows.shape[0], self.rows.shape[1] // self.kind.nbytes * self.kind.numbers
        weight = torch.empty((outputs, inputs), dtype=dtype, device=self.rows.device)
        step = max(1, _AT_A_TIME // max(1, inputs))
        for start in range(0, outputs, step):
            span = slice(start, start + step)
            rows = self.rows[span] if self.order is None else self.rows[self.order[span]]
            values = self.kind.expand(rows.reshape(-1, self.kind.nbytes)).view(-1, inputs)
            if not bool(values.isfinite().all()):
                raise CheckpointError(f"{self.name}: a scale is no finite number; the file is damaged")
            weight[span] = values
        return weight


def _half(blocks: Tensor, at: int) -> Tensor:
    """The half-precision number at a byte of each block: float32 [blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _parts(octets: Tensor, bits: int, width: int) -> Tensor:
    """The parts of `bits` bits that bytes are made of, [blocks, n, width]: of `width` bytes all lowest ones first."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=octets.device).view(-1, 1)
    parts = octets.reshape(octets.shape[0], -1, 1, width) >> shifts
    return (parts & ((1 << bits) - 1)).reshape(octets.shape[0], -1, width)


def _codes(octets: Tensor) -> Tensor:
    """Of blocks of 32: their 16 bytes of halves, uint8 [blocks, 32]."""
    return _parts(octets, 4, 16).flatten(1)


def _fifth(octets: Tensor) -> Tensor:
    """Of blocks of 32: their 32 fifth bits, uint8 [blocks, 32], at their place."""
    shifts = torch.arange(8, dtype=torch.uint8, device=octets.device)
    return (((octets.unsqueeze(-1) >> shifts) & 1) << 4).flatten(1)


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_codes(blocks[:, 2:]).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _codes(blocks[:, 4:]).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * ((_codes(blocks[:, 6:]) | _fifth(blocks[:, 2:6])).float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_codes(blocks[:, 8:]) | _fifth(blocks[:, 4:8])).float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[:, 2:].contiguous().view(torch.int8).float()


def _q2_k(blocks: Tensor) -> Tensor:
    scales, codes = blocks[:, :16], _parts(blocks[:, 16:80], 2, 32).view(-1, 16, 16)
    scale, least = _half(blocks, 80) * (scales & 15).float(), _half(blocks, 82) * (scales >> 4).float()
    return (scale.unsqueeze(-1) * codes.float() - least.unsqueeze(-1)).flatten(1)


def _q3_k(blocks: Tensor) -> Tensor:
    low, high = _parts(blocks[:, 96:104], 4, 8).flatten(1), _parts(blocks[:, 104:108], 2, 4).flatten(1)
    scale = _half(blocks, 108) * ((low | (high << 4)).float() - 32)
    third = _parts(blocks[:, :32], 1, 32).view(-1, 16, 16)
    codes = _parts(blocks[:, 32:96], 2, 32).view(-1, 16, 16) | (third << 2)
    return (scale.unsqueeze(-1) * (codes.float() - 4)).flatten(1)


def _eight_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and least values of the eight groups of Q4_K and Q5_K, times those of the block: [blocks, 8, 1]."""
    scales, leasts, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = torch.cat((scales & 63, (rest & 15) | ((scales >> 2) & 48)), dim=1)
    least = torch.cat((leasts & 63, (rest >> 4) | ((leasts >> 2) & 48)), dim=1)
    return (_half(blocks, 0) * scale.float()).unsqueeze(-1), (_half(blocks, 2) * least.float()).unsqueeze(-1)


def _q4_k(blocks: Tensor) -> Tensor:
    scale, least = _eight_scales(blocks)
    return (scale * _parts(blocks[:, 16:], 4, 32).float() - least).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    scale, least = _eight_scales(blocks)
    codes = _parts(blocks[:, 48:], 4, 32) | (_parts(blocks[:, 16:48], 1, 32) << 4)
    return (scale * codes.float() - least).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    low = _parts(blocks[:, :128], 4, 64).reshape(-1, 8, 32)
    codes = (low | (_parts(blocks[:, 128:192], 2, 32) << 4)).view(-1, 16, 16)
    scale = _half(blocks, 208) * blocks[:, 192:208].contiguous().view(torch.int8).float()
    return (scale.unsqueeze(-1) * (codes.float() - 32)).flatten(1)


def _looked_up(codes: Tensor, values: tuple[int, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=codes.device)[codes.int()]


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _looked_up(_codes(blocks[:, 2:]), _IQ4)


def _iq4_xs(blocks: Tensor) -> Tensor:
    shifts = torch.tensor((0, 4), dtype=torch.uint8, device=blocks.device)
    low = (blocks[:, 4:8].unsqueeze(-1) >> shifts).flatten(1) & 15
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=blocks.device)
    high = (blocks[:, 2:4].unsqueeze(-1) >> shifts).flatten(1) & 3
    scale = _half(blocks, 0) * ((low | (high << 4)).float() - 32)
    codes = _parts(blocks[:, 8:], 4, 16).reshape(-1, 8, 32)
    return (scale.unsqueeze(-1) * _looked_up(codes, _IQ4)).flatten(1)


def _mxfp4(blocks: Tensor) -> Tensor:
    return torch.exp2(blocks[:, :1].float() - 128) * _looked_up(_codes(blocks[:, 1:]), _E2M1)


_BLOCKS = (
    (2, BlockType("Q4_0", 32, 18, _q4_0)),
    (3, BlockType("Q4_1", 32, 20, _q4_1)),
    (6, BlockType("Q5_0", 32, 22, _q5_0)),
    (7, BlockType("Q5_1", 32, 24, _q5_1)),
    (8, BlockType("Q8_0", 32, 34, _q8_0)),
    (10, BlockType("Q2_K", 256, 84, _q2_k)),
    (11, BlockType("Q3_K", 256, 110, _q3_k)),
    (12, BlockType("Q4_K", 256, 144, _q4_k)),
    (13, BlockType("Q5_K", 256, 176, _q5_k)),
    (14, BlockType("Q6_K", 256, 210, _q6_k)),
    (20, BlockType("IQ4_NL", 32, 18, _iq4_nl)),
    (23, BlockType("IQ4_XS", 256, 136, _iq4_xs)),
    (39, BlockType("MXFP4", 32, 17, _mxfp4)),
)
BLOCK_TYPES: Mapping[int, BlockType] = dict(_BLOCKS)
"""By ggml's number."""
PLAIN_TYPES: Mapping[int, torch.dtype] = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
"""Of ggml's types those that are no blocks."""
OTHER_TYPES: Mapping[int, str] = {
    **{9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S"},
    **{24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4"},
    41: "Q1_0",
}
"""Names of those that are not read."""
