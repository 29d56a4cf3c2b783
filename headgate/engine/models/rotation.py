"""Rotary angles by position, computed once."""

from __future__ import annotations

import torch
from torch import Tensor

from headgate.engine.models.spec import DecoderSpec


class Rotation:
    """cos and sin of every position up to the longest one seen; the table doubles as sequences grow."""

    def __init__(self, spec: DecoderSpec, device: torch.device) -> None:
        frequencies, self._factor = spec.rope.frequencies(spec.head_dim)
        self._frequencies = torch.tensor(frequencies, dtype=torch.float32, device=device)
        self._table = self._compute(1024)

    def table(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin, fp32 [at least `positions`, head_dim / 2]. The same tensors until the table must grow."""
        have = self._table[0].shape[0]
        if positions > have:
            self._table = self._compute(max(positions, 2 * have))
        return self._table

    def _compute(self, positions: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(positions, dtype=torch.float32, device=self._frequencies.device)
        angles = places.unsqueeze(1) * self._frequencies
        return angles.cos() * self._factor, angles.sin() * self._factor
