"""One decoder for all architectures: a specification says which parts a layer has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headgate.engine.kernels.device_rows import DeviceStep
from headgate.engine.kernels.interface import AttentionBatch, HeadNorms, Kernels, KVLayer, Mlp
from headgate.engine.kernels.mixture import Mixture
from headgate.engine.kernels.standing import StandingStep
from headgate.engine.kernels.states import DeltaPasses
from headgate.engine.kernels.whole_step import DecodeBatch
from headgate.engine.models.delta import GatedDelta, PlainDeltaPasses
from headgate.engine.models.eyes import Eyes, Given
from headgate.engine.models.rotation import Angles, Rotation
from headgate.engine.models.spec import DecoderSpec, DeltaSpec
from headgate.engine.quant.linear import Linear


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer. `q_norm` and `k_norm` are there iff the specification has qk_norm.

    Of a layer of the delta rule `qkv` gives what `delta` takes besides its gates, and `output` is behind that.

    `input_norm` and `mlp_norm` are of what the halves of a layer read, `attended_norm` and `fed_norm` of what they give
    before it is added. `sinks`: float32 [heads], there iff the specification has them.
    """

    input_norm: Tensor | None
    qkv: Linear
    output: Linear
    mlp_norm: Tensor | None
    mlp: Mlp | Mixture
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    attended_norm: Tensor | None = None
    fed_norm: Tensor | None = None
    sinks: Tensor | None = None
    delta: GatedDelta | None = None

    @property
    def reads(self) -> Linear | None:
        """The one layer that its input norm's result goes to; None where others read it, too."""
        return self.qkv if self.delta is None else None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights. `embedding` [vocab_size, hidden]."""

    embedding: Tensor
    layers: Sequence[Layer]
    norm: Tensor
    head: Linear


class Decoder:
    """Implements the LanguageModel protocol."""

    def __init__(
        self, spec: DecoderSpec, weights: DecoderWeights, kernels: Kernels, *, beside: Decoder | None = None
    ) -> None:
        """`beside`: one of the same layers, some of which are others here: these go operation by operation."""
        self.spec = spec
        self._weights = weights
        self.kernels = kernels
        self.eyes: Eyes | None = None
        """See LanguageModel."""
        self._rotation: Rotation = Rotation(spec, weights.embedding.device) if beside is None else beside._rotation
        whole = beside is None and not spec.gated and not spec.delta
        self._whole_step = kernels.whole_step(spec, weights) if whole else None

    @property
    def device(self) -> torch.device:
        """See LanguageModel."""
        return self._weights.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """See LanguageModel."""
        return self._weights.embedding.dtype

    @property
    def steps_on_device(self) -> bool:
        """See LanguageModel."""
        return self.spec.delta is None

    @property
    def kept(self) -> object:
        """See LanguageModel."""
        return self._weights, self._rotation, [] if self.eyes is None else self.eyes.tensors

    @property
    def weight_bytes(self) -> int:
        """See LanguageModel."""
        return sum(_layer_bytes(layer) for layer in self._weights.layers) + self._weights.head.nbytes

    @property
    def expert_bytes(self) -> int:
        """See LanguageModel."""
        return sum(layer.mlp.expert_nbytes for layer in self._weights.layers if not isinstance(layer.mlp, Mlp))

    def forward(
        self, tokens: Tensor, positions: Tensor, batch: AttentionBatch, cache: Sequence[KVLayer], rows: Tensor
    ) -> Tensor:
        """See LanguageModel."""
        if self._whole_step is not None:
            tables = self._rotation.tables(max(batch.contexts))
            return self._whole_step(tokens, positions, batch, cache, tables, rows, logits=True)
        return self.logits(self.hidden(tokens, positions, batch, cache, rows))

    def likeliest(
        self, tokens: Tensor, positions: Tensor, batch: AttentionBatch, cache: Sequence[KVLayer], rows: Tensor
    ) -> list[int]:
        """See LanguageModel."""
        if self._whole_step is not None:
            tables = self._rotation.tables(max(batch.contexts))
            return self._whole_step.choose(tokens, positions, batch, cache, tables, rows)
        chosen: list[int] = self.kernels.likeliest(self.forward(tokens, positions, batch, cache, rows)).tolist()
        return chosen

    @property
    def decodes(self) -> bool:
        """See LanguageModel."""
        return self._whole_step is not None

    def decode(
        self, batch: DecodeBatch, cache: Sequence[KVLayer], most: int, interrupt: Tensor
    ) -> tuple[list[list[int]], float]:
        """See LanguageModel."""
        assert self._whole_step is not None, "only a decoder that has its step in one call decodes"
        return self._whole_step.decode(batch, cache, self._rotation.tables(batch.context + most), most, interrupt)

    def logits(self, hidden: Tensor) -> Tensor:
        """See LanguageModel."""
        return self._weights.head(hidden)

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        cache: Sequence[KVLayer],
        rows: Tensor,
        given: Given | None = None,
    ) -> Tensor:
        """See LanguageModel."""
        tables = self._rotation.tables(max(batch.contexts))
        if self._whole_step is not None and given is None:
            return self._whole_step(tokens, positions, batch, cache, tables, rows, logits=False)
        if given is not None:
            batch = replace(batch, limits=given.limits)
        places = [(self.kernels.plan(each, self.device), each.slots) for each in batch.places]
        passes = None if self.spec.delta is None else self._delta_passes(self.spec.delta, batch)
        hidden: Tensor = self._layers(tokens, positions, tables, places, cache, rows, passes, given)
        return hidden

    def decoded(self, step: DeviceStep, cache: Sequence[KVLayer], longest: int) -> Tensor:
        """See LanguageModel."""
        tables = self._rotation.tables(longest)
        return self.logits(self._layers(step.tokens, step.positions, tables, [(step.plan, step.slots)], cache, None))

    def standing(self, step: StandingStep, cache: Sequence[KVLayer], longest: int) -> Tensor:
        """What `hidden` gives of a step whose inputs lie on the device, of all `step.rows`; see `decoded`."""
        tables, places = self._rotation.tables(longest), [(step.plan, step.slots)]
        hidden: Tensor = self._layers(step.tokens, step.positions, tables, places, cache, step.rows)
        return hidden

    def _layers(
        self,
        tokens: Tensor,
        positions: Tensor,
        tables: Sequence[Angles],
        places: Sequence[tuple[Any, Tensor]],
        cache: Sequence[KVLayer],
        rows: Tensor | None,
        passes: DeltaPasses | None = None,
        given: Given | None = None,
    ) -> Any:
        """See `hidden`; without `rows` all of them, as the output layer takes them best.

        `places`: plans and slots of layers that are not paged, and of those that are.
        """
        kernels, spec, weights = self.kernels, self.spec, self._weights
        residual, angles = self._enter(tokens, positions, tables)
        if given is not None:
            residual.index_copy_(0, given.places, given.rows[:, 0])
            if given.turns is not None:
                angles[0] = self._rotation.turned(given.turns, tables[0])
        first = weights.layers[0]
        x: Any = residual
        if first.input_norm is not None:
            x = kernels.rms_norm(residual, first.input_norm, spec.norm_eps, first.reads)
        layers = iter(cache)
        for number, layer in enumerate(weights.layers):
            mlp = layer.mlp
            if layer.delta is not None and passes is not None:
                x = layer.output(passes(layer.delta, layer.qkv(x), layer.delta.gates(x)))
            else:
                q, k, v, gates = self._project(layer, x)
                cos, sin = angles[number in spec.second_rope_layers]
                window, norms, sinks, kept = spec.windows[number], self._head_norms(layer), layer.sinks, next(layers)
                plan, slots = places[kept.paged]
                x = kernels.attend(q, k, v, norms, cos, sin, kept, slots, plan, window, sinks)
                x = x.flatten(1)
                x = layer.output(x if gates is None else x * gates.sigmoid())
            if rows is not None and number == spec.layers - 1:
                # Past the last attention only the rows that are sampled matter.
                x, residual = x.index_select(0, rows), residual.index_select(0, rows)
            into = mlp.gate_up if isinstance(mlp, Mlp) else mlp
            x, residual = self._add(x, residual, layer.attended_norm, layer.mlp_norm, into)
            x = self._feed_forward(mlp, x)
            if number < spec.layers - 1:
                if given is not None and number + 1 < given.rows.shape[1]:
                    residual.index_add_(0, given.places, given.rows[:, number + 1])
                following = weights.layers[number + 1]
                x, residual = self._add(x, residual, layer.fed_norm, following.input_norm, following.reads)
        head = weights.head if rows is None else None
        return self._add(x, residual, weights.layers[-1].fed_norm, weights.norm, head)[0]

    def _delta_passes(self, spec: DeltaSpec, batch: AttentionBatch) -> DeltaPasses:
        passes = self.kernels.delta_passes(spec, batch)
        return PlainDeltaPasses(batch, self.device) if passes is None else passes

    def _enter(self, tokens: Tensor, positions: Tensor, tables: Sequence[Angles]) -> tuple[Tensor, list[Angles]]:
        """The tokens' rows of the embedding, and of each table those of their positions."""
        spec = self.spec
        x, cos, sin = self.kernels.enter(tokens, positions, self._weights.embedding, tables[0])
        if spec.embedding_scale != 1.0:
            x = x * spec.embedding_scale
        second = [(cos.index_select(0, positions), sin.index_select(0, positions)) for cos, sin in tables[1:]]
        return x, [(cos, sin), *second]

    def _add(
        self, x: Tensor, residual: Tensor, behind: Tensor | None, norm: Tensor | None, into: object
    ) -> tuple[Any, Tensor]:
        """`Kernels.add_rms_norm`, of what the norm `behind` makes of x; without `norm` the sum goes on as it is."""
        kernels, eps = self.kernels, self.spec.norm_eps
        if behind is not None:
            x = kernels.rms_norm(x, behind, eps)
        if norm is None:
            total = residual + x
            return total, total
        return kernels.add_rms_norm(x, residual, norm, eps, into)

    def _project(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values; and, in one row each, the gates of what is attended, where there are some."""
        spec = self.spec
        q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        widths = [q_width, kv_width, kv_width, *([q_width] if spec.gated else [])]
        q, k, v, *gates = torch.split(layer.qkv(x), widths, dim=-1)
        if spec.qk_norm == "projection" and layer.q_norm is not None and layer.k_norm is not None:
            q = self.kernels.rms_norm(q, layer.q_norm, spec.norm_eps)
            k = self.kernels.rms_norm(k, layer.k_norm, spec.norm_eps)
        if spec.clip_qkv is not None:
            q, k, v = (t.clamp(-spec.clip_qkv, spec.clip_qkv) for t in (q, k, v))
        q = q.reshape(-1, spec.heads, spec.head_dim)
        k = k.reshape(-1, spec.kv_heads, spec.head_dim)
        v = v.reshape(-1, spec.kv_heads, spec.head_dim)
        return q, k, v, gates[0] if gates else None

    def _head_norms(self, layer: Layer) -> HeadNorms | None:
        if self.spec.qk_norm != "head" or layer.q_norm is None or layer.k_norm is None:
            return None
        return HeadNorms(layer.q_norm, layer.k_norm, self.spec.norm_eps)

    def _feed_forward(self, mlp: Mlp | Mixture, x: Tensor) -> Tensor:
        return self.kernels.feed_forward(mlp, x) if isinstance(mlp, Mlp) else mlp(x)


def _mlp_bytes(mlp: Mlp) -> int:
    return mlp.gate_up.nbytes + mlp.down.nbytes


def _layer_bytes(layer: Layer) -> int:
    mlp = layer.mlp
    gates = 0 if layer.delta is None else layer.delta.gates.nbytes
    return layer.qkv.nbytes + layer.output.nbytes + gates + (_mlp_bytes(mlp) if isinstance(mlp, Mlp) else mlp.nbytes)
