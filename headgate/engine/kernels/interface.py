"""One signature per numeric operation; an implementation for a device provides them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from headgate.engine.kernels.device_rows import RowKernels
from headgate.engine.kernels.mixture import Fp8Expert, Mixture, MixtureWeights, Mxfp4Expert, PackedExperts
from headgate.engine.kernels.standing import StandingStep, StepBound
from headgate.engine.kernels.states import DeltaPasses, StepStates
from headgate.engine.models.activation import Activation
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.linear import Linear, PackedWeight, WeightFormat

if TYPE_CHECKING:
    from headgate.engine.kernels.whole_step import WholeStep
    from headgate.engine.models.adapters.linear import Owners, Stack
    from headgate.engine.models.decoder import DecoderWeights
    from headgate.engine.models.spec import DecoderSpec, DeltaSpec


@dataclass(frozen=True, slots=True)
class KVLayer:
    """Keys and values of one layer. Each [slots, kv_heads, head_dim]; a block is `block_size` consecutive slots.

    int8 and fp8 (e4m3) ones have float32 scales [slots, kv_heads]: a head of a token is scale * q with
    scale = max|x| / 127, or / 448.

    One that is `paged` has the slots of pages instead: see AttentionBatch.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None
    paged: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Of a model's attention: queries, keys and values are all of `dtype`, in blocks of `block_size` tokens."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    block_size: int


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Weights [head_dim] by which the heads of queries and of keys are normalised, as by `Kernels.rms_norm`."""

    query: Tensor
    key: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Pages:
    """Where a step's keys and values are in layers that are `paged`.

    Attributes:
        tables: pages of each sequence, in order of position, as far as it has them. Where nobody reads any more, a page
            stands that somebody reads.
        slots: as of AttentionBatch.
    """

    tables: Sequence[Sequence[int]]
    slots: Tensor


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Geometry of one step. Sequence i owns `counts[i]` consecutive query rows, in order of i.

    Attributes:
        counts: tokens computed in this step, per sequence.
        contexts: tokens whose keys are in the cache after this step, per sequence; the queries are the last ones.
        tables: blocks of each sequence, in order of position.
        slots: [tokens] int64, where each row's key and value go.
        block_size: slots per block.
        states: of models that keep some.
        pages: of models some of whose layers are `paged`.
        limits: int32 [rows] on the host, ascending in a sequence: of each row the position behind the last key that it
            sees. None: that is its own.
    """

    counts: Sequence[int]
    contexts: Sequence[int]
    tables: Sequence[Sequence[int]]
    slots: Tensor
    block_size: int
    states: StepStates | None = None
    pages: Pages | None = None
    limits: Tensor | None = None

    @property
    def places(self) -> tuple[AttentionBatch, ...]:
        """The geometry of layers that are not paged, and of those that are, if there are any."""
        pages = self.pages
        return (self,) if pages is None else (self, replace(self, tables=pages.tables, slots=pages.slots, pages=None))


@dataclass(frozen=True, slots=True)
class Mlp:
    """A gated MLP: down(silu(gate(x)) * up(x)), with gate and up fused into one linear layer.

    Or with another `activation`; that of relu2 has no gates, only ups.
    """

    gate_up: Linear
    down: Linear
    activation: Activation = "silu"


class Drawing(Protocol):
    """Draws a token for each row as the sampler promises: top_k, top_p within these, min_p, Gumbel noise by key."""

    def __call__(
        self, logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, keys: Tensor
    ) -> Tensor:
        """int64 [rows] from [rows, vocabulary] logits; -1 for a row that has no distribution.

        Per row: temperature float32 above 0, top_k int64 (0 is all), top_p and min_p float64, keys int32 [rows, 2].
        """
        ...


