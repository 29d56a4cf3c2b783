"""What distinguishes one decoder architecture from another, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding. `kind` names the frequency scaling; the other fields belong to it."""

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
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

    def frequencies(self, head_dim: int) -> tuple[list[float], float]:
        """Inverse frequencies of the head_dim/2 rotated pairs, in radians per token, and the factor on cos and sin.

        Sources: Su et al. 2021 (default), Chen et al. 2023 (linear), the Llama 3.1 release (llama3), Peng et al. 2023
        (yarn).
        """
        half = head_dim // 2
        base = [self.theta ** (-2 * i / head_dim) for i in range(half)]
        if self.kind == "linear":
            return [f / self.factor for f in base], 1.0
        if self.kind == "llama3":
            return [self._llama3(f) for f in base], 1.0
        if self.kind == "yarn":
            return self._yarn(base, head_dim), self._yarn_attention_factor()
        return base, 1.0

    def _llama3(self, frequency: float) -> float:
        wavelength = 2 * math.pi / frequency
        low, high = self.low_frequency_factor, self.high_frequency_factor
        if wavelength > self.original_context / low:
            return frequency / self.factor
        if wavelength < self.original_context / high:
            return frequency
        blend = (self.original_context / wavelength - low) / (high - low)
        return (1 - blend) * frequency / self.factor + blend * frequency

    def _yarn(self, base: list[float], head_dim: int) -> list[float]:
        def pair_at(rotations: float) -> float:
            return head_dim * math.log(self.original_context / (rotations * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = pair_at(self.beta_fast), pair_at(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
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


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """A mixture of experts in place of one MLP. `normalize`: the chosen experts' weights are made to sum to one."""

    count: int
    per_token: int
    width: int
    normalize: bool
    shared_width: int | None = None
    """Width of the expert every token passes, whose output a sigmoid gates."""


@dataclass(frozen=True, slots=True)
class WeightNames:
    """Where a family's checkpoints keep what differs in name, relative to a layer."""

    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    expert_gate: str = "gate_proj"
    expert_up: str = "up_proj"
    expert_down: str = "down_proj"


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Everything the decoder needs to know of a checkpoint. Widths are in features, lengths in tokens."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    vocab_size: int
    norm_eps: float
    rope: RopeSpec
    context_length: int
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["none", "head", "projection"] = "none"
    """Normalise queries and keys per head, or over the whole projection."""
    clip_qkv: float | None = None
    tied_head: bool = False
    windows: tuple[int | None, ...] = ()
    """Per layer: how many positions back, itself included, a token sees; None is all."""
    experts: ExpertsSpec | None = None
    moe_layers: frozenset[int] = frozenset()
    names: WeightNames = WeightNames()

    @property
    def qkv_width(self) -> int:
        """Rows of the fused projection of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def expert_count(self) -> int:
        """Experts of a layer that has some; 0 without."""
        return self.experts.count if self.experts is not None else 0

    @property
    def experts_per_token(self) -> int:
        """How many of them a token passes; 0 without."""
        return self.experts.per_token if self.experts is not None else 0

    @property
    def kv_shapes(self) -> tuple[tuple[int, int], ...]:
        """Per layer: heads of keys and of values, and the numbers of a head."""
        return ((self.kv_heads, self.head_dim),) * self.layers

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers in one token's keys and values over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim
