"""Rotary angles by position, computed once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headgate.engine.models.spec import DecoderSpec

Angles = tuple[Tensor, Tensor]


class Rotation:
    """cos and sin of every position up to the longest one seen; the tables double as sequences grow.

    What attention scales products by instead of head_dim ** -0.5 is in them, half of it in the queries' rotation and
    half in the keys'.
    """

    def __init__(self, spec: DecoderSpec, device: torch.device) -> None:
        usual = spec.head_dim**-0.5
        scale = ((spec.attention_scale or usual) / usual) ** 0.5
        self._turns: list[Angles] = []
        for rope in spec.ropes:
            frequencies, factors = rope.frequencies(spec.head_dim, spec.context_length)
            by = [scale * factor for factor in factors]
            self._turns.append(
                (
                    torch.tensor(frequencies, dtype=torch.float32, device=device),
                    torch.tensor(by, dtype=torch.float32, device=device),
                )
            )
        rope = spec.rope
        self._axes = torch.tensor(rope.axes(spec.head_dim), device=device) if rope.sections else None
        self._tables: Sequence[Angles] = self._compute(1024)

    def tables(self, positions: int) -> Sequence[Angles]:
        """Of each of the specification's `ropes` cos and sin, fp32 [at least `positions`, head_dim / 2].

        The same object until the tables must grow.
        """
        have = self._tables[0][0].shape[0]
        if positions > have:
            self._tables = self._compute(max(positions, 2 * have))
        return self._tables

    def turned(self, turns: Tensor, table: Angles) -> Angles:
        """cos and sin, fp32 [tokens, head_dim / 2], of tokens that have three positions each: int64 [3, tokens]."""
        assert self._axes is not None, "tokens of this model have one position each"
        by = turns.index_select(0, self._axes).t()
        return table[0].gather(0, by), table[1].gather(0, by)

    def _compute(self, positions: int) -> Sequence[Angles]:
        places = torch.arange(positions, dtype=torch.float32, device=self._turns[0][0].device).unsqueeze(1)
        angles = [(places * frequencies, factors) for frequencies, factors in self._turns]
        return [(angle.cos() * factors, angle.sin() * factors) for angle, factors in angles]
