"""A decoder's weights from the named tensors of its checkpoint, layer by layer, in the formats that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from headgate.engine.kernels.interface import Kernels, Mlp
from headgate.engine.kernels.mixture import ExpertWeights, Fp8Expert, Mixture, MixtureWeights, PackedExperts
from headgate.engine.models.adapter import AdaptedWeight
from headgate.engine.models.decoder import DecoderWeights, Layer
from headgate.engine.models.delta import GatedDelta
from headgate.engine.models.expert_tensors import ExpertTensors, expert_tensors, shared_expert_tensors
from headgate.engine.models.formats import LayerFormats
from headgate.engine.models.interleaved_experts import InterleavedExperts
from headgate.engine.models.opening import Opened
from headgate.engine.models.outputs import by_part, gated, turned
from headgate.engine.models.quantized import Matrix, read_matrix, stays_fp8
from headgate.engine.models.tensors import Tensors
from headgate.engine.quant.fp8 import Fp8Weight
from headgate.engine.quant.int4 import importance_behind
from headgate.engine.quant.linear import Linear, PackedWeight, WeightFormat

_ROWS_AT_A_TIME = 1 << 14  # whole panels of outputs, however a kernel packs them


@dataclass(frozen=True, slots=True)
class Stacked:
    """A linear layer and the checkpoint's layers that it is made of, stacked in this order.

    Attributes:
        linear: the layer.
        names: those of the checkpoint's layers.
        widths: outputs of each.
        inputs: of all of them.
        order: where its outputs are not as they were stacked, which of these each is.
    """

    linear: Linear
    names: tuple[str, ...]
    widths: tuple[int, ...]
    inputs: int
    order: Tensor | None


class WeightsReader:
    """Assembles the decoder's parts from named tensors."""

    def __init__(
        self,
        opened: Opened[Tensors],
        kernels: Kernels,
        dtype: torch.dtype,
        device: torch.device,
        formats: LayerFormats,
        kept: Mapping[str, Tensor],
    ) -> None:
        """Of a checkpoint, for `kernels`; `kept`: what is packed already, by the names of `packed`."""
        self._source = opened.source
        self._spec = opened.spec
        self._opened = opened
        self._kernels = kernels
        self._dtype = dtype
        self._device = device
        self._formats = formats
        self._kept = kept
        # Whoever wants another format gets it, of the weights that fp8 stands for.
        self._fp8 = kernels.fp8 if {formats.others, *formats.attention} == {"native"} else None
        self.packed: dict[str, Tensor] = {}
        """Parts of all packed weights by name, if any had to be packed; empty if all were kept."""
        self.stacked: list[Stacked] = []
        """What was read of attention, MLPs and a head of its own."""
        self.expanded = 0
        """Bytes of weights that the checkpoint has quantized, and that stay in the compute dtype here."""

    def weights(self, progress: Callable[[int, int], None]) -> DecoderWeights:
        """All of them; `progress` is told how many layers of how many were read.

        Raises:
            CheckpointError: naming the file and the tensor that is missing, damaged or misshapen.
        """
        spec, fmt, opened = self._spec, self._formats.others, self._opened
        embedding = self._tensor(opened.embedding, spec.vocab_size, spec.hidden)
        norm = self._norm(f"{opened.places.model}.norm", spec.hidden, spec.logit_scale)
        if spec.tied_head:
            head = self._pack("lm_head", [opened.embedding], lambda: embedding, spec.vocab_size, None, fmt, norm)
        else:
            head = self._linear((opened.places.head,), (spec.vocab_size,), spec.hidden, False, fmt, norm)
        layers = list[Layer]()
        for number in range(spec.layers):
            layers.append(self._layer(number))
            progress(number + 1, spec.layers)
        return DecoderWeights(
            embedding=embedding,
            layers=layers,
            norm=norm,
            head=head,
        )

    def _layer(self, number: int) -> Layer:
        spec, names, fmt = self._spec, self._spec.names, self._formats.attention[number]
        at = f"{self._opened.places.model}.layers.{number}"
        q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        input_norm, attended_norm, mlp_norm, fed_norm = (
            self._norm(f"{at}.{name}", spec.hidden) if name is not None else None
            for name in (names.input_norm, names.attended_norm, names.mlp_norm, names.fed_norm)
        )
        if number in spec.delta_layers:
            return Layer(
                input_norm=input_norm,
                qkv=self._delta_projection(f"{at}.linear_attn", fmt, input_norm),
                output=self._linear((f"{at}.linear_attn.out_proj",), (spec.hidden,), spec.delta_width, False, fmt),
                mlp_norm=mlp_norm,
                mlp=self._experts(at) if number in spec.moe_layers else self._mlp(at, mlp_norm),
                delta=self._delta(f"{at}.linear_attn", 2 * sum(other < number for other in spec.delta_layers)),
            )
        queries = 2 * q_width if spec.gated else q_width
        sinks = self._source.get(f"{at}.self_attn.sinks", (spec.heads,)) if spec.sinks else None
        experts = self._interleaved_experts if names.interleaved_experts else self._experts
        return Layer(
            input_norm=input_norm,
            qkv=self._linear(
                tuple(f"{at}.{name}" for name in names.qkv),
                (queries, kv_width, kv_width) if len(names.qkv) == 3 else (spec.qkv_width,),
                spec.hidden,
                spec.qkv_bias,
                fmt,
                input_norm,
                gated(spec) if spec.gated else turned(spec, spec.heads + spec.kv_heads, spec.kv_heads),
            ),
            output=self._linear((f"{at}.self_attn.o_proj",), (spec.hidden,), q_width, spec.output_bias, fmt),
            mlp_norm=mlp_norm,
            mlp=experts(at) if number in spec.moe_layers else self._mlp(at, mlp_norm),
            q_norm=self._norm_of_heads(f"{at}.self_attn.q_norm", spec.heads),
            k_norm=self._norm_of_heads(f"{at}.self_attn.k_norm", spec.kv_heads),
            attended_norm=attended_norm,
            fed_norm=fed_norm,
            sinks=None if sinks is None else sinks.to(device=self._device, dtype=torch.float32),
        )

    def _norm(self, name: str, width: int, scale: float = 1.0) -> Tensor:
        """The weights that a norm computes with, times `scale`."""
        stored = self._source.get(f"{name}.weight", (width,))
        if self._spec.norm_offset == 0.0 and scale == 1.0:
            return self._convert(stored)
        return self._convert((stored.float() + self._spec.norm_offset) * scale)

    def _norm_of_heads(self, name: str, heads: int) -> Tensor | None:
        spec = self._spec
        if spec.qk_norm == "none":
            return None
        together = heads if spec.qk_norm == "projection" else 1
        norm, order = self._norm(name, together * spec.head_dim), turned(spec, together)
        return norm if order is None else norm[order]

    def _delta_projection(self, at: str, fmt: WeightFormat, norm: Tensor | None) -> Linear:
        spec, names, each = self._spec.delta, self._spec.names, self._spec.delta_width
        assert spec is not None
        widths = (spec.channels, each) if len(names.delta) == 2 else (spec.channels + each,)
        order = None
        if len(names.delta) == 1:
            values = spec.value_heads // spec.key_heads * spec.value_dim
            order = by_part(spec.key_heads, (spec.key_dim, spec.key_dim, values, values))
        return self._linear(
            tuple(f"{at}.{name}" for name in names.delta), widths, self._spec.hidden, False, fmt, norm, order
        )

    def _delta(self, at: str, place: int) -> GatedDelta:
        """The layer between the projections, whose gates decide what is kept for long: they have no fewer bits."""
        spec, names = self._spec.delta, self._spec.names
        assert spec is not None
        heads, order = spec.value_heads, None
        if len(names.delta_gates) == 1:
            order = by_part(spec.key_heads, (heads // spec.key_heads,) * 2)
        widths = (heads,) * 2 if order is None else (2 * heads,)
        gates = tuple(f"{at}.{name}" for name in names.delta_gates)
        convolution = self._source.get(f"{at}.conv1d.weight", (spec.channels, 1, spec.convolved))
        return GatedDelta(
            spec=spec,
            place=place,
            gates=self._linear(gates, widths, self._spec.hidden, False, "native", None, order),
            convolution=self._exact(convolution).squeeze(1).t().contiguous(),
            decay=-self._exact(self._source.get(f"{at}.A_log", (heads,))).exp(),
            decay_bias=self._exact(self._source.get(f"{at}.dt_bias", (heads,))),
            norm=self._exact(self._source.get(f"{at}.norm.weight", (spec.value_dim,))),
            norm_eps=self._spec.norm_eps,
        )

    def _exact(self, stored: Tensor) -> Tensor:
        return stored.to(device=self._device, dtype=torch.float32)

    def _mlp(self, at: str, norm: Tensor | None) -> Mlp:
        spec, names, fmt = self._spec, self._spec.names, self._formats.others
        width = spec.mlp_width if spec.activation == "relu2" else 2 * spec.mlp_width
        each = width // len(names.gate_up)
        return Mlp(
            self._linear(
                tuple(f"{at}.{name}" for name in names.gate_up),
                (each,) * len(names.gate_up),
                spec.hidden,
                spec.mlp_bias,
                fmt,
                norm,
            ),
            self._linear((f"{at}.mlp.down_proj",), (spec.hidden,), spec.mlp_width, spec.mlp_bias, fmt),
            spec.activation,
        )

    def _experts(self, at: str) -> Mixture:
        spec, names, hidden = self._spec.experts, self._spec.names, self._spec.hidden
        assert spec is not None
        experts = expert_tensors(self._source, at, self._spec)
        shared_expert = shared_expert_tensors(self._source, at, self._spec)
        name = f"{at}.experts"
        kept = self._kept_experts(name, spec.width)
        weights = MixtureWeights(
            router=self._tensor(f"{at}.{names.router}.weight", spec.count, hidden),
            experts=(self._read(expert) for expert in experts),
            per_token=spec.per_token,
            normalize=spec.normalize,
            shared_gate=self._tensor(f"{at}.mlp.shared_expert_gate.weight", 1, hidden) if shared_expert else None,
        )
        fp8 = self._fp8_mixture(weights, experts, shared_expert)
        if fp8 is not None:
            return fp8
        if shared_expert is not None and kept is None:
            weights = replace(weights, shared=self._read(shared_expert))
        return self._mixture(name, weights, kept)

    def _interleaved_experts(self, at: str) -> Mixture:
        """Those in MXFP4 stay so where the kernels compute with them, whatever format is wanted: all have more bits."""
        spec, names, hidden = self._spec.experts, self._spec.names, self._spec.hidden
        assert spec is not None
        stacks = InterleavedExperts(self._source, at, self._spec)
        # What is rounded again is not rounded to bfloat16 before.
        dtype = self._dtype if self._formats.others == "native" else torch.float32
        weights = MixtureWeights(
            router=self._tensor(f"{at}.{names.router}.weight", spec.count, hidden),
            experts=stacks.plain(dtype, self._device),
            per_token=spec.per_token,
            normalize=spec.normalize,
            router_bias=self._tensor(f"{at}.{names.router}.bias", spec.count),
            gate_up_bias=self._convert(stacks.gate_up_bias),
            down_bias=self._convert(stacks.down_bias),
            limit=spec.limit,
        )
        if stacks.packed:
            mixture = self._kernels.mxfp4_mixture(weights, stacks.mxfp4(self._device))
            if mixture is not None:
                return mixture
            if self._formats.others == "native":
                self.expanded += 3 * spec.count * spec.width * hidden * self._dtype.itemsize
        name = f"{at}.experts"
        return self._mixture(name, weights, self._kept_experts(name, spec.width))

    def _mixture(self, name: str, weights: MixtureWeights, kept: PackedExperts | None) -> Mixture:
        """The layer of `weights`, of which experts that were `kept` are not read."""
        fmt = self._formats.others
        packed = kept or self._kernels.pack_experts(weights, fmt)
        if packed is None:
            return self._kernels.mixture(weights, fmt)
        if kept is None:
            self._keep(f"{name}/gate_up", packed.gate_up)
            self._keep(f"{name}/down", packed.down)
        return self._kernels.packed_mixture(weights, packed, fmt)

    def _fp8_mixture(
        self, weights: MixtureWeights, experts: Sequence[ExpertTensors], shared: ExpertTensors | None
    ) -> Mixture | None:
        """The layer whose experts stay in fp8; None where they are not, or cannot stay."""
        fp8 = self._fp8
        every = experts if shared is None else [*experts, shared]
        if fp8 is None or not stays_fp8([matrix for expert in every for matrix in expert.matrices]):
            return None
        read = (self._read_fp8(expert) for expert in experts)
        return fp8.mixture(weights, read, self._read_fp8(shared) if shared is not None else None)

    def _read_fp8(self, expert: ExpertTensors) -> Fp8Expert:
        gate, up, down = (m.to(self._device) for m in expert.matrices if isinstance(m, Fp8Weight))
        gate_up = Fp8Weight.stacked([gate, up])
        assert gate_up is not None
        self._release(expert.names)
        return Fp8Expert(gate_up, down)

    def _read(self, expert: ExpertTensors) -> ExpertWeights:
        gate, up, down = (self._convert(matrix, self._formats.others) for matrix in expert.matrices)
        read = ExpertWeights(torch.cat((gate, up)), down)
        self._release(expert.names)
        return read

    def _linear(
        self,
        names: tuple[str, ...],
        widths: tuple[int, ...],
        inputs: int,
        bias: bool,
        fmt: WeightFormat,
        norm: Tensor | None = None,
        order: Tensor | None = None,
    ) -> Linear:
        """One layer of the checkpoint's layers `names` stacked, in one product instead of several; behind `norm`.

        `order`: of its outputs, where they are not to be as they are stacked.
        """
        layer = self._read_linear(names, widths, inputs, bias, fmt, norm, order)
        self.stacked.append(Stacked(layer, names, widths, inputs, order))
        return layer

    def _read_linear(
        self,
        names: tuple[str, ...],
        widths: tuple[int, ...],
        inputs: int,
        bias: bool,
        fmt: WeightFormat,
        norm: Tensor | None,
        order: Tensor | None,
    ) -> Linear:
        # Looked up even where a packed form was kept: what the checkpoint must have is checked the same.
        tensors = [f"{name}.weight" for name in names]
        sources = [
            read_matrix(self._source, name, (width, inputs)) for name, width in zip(tensors, widths, strict=True)
        ]
        biases = [self._tensor(f"{n}.bias", w) for n, w in zip(names, widths, strict=True)] if bias else None
        both = _ordered(_stack(biases), order) if biases else None
        low = [source.to(self._device) for source in sources if isinstance(source, Fp8Weight)] if self._fp8 else []
        stacked = Fp8Weight.stacked(low) if len(low) == len(sources) else None
        if stacked is not None and order is not None:
            stacked = stacked.reordered(order)
        if self._fp8 is not None and stacked is not None:
            self._release(tensors)
            return self._fp8.linear(stacked, both)
        return self._pack(
            "+".join(names),
            tensors,
            lambda: _ordered(_stack([self._convert(source, fmt) for source in sources]), order),
            sum(widths),
            both,
            fmt,
            norm,
        )

    def _pack(
        self,
        name: str,
        sources: Sequence[str],
        weight: Callable[[], Tensor],
        outputs: int,
        bias: Tensor | None,
        fmt: WeightFormat,
        norm: Tensor | None,
    ) -> Linear:
        """The layer of `weight`, made of the tensors `sources`, which are not read where its packed form was kept."""
        packed = self._kept_weight(name)
        if packed is None:
            read = weight()
            importance = importance_behind(norm) if norm is not None else None
            packed = self._packed_rows(read, sources, fmt, importance)
            if packed is None:
                layer = self._kernels.linear(read, bias, fmt, importance)
                self._release(sources)
                return layer
            self._keep(name, packed)
        return self._kernels.packed_linear(packed, outputs, bias, fmt)

    def _packed_rows(
        self, weight: Tensor, sources: Sequence[str], fmt: WeightFormat, importance: Tensor | None
    ) -> PackedWeight | None:
        """Some outputs at a time, so that a large head is never in memory as a whole beside its packed form."""
        parts: list[PackedWeight] = []
        for start in range(0, weight.shape[0], _ROWS_AT_A_TIME):
            part = self._kernels.pack(weight[start : start + _ROWS_AT_A_TIME], fmt, importance)
            if part is None:
                return None
            parts.append(part)
            self._release(sources)
        if len(parts) == 1:
            return parts[0]
        return PackedWeight(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(PackedWeight)))

    def _release(self, sources: Sequence[str]) -> None:
        # What no layer copied is mapped again when it is used.
        for name in sources:
            self._source.release(name)

    def _kept_weight(self, name: str) -> PackedWeight | None:
        parts = [self._kept.get(f"{name}/{field.name}") for field in fields(PackedWeight)]
        return PackedWeight(*kept) if len(kept := [p for p in parts if p is not None]) == len(parts) else None

    def _kept_experts(self, name: str, width: int) -> PackedExperts | None:
        gate_up, down = self._kept_weight(f"{name}/gate_up"), self._kept_weight(f"{name}/down")
        return PackedExperts(gate_up, down, width) if gate_up is not None and down is not None else None

    def _keep(self, name: str, weight: PackedWeight) -> None:
        for field in fields(PackedWeight):
            self.packed[f"{name}/{field.name}"] = getattr(weight, field.name)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        if len(shape) == 2:
            return self._convert(read_matrix(self._source, name, (shape[0], shape[1])))
        return self._convert(self._source.get(name, shape))

    def _convert(self, matrix: Matrix, fmt: WeightFormat = "native") -> Tensor:
        if isinstance(matrix, Tensor):
            return matrix.to(device=self._device, dtype=self._dtype)
        # What is rounded again is not rounded to bfloat16 before.
        weight = matrix.to(self._device).expand(self._dtype if fmt == "native" else torch.float32)
        plain = isinstance(matrix, AdaptedWeight) and isinstance(matrix.base, Tensor)
        self.expanded += weight.nbytes if fmt == "native" and not plain else 0
        return weight


def _stack(tensors: list[Tensor]) -> Tensor:
    # A single tensor stays memory-mapped where its dtype and device allow.
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]


def _ordered(tensor: Tensor, order: Tensor | None) -> Tensor:
    return tensor if order is None else tensor[order]
