"""A model of transformers' own code, with our attention, cache and linear layers in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headgate.engine.kernels.device_rows import DeviceStep
from headgate.engine.kernels.interface import AttentionBatch, Kernels, KVLayer
from headgate.engine.kernels.reference import ReferenceKernels
from headgate.engine.kernels.reference_attention import scored_attention
from headgate.engine.kernels.states import StateShape
from headgate.engine.kernels.whole_step import DecodeBatch
from headgate.engine.models.eyes import Eyes, Given
from headgate.engine.models.guests.parts import Attended, GuestParts
from headgate.engine.models.language_model import furthest
from headgate.engine.models.state_passes import StatePasses


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """See ModelShape."""

    architecture: str
    kv_shapes: tuple[tuple[int, int], ...]
    kv_windows: tuple[int | None, ...]
    state_shapes: tuple[StateShape, ...]
    vocab_size: int
    context_length: int
    expert_count: int = 0
    experts_per_token: int = 0

    @property
    def window(self) -> int | None:
        """See ModelShape."""
        return furthest(self.kv_windows)


class _Paged:
    """Attends the layers of a step over the paged cache."""

    def __init__(self, guest: Guest, batch: AttentionBatch, cache: Sequence[KVLayer]) -> None:
        self._kernels, self._capped = guest.kernels, guest.capped
        kernels = self._capped or self._kernels
        self._places = [(kernels.plan(each, guest.device), each.slots) for each in batch.places]
        self._cache = iter(zip(cache, guest.spec.kv_windows, strict=True))

    def __call__(self, wanted: Attended) -> Tensor:
        """See Attends."""
        (layer, window), width = next(self._cache), wanted.value.shape[-1]
        if window is not None and (wanted.window is None or wanted.window > window):
            raise ValueError(f"a layer sees {wanted.window or 'all'} tokens, and the cache keeps {window}")
        plan, slots = self._places[layer.paged]
        # The kernels' own scale, and heads as wide as they are in the cache: zeros change no product.
        head_dim = layer.keys.shape[-1]
        scale = wanted.scale * head_dim**0.5
        query, key, value = (_padded(part, head_dim) for part in (wanted.query, wanted.key, wanted.value))
        query = query if math.isclose(scale, 1.0) else query * scale
        self._kernels.write_kv(layer, key, value, slots)
        sinks = None if wanted.sinks is None else wanted.sinks.float().contiguous()
        if self._capped is None:
            attended = self._kernels.paged_attention(query, layer, plan, wanted.window, sinks)
        else:
            attended = scored_attention(query, layer, plan, wanted.window, cap=wanted.cap, sinks=sinks)
        return attended[..., :width]


class Guest:
    """Implements the LanguageModel protocol."""

    decodes = False
    steps_on_device = False
    eyes: Eyes | None = None

    def __init__(self, parts: GuestParts, spec: GuestSpec, kernels: Kernels, *, capped: bool, singly: bool) -> None:
        """`capped`: whether its layers cap scores, which kernels do not. `singly`: see StatePasses."""
        self.spec = spec
        self.kernels = kernels
        self.capped = ReferenceKernels() if capped else None
        self._singly = singly
        self._parts = parts

    @property
    def device(self) -> torch.device:
        """See LanguageModel."""
        return self._parts.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """See LanguageModel."""
        return self._parts.embedding.dtype

    @property
    def kept(self) -> object:
        """See LanguageModel."""
        return self._parts.tensors, self._parts.linears

    @property
    def weight_bytes(self) -> int:
        """See LanguageModel."""
        tensors = sum(tensor.nbytes for tensor in self._parts.tensors if tensor is not self._parts.embedding)
        return tensors + sum(layer.nbytes for layer in self._parts.linears)

    @property
    def expert_bytes(self) -> int:
        """See LanguageModel."""
        count = self.spec.expert_count
        return sum(t.nbytes // count for t in self._parts.tensors if count and t.ndim == 3 and t.shape[0] == count)

    def forward(
        self, tokens: Tensor, positions: Tensor, batch: AttentionBatch, cache: Sequence[KVLayer], rows: Tensor
    ) -> Tensor:
        """See LanguageModel."""
        return self.logits(self.hidden(tokens, positions, batch, cache, rows))

    def likeliest(
        self, tokens: Tensor, positions: Tensor, batch: AttentionBatch, cache: Sequence[KVLayer], rows: Tensor
    ) -> list[int]:
        """See LanguageModel."""
        chosen: list[int] = self.kernels.likeliest(self.forward(tokens, positions, batch, cache, rows)).tolist()
        return chosen

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
        assert given is None, "a guest sees no pictures"
        passes = StatePasses(batch, self.device, singly=self._singly) if self.spec.state_shapes else None
        return self._parts.hidden(tokens, positions, _Paged(self, batch, cache), passes).index_select(0, rows)

    def logits(self, hidden: Tensor) -> Tensor:
        """See LanguageModel."""
        return self._parts.logits(hidden)

    def decode(
        self, batch: DecodeBatch, cache: Sequence[KVLayer], most: int, interrupt: Tensor
    ) -> tuple[list[list[int]], float]:
        """See LanguageModel: it does not."""
        raise NotImplementedError("a guest has no step in one call")

    def decoded(self, step: DeviceStep, cache: Sequence[KVLayer], longest: int) -> Tensor:
        """See LanguageModel: it cannot."""
        raise NotImplementedError("a guest has no steps on the device")


def _padded(heads: Tensor, head_dim: int) -> Tensor:
    """[tokens, heads, head_dim] of [1, heads, tokens, width]."""
    lacking = head_dim - heads.shape[-1]
    rows = heads[0].transpose(0, 1)
    # Flat first: a single token or head is contiguous whatever its stride, and kernels look at strides.
    return F.pad(rows, (0, lacking)) if lacking else rows.reshape(-1).view(rows.shape)
