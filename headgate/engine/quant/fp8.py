"""Weights in eight-bit floating point, e4m3: four bits of exponent, three of fraction, up to 448, no infinity.

Checkpoints come with a scale per output (or one for all), or one per block of 128 outputs by 128 inputs. Whoever
computes with them rounds activations alike, as they come: with a scale per token, or one per token and 128 inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """weight = values * scale of the output, or of the block.

    Attributes:
        values: e4m3 [outputs, inputs].
        scales: float32, [outputs], or [ceil(outputs / 128), ceil(inputs / 128)] for blocks.
    """

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor, *, blocks: bool) -> Fp8Weight:
        """`weight` [outputs, inputs] rounded so that the largest of each output, or of each block, becomes 448."""
        values = weight.float()
        if not blocks:
            scales = _scales(values.abs().amax(dim=-1))
            return cls((values / scales.unsqueeze(-1)).to(E4M3), scales)
        outputs, inputs = weight.shape
        tiles = F.pad(values, (0, -inputs % BLOCK, 0, -outputs % BLOCK)).abs()
        tiles = tiles.view(-(-outputs // BLOCK), BLOCK, -1, BLOCK)
        scales = _scales(tiles.amax(dim=(1, 3)))
        return cls((values / _spread(scales, outputs, inputs)).to(E4M3), scales)

    @classmethod
    def stacked(cls, parts: Sequence[Fp8Weight]) -> Fp8Weight | None:
        """Layers of the same inputs as one; None where a part ends inside a block, or not all have blocks."""
        blocks = {part.blocks for part in parts}
        if len(blocks) > 1 or (True in blocks and any(part.values.shape[0] % BLOCK for part in parts[:-1])):
            return None
        # Concatenation knows nothing of eight-bit floats on some devices.
        values = torch.cat([part.values.view(torch.uint8) for part in parts]).view(E4M3)
        return cls(values, torch.cat([part.scales for part in parts]))

    def reordered(self, rows: Tensor) -> Fp8Weight | None:
        """With output i the one that was `rows[i]`; None where one would leave its block."""
        values = self.values.view(torch.uint8)[rows].view(E4M3)
        if not self.blocks:
            return Fp8Weight(values, self.scales[rows])
        stays = torch.equal(rows // BLOCK, torch.arange(len(rows), device=rows.device) // BLOCK)
        return Fp8Weight(values, self.scales) if stays else None

    @property
    def blocks(self) -> bool:
        """Whether scales belong to blocks."""
        return self.scales.dim() == 2

    def to(self, device: torch.device) -> Fp8Weight:
        """The same there."""
        return Fp8Weight(self.values.to(device), self.scales.to(device))

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The weight in floating point."""
        outputs, inputs = self.values.shape
        scales = _spread(self.scales, outputs, inputs) if self.blocks else self.scales.unsqueeze(-1)
        return (self.values.float() * scales).to(dtype)


def round_activations(x: Tensor, *, blocks: bool) -> tuple[Tensor, Tensor]:
    """x ~ values * scale. x [tokens, width]; values e4m3, scales float32 [tokens, 1] or [tokens, ceil(width / 128)].

    The largest of a scale's elements becomes 448; where all are zero the scale is 1. What is not finite stays visible.
    """
    values = x.float()
    if not blocks:
        scales = _scales(values.abs().amax(dim=-1, keepdim=True))
        return (values / scales).to(E4M3), scales
    width = x.shape[1]
    runs = F.pad(values, (0, -width % BLOCK)).unflatten(1, (-1, BLOCK))  # type: ignore[no-untyped-call]
    scales = _scales(runs.abs().amax(dim=-1))
    return (runs / scales.unsqueeze(-1)).flatten(1)[:, :width].to(E4M3), scales


def _scales(most: Tensor) -> Tensor:
    return torch.where(most == 0, torch.ones_like(most), most / LARGEST)


def _spread(scales: Tensor, outputs: int, inputs: int) -> Tensor:
    """Scales of blocks as [outputs, inputs]."""
    return scales.repeat_interleave(BLOCK, 0)[:outputs].repeat_interleave(BLOCK, 1)[:, :inputs]
