"""MXFP4: floats of four bits, e2m1, each 32 of which have a power of two in common, as gpt-oss keeps its experts.

Source: the Open Compute Project's specification of microscaling formats, version 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32
"""Inputs that share a scale."""
MOST_SCALE = 240
"""2^113, far above what weights have: what is computed with them stays finite. 255 is no number."""
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BIAS, _LEAST = 127, 2


@dataclass(frozen=True, slots=True)
class Mxfp4Weight:
    """A matrix: weight = value of the code * 2^(scale - 127), or 0 where the scale is below 2.

    What such small scales stand for is no normal number; they are those of groups of zeros.

    Attributes:
        blocks: uint8 [outputs, groups, 16], two inputs in a byte, the first in its lower half. The highest bit of a
            code is its sign.
        scales: uint8 [outputs, groups], `MOST_SCALE` at most.
    """

    blocks: Tensor
    scales: Tensor

    @property
    def inputs(self) -> int:
        """Columns of the matrix."""
        return self.scales.shape[1] * GROUP

    def expand(self, dtype: torch.dtype) -> Tensor:
        """[outputs, inputs], exact in bfloat16."""
        values = torch.tensor([*_VALUES, *(-value for value in _VALUES)], device=self.blocks.device)
        codes = torch.stack((self.blocks & 15, self.blocks >> 4), dim=-1)
        found = values.index_select(0, codes.flatten().int()).view(*self.scales.shape, GROUP)
        powers = torch.exp2(self.scales.float() - _BIAS)
        found *= torch.where(self.scales < _LEAST, 0.0, powers).unsqueeze(-1)
        return found.flatten(1).to(dtype)
