"""A decoder's step as one native call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headgate.engine.kernels.cpu.experts import NativeMixture
from headgate.engine.kernels.cpu.packed import NativeBf16Linear, NativeInt4Linear, NativeInt8Linear
from headgate.engine.kernels.cpu.plan import CpuPlan
from headgate.engine.kernels.interface import AttentionBatch, KVLayer, Mlp
from headgate.engine.kernels.mixture import Mixture
from headgate.engine.kernels.whole_step import DecodeBatch, Forms

if TYPE_CHECKING:
    from headgate.engine.models.decoder import DecoderWeights
    from headgate.engine.models.spec import DecoderSpec


_MAX_HEAD_DIM = 512
"""kMaxHeadDim of loops.h: a head lies on the stack there. Models with larger ones go operator by operator."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class CpuStep:
    """Implements the WholeStep protocol; gives the same bits as the operators one by one."""

    def __init__(self, native: Any) -> None:
        """`native`: a `torch.classes.headgate.Step` with all its layers."""
        self._native = native
        self._forward, self._choose, self._decode = native.forward, native.choose, native.decode
        self._cache: Sequence[KVLayer] | None = None
        self._angles: Sequence[tuple[Tensor, Tensor]] | None = None

    @classmethod
    def of(cls, spec: DecoderSpec, weights: DecoderWeights) -> CpuStep | None:
        """The step of a decoder, or None if some part of it has no place in a native one."""
        dtype, hidden = weights.embedding.dtype, spec.hidden
        head = _product(weights.head, hidden, spec.vocab_size, dtype)
        if head is None or spec.clip_qkv is not None or spec.qk_norm == "projection" or spec.head_dim > _MAX_HEAD_DIM:
            return None
        if spec.activation not in ("silu", "gelu"):
            return None
        native = torch.classes.headgate.Step(
            spec.heads,
            spec.kv_heads,
            spec.head_dim,
            spec.norm_eps,
            spec.activation == "gelu",
            spec.embedding_scale,
            weights.embedding.contiguous(),
            weights.norm,
            head,
        )
        for number, (layer, window) in enumerate(zip(weights.layers, spec.windows, strict=True)):
            attention = (
                _product(layer.qkv, hidden, spec.qkv_width, dtype),
                _product(layer.output, spec.heads * spec.head_dim, hidden, dtype),
            )
            feed_forward = _feed_forward(layer.mlp, spec, dtype)
            if feed_forward is None or any(product is None for product in attention):
                return None
            if layer.input_norm is None or layer.mlp_norm is None:
                return None
            norms = (
                *(layer.input_norm, layer.mlp_norm, layer.attended_norm, layer.fed_norm),
                *(layer.q_norm, layer.k_norm),
            )
            native.add_layer(
                *norms, *attention, *feed_forward, window, int(number in spec.second_rope_layers), layer.sinks
            )
        return cls(native)

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        cache: Sequence[KVLayer],
        angles: Sequence[tuple[Tensor, Tensor]],
        rows: Tensor,
        *,
        logits: bool,
    ) -> Tensor:
        """See WholeStep."""
        self._bind(cache, angles, batch.block_size)
        plan = CpuPlan.of(batch)
        out: Tensor = self._forward(tokens, positions, batch.slots, plan.geometry, plan.with_pages(batch), rows, logits)
        return out

    def choose(
        self,
        tokens: Tensor,
        positions: Tensor,
        batch: AttentionBatch,
        cache: Sequence[KVLayer],
        angles: Sequence[tuple[Tensor, Tensor]],
        rows: Tensor,
    ) -> list[int]:
        """See WholeStep."""
        self._bind(cache, angles, batch.block_size)
        plan = CpuPlan.of(batch)
        tables = plan.with_pages(batch)
        chosen: list[int] = self._choose(tokens, positions, batch.slots, plan.geometry, tables, rows).tolist()
        return chosen

    def decode(
        self,
        batch: DecodeBatch,
        cache: Sequence[KVLayer],
        angles: Sequence[tuple[Tensor, Tensor]],
        most: int,
        interrupt: Tensor,
    ) -> tuple[list[list[int]], float]:
        """See WholeStep."""
        self._bind(cache, angles, batch.block_size)
        numbers, forms = (batch.rows, batch.choices, batch.tables, batch.ends), batch.forms
        if forms is None:
            tokens, seconds = self._decode(*numbers, most, interrupt)
            return tokens.tolist(), seconds
        errors: list[BaseException] = []
        question = _question(forms, errors)
        address = ctypes.cast(question, ctypes.c_void_p).value
        tokens, seconds = self._decode(*numbers, most, interrupt, forms.of, forms.allowed, forms.told, address)
        if errors:
            raise errors[0]
        return tokens.tolist(), seconds

    def _bind(self, cache: Sequence[KVLayer], angles: Sequence[tuple[Tensor, Tensor]], block_size: int) -> None:
        if cache is not self._cache:
            self._native.bind(
                [kv.keys for kv in cache],
                [kv.values for kv in cache],
                [kv.key_scales for kv in cache if kv.key_scales is not None],
                [kv.value_scales for kv in cache if kv.value_scales is not None],
                [int(kv.paged) for kv in cache],
                block_size,
            )
            self._cache = cache
        if angles is not self._angles:
            self._native.set_angles([cos for cos, _ in angles], [sin for _, sin in angles])
            self._angles = angles


def _question(forms: Forms, errors: list[BaseException]) -> Any:
    """What native code calls to have a step prepared, with 0, or settled, with 1; it gives 0 where that raised."""

    def ask(chosen: int) -> int:
        try:
            forms.settle() if chosen else forms.prepare()
        except BaseException as error:  # nothing may pass through native code
            errors.append(error)
            return 0
        return 1

    return _FUNCTION(ask)


def _feed_forward(mlp: Mlp | Mixture, spec: DecoderSpec, dtype: torch.dtype) -> tuple[Any, Any, Any] | None:
    """Handles of gate and up, of down, and of experts, there being none of the one or the other; None for neither."""
    if isinstance(mlp, NativeMixture):
        return None, None, mlp.native
    if not isinstance(mlp, Mlp):
        return None
    gate_up = _product(mlp.gate_up, spec.hidden, 2 * spec.mlp_width, dtype)
    down = _product(mlp.down, spec.mlp_width, spec.hidden, dtype)
    return None if gate_up is None or down is None else (gate_up, down, None)


def _product(linear: object, inputs: int, outputs: int, dtype: torch.dtype) -> Any:
    """The handle of a layer's packed weights; None for a layer that has none."""
    if not isinstance(linear, NativeBf16Linear | NativeInt8Linear | NativeInt4Linear):
        return None
    parts = linear.parts
    return torch.classes.headgate.Product(parts.fmt, list(parts.weight), parts.bias, inputs, outputs, dtype)
