"""A decoder's weights from the named tensors of its checkpoint, layer by layer, in the formats that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from headgate.engine.kernels.interface import Kernels, Mlp
from headgate.engine.models.decoder import DecoderWeights, Layer
from headgate.engine.models.delta import GatedDelta
from headgate.engine.models.opening import Opened
from headgate.engine.models.weights.formats import LayerFormats
from headgate.engine.models.weights.linear_reader import LinearReader
from headgate.engine.models.weights.mixture_reader import MixtureReader
from headgate.engine.models.weights.outputs import by_part, gated, turned
from headgate.engine.models.weights.tensors import Tensors
from headgate.engine.quant.linear import Linear, WeightFormat


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
        """Of a checkpoint, for `kernels`; `kept`: what is packed already, by the names of `LinearReader.packed`."""
        self._source = opened.source
        self._spec = opened.spec
        self._opened = opened
        self._device = device
        self._formats = formats
        self.linears = LinearReader(opened.source, kernels, dtype, device, formats, kept)
        """What has become of the matrices."""
        self._mixtures = MixtureReader(opened, self.linears, kernels, dtype, device, formats.others)

    def weights(self, progress: Callable[[int, int], None]) -> DecoderWeights:
        """All of them; `progress` is told how many layers of how many were read.

        Raises:
            CheckpointError: naming the file and the tensor that is missing, damaged or misshapen.
        """
        spec, fmt, opened = self._spec, self._formats.others, self._opened
        embedding = self.linears.tensor(opened.embedding, spec.vocab_size, spec.hidden)
        norm = self._norm(f"{opened.places.model}.norm", spec.hidden, spec.logit_scale)
        if spec.tied_head:
            head = self.linears.pack("lm_head", [opened.embedding], lambda: embedding, spec.vocab_size, None, fmt, norm)
        else:
            head = self.linears.linear((opened.places.head,), (spec.vocab_size,), spec.hidden, False, fmt, norm)
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
                output=self.linears.linear(
                    (f"{at}.linear_attn.out_proj",), (spec.hidden,), spec.delta_width, False, fmt
                ),
                mlp_norm=mlp_norm,
                mlp=self._mixtures.plain(at) if number in spec.moe_layers else self._mlp(at, mlp_norm),
                delta=self._delta(f"{at}.linear_attn", 2 * sum(other < number for other in spec.delta_layers)),
            )
        queries = 2 * q_width if spec.gated else q_width
        sinks = self._source.get(f"{at}.self_attn.sinks", (spec.heads,)) if spec.sinks else None
        experts = self._mixtures.interleaved if names.interleaved_experts else self._mixtures.plain
        return Layer(
            input_norm=input_norm,
            qkv=self.linears.linear(
                tuple(f"{at}.{name}" for name in names.qkv),
                (queries, kv_width, kv_width) if len(names.qkv) == 3 else (spec.qkv_width,),
                spec.hidden,
                spec.qkv_bias,
                fmt,
                input_norm,
                gated(spec) if spec.gated else turned(spec, spec.heads + spec.kv_heads, spec.kv_heads),
            ),
            output=self.linears.linear((f"{at}.self_attn.o_proj",), (spec.hidden,), q_width, spec.output_bias, fmt),
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
            return self.linears.convert(stored)
        return self.linears.convert((stored.float() + self._spec.norm_offset) * scale)

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
        return self.linears.linear(
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
            gates=self.linears.linear(gates, widths, self._spec.hidden, False, "native", None, order),
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
            self.linears.linear(
                tuple(f"{at}.{name}" for name in names.gate_up),
                (each,) * len(names.gate_up),
                spec.hidden,
                spec.mlp_bias,
                fmt,
                norm,
            ),
            self.linears.linear((f"{at}.mlp.down_proj",), (spec.hidden,), spec.mlp_width, spec.mlp_bias, fmt),
            spec.activation,
        )
