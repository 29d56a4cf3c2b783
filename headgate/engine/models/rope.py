"""Rotary position embedding: which features of a head turn with its position, and how fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

RopeKind = Literal["default", "linear", "llama3", "yarn", "longrope", "none"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding. `kind` names the frequency scaling, or that nothing turns; other fields belong to it.

    Attributes:
        rotated: features of a head that turn, the first ones; None is all.
        interleaved: features 2i and 2i + 1 are a pair; otherwise i and i + half of those that turn.
        short_factors, long_factors: of longrope, what each pair's frequency is divided by.
    """

    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    original_context: int = 0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    rotated: int | None = None
    interleaved: bool = False
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    sections: tuple[int, ...] = ()
    """Of a model that sees, whose pictures have rows and columns: how many pairs turn by the first of a token's
    positions, by its row and by its column. Empty: tokens have one position."""
    in_turns: bool = True
    """Whether pairs of the three kinds take turns, and do not follow each other."""

    def frequencies(self, head_dim: int, context_length: int) -> tuple[list[float], list[float]]:
        """Of the head_dim / 2 pairs, in radians per token; and of each the factor on its cos and sin.

        Pairs beyond those that turn stand still. `context_length` decides which factors longrope takes: it is of all
        that is served, so that keys of one cache never turned by two of them.

        Sources: Su et al. 2021 (default), Chen et al. 2023 (linear), the Llama 3.1 release (llama3), Peng et al. 2023
        (yarn), Ding et al. 2024 (longrope).
        """
        rotated = 0 if self.kind == "none" else self.rotated or head_dim
        still = (head_dim - rotated) // 2
        base = [self.theta ** (-2 * i / rotated) for i in range(rotated // 2)]
        factor = 1.0
        if self.kind == "linear":
            base = [f / self.factor for f in base]
        elif self.kind == "llama3":
            base = [self._llama3(f) for f in base]
        elif self.kind == "yarn":
            base, factor = self._yarn(base, rotated), self._yarn_attention_factor()
        elif self.kind == "longrope":
            factors = self.long_factors if context_length > self.original_context else self.short_factors
            base = [f / by for f, by in zip(base, factors, strict=True)]
            factor = self._longrope_attention_factor()
        return base + [0.0] * still, [factor] * len(base) + [1.0] * still

    def axes(self, head_dim: int) -> list[int]:
        """Of the head_dim / 2 pairs, which of a token's three positions each turns by.

        Sources: Qwen2-VL, 2024; of those in turns Qwen3-VL, 2025.
        """
        if not self.in_turns:
            kinds = [kind for kind, count in enumerate(self.sections) for _ in range(count)]
            return [*kinds, *[0] * (head_dim // 2 - len(kinds))]
        _, rows, columns = self.sections
        counts = (rows, columns)
        return [at if (at := pair % 3) and pair < 3 * counts[at - 1] else 0 for pair in range(head_dim // 2)]

    def order(self, head_dim: int) -> list[int] | None:
        """A head's features in the order in which those of a pair lie half a head apart; None where they do.

        Queries and keys that are reordered alike have the same products.
        """
        rotated = self.rotated or head_dim
        half, still = rotated // 2, (head_dim - rotated) // 2
        firsts: Sequence[int] = range(0, rotated, 2) if self.interleaved else range(half)
        apart = 1 if self.interleaved else half
        order = [
            *firsts,
            *range(rotated, rotated + still),
            *(first + apart for first in firsts),
            *range(rotated + still, head_dim),
        ]
        return order if order != list(range(head_dim)) else None

    def _llama3(self, frequency: float) -> float:
        wavelength = 2 * math.pi / frequency
        low, high = self.low_frequency_factor, self.high_frequency_factor
        if wavelength > self.original_context / low:
            return frequency / self.factor
        if wavelength < self.original_context / high:
            return frequency
        blend = (self.original_context / wavelength - low) / (high - low)
        return (1 - blend) * frequency / self.factor + blend * frequency

    def _yarn(self, base: list[float], rotated: int) -> list[float]:
        def pair_at(rotations: float) -> float:
            return rotated * math.log(self.original_context / (rotations * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = pair_at(self.beta_fast), pair_at(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotated - 1)
        if low == high:
            high += 0.001
        blended = []
        for i, frequency in enumerate(base):
            interpolated = min(max((i - low) / (high - low), 0.0), 1.0)
            blended.append(frequency / self.factor * interpolated + frequency * (1 - interpolated))
        return blended

    def _yarn_attention_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor

        def scale(mscale: float) -> float:
            return 0.1 * mscale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

        if self.mscale and self.mscale_all_dim:
            return scale(self.mscale) / scale(self.mscale_all_dim)
        return scale(1.0)

    def _longrope_attention_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_context)) if self.factor > 1 else 1.0
