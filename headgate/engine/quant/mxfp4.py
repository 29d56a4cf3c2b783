"""MXFP4: floats of four bits, e2m1, each 32 of which have a power of two in common, as gpt-oss keeps its experts.

Source: the Open Compute Project's specification of microscaling formats, version 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headgate.engine.errors import CheckpointError

GROUP = 32
"""Inputs that share a scale."""
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BIAS, _NO_NUMBER = 127, 255


@dataclass(frozen=True, slots=True)
class Mxfp4Experts:
    """The same matrix of all experts of a layer: weight = value of the code * 2^(scale - 127).

    Attributes:
        name: what errors call it.
        blocks: uint8 [experts, outputs, groups, 16], two inputs in a byte, the first in its lower half. The highest bit
            of a code is its sign.
        scales: uint8 [experts, outputs, groups].
    """

    name: str
    blocks: Tensor
    scales: Tensor

    def expand(self, dtype: torch.dtype) -> Tensor:
        """The weights as transformers has them, [experts, inputs, outputs].

        Raises:
            CheckpointError: a scale is no number.
        """
        experts, outputs, groups, _ = self.blocks.shape
        if bool((self.scales == _NO_NUMBER).any()):
            raise CheckpointError(f"{self.name}: a scale is no number; the checkpoint is damaged")
        values = torch.tensor([*_VALUES, *(-value for value in _VALUES)], device=self.blocks.device)
        weights = torch.empty(experts, groups * GROUP, outputs, dtype=dtype, device=self.blocks.device)
        for expert in range(experts):
            codes = torch.stack((self.blocks[expert] & 15, self.blocks[expert] >> 4), dim=-1)
            found = values.index_select(0, codes.flatten().int()).view(outputs, groups, GROUP)
            found *= torch.exp2(self.scales[expert].float() - _BIAS).unsqueeze(-1)
            weights[expert] = found.flatten(1).t()
        return weights