class Fp8Layers(Protocol):
    """Layers that keep a checkpoint's own fp8 weights, and round activations alike.

    Attributes:
        unrounded: tokens of a step up to which activations stay as they are for experts of up to 8,192 inputs.
    """

    unrounded: int

    def rounds(self, weight: Fp8Weight, tokens: int) -> bool:
        """Whether `linear` of this weight, of up to 8,192 inputs, rounds the activations of so many tokens."""
        ...

    def linear(self, weight: Fp8Weight, bias: Tensor | None) -> Linear:
        """The layer of `weight`; `bias` [outputs] in the compute dtype."""
        ...

    def mixture(self, weights: MixtureWeights, experts: Iterable[Fp8Expert], shared: Fp8Expert | None) -> Mixture:
        """The layer of these experts; those of `weights` are not read."""
        ...


class Kernels(Protocol):
    """The operations of a decoder step. `tokens` is the number of rows of the step, whatever their sequence.

    Attributes:
        fp8: what keeps the weights of fp8 checkpoints as they are; None where they are expanded.
        fp8_cache: whether keys and values may be fp8.
        int8: whether layers of 8 bits are as much at home here as those of 4.

    `into`, where an operation has it, is the layer that takes the result next, and alone: it may come in a form that
    only that layer knows.
    """

    fp8: Fp8Layers | None
    fp8_cache: bool
    int8: bool

    def linear(
        self, weight: Tensor, bias: Tensor | None, fmt: WeightFormat, importance: Tensor | None = None
    ) -> Linear:
        """The layer that keeps `weight` [out_features, in_features] in format `fmt`, at its fastest here.

        `importance`: float32 [in_features], how much an error at each input counts where there is a choice (int4).
        """
        ...

    def pack(self, weight: Tensor, fmt: WeightFormat, importance: Tensor | None = None) -> PackedWeight | None:
        """`weight` for `packed_linear`, worth keeping on disk; None where `linear` makes layers of another kind."""
        ...

    def packed_linear(self, weight: PackedWeight, outputs: int, bias: Tensor | None, fmt: WeightFormat) -> Linear:
        """What `linear` makes of the weight that `pack` made this of; `bias` [outputs]."""
        ...

    def adapted(self, base: Linear, stack: Stack, owners: Owners) -> Linear | None:
        """`base` and what the factors in `stack` of each row's adapter give, by `owners.told`; see AdaptedLinear.

        None where nothing is faster than that.
        """
        ...

    def enter(
        self, tokens: Tensor, positions: Tensor, embedding: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What tokens bring along, looked up: their rows of `embedding`, and of cos and sin those of their positions.

        tokens and positions int64 [tokens]; embedding [vocabulary, hidden]; cos and sin fp32 [positions, head_dim / 2].
        """
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, into: object = None) -> Any:
        """Normalise the last dimension by its root mean square, then scale by `weight` [width]."""
        ...

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, into: object = None
    ) -> tuple[Any, Tensor]:
        """(rms_norm(x + residual), x + residual), both [tokens, hidden]. May overwrite its arguments.

        With `into` the sum may be left out until that layer has run.
        """
        ...

    def rope(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate the halves of each head. x [tokens, heads, head_dim]; cos and sin [tokens, head_dim / 2] fp32."""
        ...

    def swiglu(self, gate_up: Tensor, into: object = None) -> Any:
        """silu(first half) * second half: [tokens, 2 * width] to [tokens, width]."""
        ...

    def geglu(self, gate_up: Tensor, into: object = None) -> Any:
        """gelu(first half), by tanh, * second half: [tokens, 2 * width] to [tokens, width]."""
        ...

    def feed_forward(self, mlp: Mlp, x: Any) -> Tensor:
        """What the MLP makes of x [tokens, hidden], or of what `rms_norm` made for its first layer."""
        ...

    def write_kv(self, layer: KVLayer, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """Store [tokens, kv_heads, head_dim] keys and values at `slots` [tokens], rounded where these have scales."""
        ...

    def rotate_and_write(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        norms: HeadNorms | None,
        cos: Tensor,
        sin: Tensor,
        layer: KVLayer,
        slots: Tensor,
    ) -> Tensor:
        """What a layer does with its projections before it attends: the norms if any, `rope` of q and k, `write_kv`.

        q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim]; returns the queries.
        """
        ...

    def try_out(self, shape: AttentionShape, layers: int, device: torch.device) -> None:
        """Choose among ways to attend, if there are several, before a model with so many such layers is served."""
        ...

    def plan(self, batch: AttentionBatch, device: torch.device) -> Any:
        """Whatever `paged_attention` needs of the geometry, once per step for all layers."""
        ...

    def paged_attention(
        self, q: Tensor, layer: KVLayer, plan: Any, window: int | None, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention over the cache with grouped heads, but for the plan's limits; the scale is head_dim ** -0.5.

        q [tokens, heads, head_dim]; same shape out. `window`: positions back, itself included, that a query sees.
        `sinks`: float32 [heads], of each the score of one more key, which every query sees and which has no value: it
        takes a share of the attention (gpt-oss).
        """
        ...

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        norms: HeadNorms | None,
        cos: Tensor,
        sin: Tensor,
        layer: KVLayer,
        slots: Tensor,
        plan: Any,
        window: int | None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """`paged_attention` of what `rotate_and_write` gives: all that a layer does between its projections."""
        ...

    def likeliest(self, logits: Tensor) -> Tensor:
        """What greedy decoding takes of [rows, vocabulary] logits: int64 [rows], the first of equally likely tokens.

        -1 for a row that has no distribution: one of its logits is NaN or +inf, or all are -inf.
        """
        ...

    def drawing(self) -> Drawing | None:
        """How tokens that are not just the likeliest are drawn; None where the sampler does it by stock operators."""
        ...

    def forecast(self, logits: Tensor, count: int) -> Tensor:
        """What [rows, vocabulary] logits say of the next token: float32 [rows, count + 1].

        The natural logarithms of the chances of its `count` likeliest values, the likeliest first, and the entropy. Not
        finite for a row that has no distribution.
        """
        ...

    def outline(
        self, layer: KVLayer, tables: Sequence[Sequence[int]], counts: Sequence[int], block_size: int
    ) -> Tensor:
        """Of the layer's values of each sequence's first `counts[i]` tokens the last one's and the mean of all.

        `tables`: the sequences' blocks. Float32 [sequences, 2 * kv_heads * head_dim].
        """
        ...

    def rows(self) -> RowKernels | None:
        """How steps go whose inputs lie on the device; None where there are none."""
        ...

    def standing_step(self, bound: StepBound, device: torch.device) -> StandingStep | None:
        """Room on the device for the inputs of steps of any kind; None where launches depend on what is in a step."""
        ...

    def mixture(self, weights: MixtureWeights, fmt: WeightFormat) -> Mixture:
        """The mixture-of-experts layer that keeps its experts in format `fmt`, at its fastest here."""
        ...

    def mxfp4_mixture(self, weights: MixtureWeights, experts: Iterable[Mxfp4Expert]) -> Mixture | None:
        """The layer that keeps these experts as they are; those of `weights` are not read.

        None where they have to be expanded; then `experts` is not read.
        """
        ...

    def pack_experts(self, weights: MixtureWeights, fmt: WeightFormat) -> PackedExperts | None:
        """The experts for `packed_mixture`, worth keeping on disk; None where `mixture` keeps them in another way.

        Reads `weights.experts` only if it returns some.
        """
        ...

    def packed_mixture(self, weights: MixtureWeights, experts: PackedExperts, fmt: WeightFormat) -> Mixture:
        """What `mixture` makes of the weights that `pack_experts` made these of, experts of its own left unread."""
        ...

    def delta_passes(self, spec: DeltaSpec, batch: AttentionBatch) -> DeltaPasses | None:
        """How a step passes layers of the delta rule; None where it is done by stock operators."""
        ...

    def whole_step(self, spec: DecoderSpec, weights: DecoderWeights) -> WholeStep | None:
        """The step of such a decoder in one call; None where the operations go one by one."""
        ...
