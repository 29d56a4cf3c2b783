"""The memory behind the blocks: keys and values of every slot, allocated once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import torch

from headgate.engine.kernels.interface import KVLayer
from headgate.engine.kv.memory import HUGE_PAGE, HostMemory
from headgate.engine.models.language_model import ModelShape
from headgate.engine.quant.fp8 import E4M3

KVDtype = Literal["auto", "int8", "fp8"]
"""How keys and values are kept: in the dtype of the arithmetic, or in 8 bits with a scale per token and head. int8 is
the more exact: a head's elements differ less in size than a float's exponent allows for."""


def kv_dtype(wanted: KVDtype, dtype: torch.dtype) -> torch.dtype:
    """Of the cache of a model that computes in `dtype`."""
    return dtype if wanted == "auto" else torch.int8 if wanted == "int8" else E4M3


def state_bytes(spec: ModelShape) -> int:
    """Bytes of what is kept of a sequence beside keys and values, however long it is."""
    return sum(each.nbytes for each in spec.state_shapes)


def kv_bytes_per_token(spec: ModelShape, dtype: torch.dtype) -> int:
    """Bytes one token's keys and values take over all layers, scales included."""
    return sum(_layer_bytes(spec, dtype))


def paged_bytes_per_token(spec: ModelShape, dtype: torch.dtype, context_length: int) -> int:
    """Those of them that lie in layers which may be paged: with windows shorter than the context."""
    paged = (window is not None and window < context_length for window in spec.kv_windows)
    return sum(each for each, apart in zip(_layer_bytes(spec, dtype), paged, strict=True) if apart)


def _layer_bytes(spec: ModelShape, dtype: torch.dtype) -> list[int]:
    scale_bytes = 4 if dtype.itemsize == 1 else 0
    return [2 * heads * (width * dtype.itemsize + scale_bytes) for heads, width in spec.kv_shapes]


class KVStore:
    """Per layer one tensor of keys and one of values, [blocks * block_size, kv_heads, head_dim].

    int8 and fp8 ones have scales beside them, see KVLayer. Of models that keep a state of sequences there is one tensor
    for each of `state_shapes`, [states, *shape]. With `pages`, layers that have a window are [pages * block_size, ...].
    """

    def __init__(
        self,
        spec: ModelShape,
        blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        states: int = 0,
        *,
        pages: int = 0,
        context_length: int = 0,
    ) -> None:
        """`context_length`: windows of as many tokens are none. Asked for with `pages`."""
        self.blocks, self.block_size = blocks, block_size
        widest = max(heads * width for heads, width in spec.kv_shapes)
        self._memory = HostMemory() if device.type == "cpu" else None
        self._small = HUGE_PAGE // (block_size * widest * dtype.itemsize)

        def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            if self._memory is None:
                return torch.zeros(shape, dtype=dtype, device=device)
            return self._memory.zeros(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)

        def layer(heads: int, width: int, window: int | None) -> KVLayer:
            paged = window is not None and window < context_length
            slots = (pages if paged else blocks) * block_size
            keys, values = (zeros((slots, heads, width), dtype) for _ in range(2))
            if dtype.itemsize > 1:
                return KVLayer(keys, values, paged=paged)
            scales = (zeros((slots, heads), torch.float32) for _ in range(2))
            return KVLayer(keys, values, *scales, paged=paged)

        windows = spec.kv_windows if pages else [None] * len(spec.kv_shapes)
        self.layers = [layer(*shape, window) for shape, window in zip(spec.kv_shapes, windows, strict=True)]
        self._outlined = _outlined(spec)
        self.states = [zeros((states, *each.shape), each.dtype) for each in spec.state_shapes if states]

    @property
    def paged(self) -> bool:
        """Whether some layers lie in pages."""
        return any(layer.paged for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return sum(tensor.nbytes for tensor in (*self.tensors, *self.states))

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Of keys and values, layer by layer, each [blocks * block_size, ...]."""
        return [tensor for layer in self.layers for tensor in _tensors(layer)]

    def use(self, blocks: Iterable[int]) -> None:
        """To be told of blocks that are written to: beyond a huge page of each tensor memory comes in huge pages."""
        if self._memory is not None and any(block >= self._small for block in blocks):
            self._memory.gather()
            self._memory = None

    def release(self) -> None:
        """Give the memory back."""
        self.layers.clear()
        self.states.clear()
        self._memory = None

    @property
    def outlined(self) -> KVLayer:
        """The middle layer, or the one next to it of those that see furthest: its values say more of how a model will
        fare than what its last layer makes of the last token, which is all about the next one.
        """
        return self.layers[self._outlined]

    def clear(self, blocks: Sequence[int], pages: Sequence[int] = ()) -> None:
        """Zero them. A NaN left in one would reach its next owner: masked keys weigh 0, and 0 * NaN is NaN."""
        for numbers, paged in ((blocks, False), (pages, True)):
            for number in numbers:
                self._zero(slice(number * self.block_size, (number + 1) * self.block_size), paged=paged)

    def clear_tokens(self, blocks: Sequence[int], pages: Sequence[int], positions: Sequence[int]) -> None:
        """Zero what the sequence with these blocks, and pages where there are some, has at positions."""
        for numbers, paged in ((blocks, False), (pages, True)):
            for position in positions if numbers else ():
                slot = numbers[position // self.block_size] * self.block_size + position % self.block_size
                self._zero(slice(slot, slot + 1), paged=paged)

    def _zero(self, slots: slice, *, paged: bool) -> None:
        for layer in self.layers:
            if layer.paged == paged:
                for tensor in _tensors(layer):
                    tensor[slots].zero_()


def _outlined(spec: ModelShape) -> int:
    middle, sights = len(spec.kv_shapes) // 2, [math.inf if window is None else window for window in spec.kv_windows]
    furthest = [number for number, sight in enumerate(sights) if sight == max(sights)]
    return min(furthest, key=lambda number: abs(number - middle))


def _tensors(layer: KVLayer) -> list[torch.Tensor]:
    parts = (layer.keys, layer.values, layer.key_scales, layer.value_scales)
    return [tensor for tensor in parts if tensor is not None]
