"""What distinguishes one decoder architecture from another, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from headgate.engine.kernels.states import StateShape
from headgate.engine.models.activation import Activation
from headgate.engine.models.language_model import furthest
from headgate.engine.models.rope import RopeSpec


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """A mixture of experts in place of one MLP. `normalize`: the chosen experts' weights are made to sum to one."""

    count: int
    per_token: int
    width: int
    normalize: bool
    shared_width: int | None = None
    """Width of the expert every token passes, whose output a sigmoid gates."""
    bias: bool = False
    """The router and both products of an expert have biases."""
    limit: float | None = None
    """Gates and ups are clamped, see MixtureWeights."""


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """Layers of the gated delta rule, see GatedDelta. `convolved`: tokens that its convolution sees."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    convolved: int

    @property
    def channels(self) -> int:
        """Queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_shapes(self) -> tuple[StateShape, StateShape]:
        """Of a layer."""
        return (
            StateShape((self.convolved - 1, self.channels), torch.float32),
            StateShape((self.value_heads, self.key_dim, self.value_dim), torch.float32),
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Where a checkpoint's files have the parts of the decoder: names begin with these."""

    model: str = "model"
    head: str = "lm_head"


@dataclass(frozen=True, slots=True)
class WeightNames:
    """Where a family's checkpoints keep what differs in name, relative to a layer where nothing else is said.

    Projections that are one in the checkpoint are named once. Norms that a family does not have are None.
    """

    places: tuple[Places, ...] = (Places(),)
    """Of these the first that the files have the embedding under."""
    unread: tuple[str, ...] = ()
    """What the names of those tensors begin with that are of other models in the same files."""
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    input_norm: str | None = "input_layernorm"
    attended_norm: str | None = None
    mlp_norm: str | None = "post_attention_layernorm"
    fed_norm: str | None = None
    stacked_experts: bool = False
    """All experts of a layer in two tensors: `expert_gate` has the gates and ups, `expert_down` the rest."""
    turned_experts: bool = False
    """Of experts that are all in two tensors the matrices may lie as [inputs, outputs]: their shapes tell."""
    interleaved_experts: bool = False
    """All experts of a layer in a tensor for each product, gates and ups in turns: see `models.interleaved_experts`."""
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    expert_gate: str = "gate_proj"
    expert_up: str = "up_proj"
    expert_down: str = "down_proj"
    delta: tuple[str, ...] = ("in_proj_qkv", "in_proj_z")
    """Of layers of the delta rule: queries, keys and values, then gates; in one, key head by key head."""
    delta_gates: tuple[str, ...] = ("in_proj_b", "in_proj_a")


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
    second_rope: RopeSpec | None = None
    second_rope_layers: frozenset[int] = frozenset()
    """Layers that turn their heads by `second_rope` instead of `rope`."""
    attention_scale: float | None = None
    """Of the products of queries and keys; None is head_dim ** -0.5."""
    embedding_scale: float = 1.0
    """Of the rows of the embedding where tokens are looked up, not where it is the head."""
    logit_scale: float = 1.0
    activation: Activation = "silu"
    norm_offset: float = 0.0
    """What the checkpoint's norms lack of the weights that they stand for."""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["none", "head", "projection"] = "none"
    """Normalise queries and keys per head, or over the whole projection."""
    clip_qkv: float | None = None
    tied_head: bool = False
    gated: bool = False
    """What is attended passes gates of its own width, which come with the queries, head by head."""
    delta: DeltaSpec | None = None
    delta_layers: frozenset[int] = frozenset()
    """Layers that do not attend, but are as `delta` says."""
    sinks: bool = False
    """Each head has one, see Kernels.paged_attention."""
    windows: tuple[int | None, ...] = ()
    """Per layer: how many positions back, itself included, a token sees; None is all."""
    experts: ExpertsSpec | None = None
    moe_layers: frozenset[int] = frozenset()
    names: WeightNames = WeightNames()

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        """`rope`, and `second_rope` where there is one."""
        return (self.rope,) if self.second_rope is None else (self.rope, self.second_rope)

    @property
    def qkv_width(self) -> int:
        """Rows of the fused projection of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def delta_width(self) -> int:
        """What layers of the delta rule give, all heads together."""
        return 0 if self.delta is None else self.delta.value_heads * self.delta.value_dim

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
        return ((self.kv_heads, self.head_dim),) * (self.layers - len(self.delta_layers))

    @property
    def state_shapes(self) -> tuple[StateShape, ...]:
        """See ModelShape: those of the layers that do not attend, in their order."""
        return () if self.delta is None else self.delta.state_shapes * len(self.delta_layers)

    @property
    def kv_windows(self) -> tuple[int | None, ...]:
        """See ModelShape."""
        return tuple(window for layer, window in enumerate(self.windows) if layer not in self.delta_layers)

    @property
    def window(self) -> int | None:
        """See ModelShape."""
        return furthest(self.kv_windows)

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers in one token's keys and values over all layers."""
        return 2 * len(self.kv_shapes) * self.kv_heads * self.head_dim

    @property
    def idle_expert_parameters(self) -> int:
        """Numbers in those experts that a token does not pass."""
        if self.experts is None:
            return 0
        idle = self.experts.count - self.experts.per_token
        return len(self.moe_layers) * idle * 3 * self.hidden * self.experts.width
