"""The memory behind the blocks: keys and values of every slot, allocated once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headgate.engine.kernels.interface import KVLayer
from headgate.engine.models.spec import DecoderSpec


class KVStore:
    """Per layer one tensor of keys and one of values, [blocks * block_size, kv_heads, head_dim]."""

    def __init__(
        self, spec: DecoderSpec, blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._block_size = block_size
        shape = (blocks * block_size, spec.kv_heads, spec.head_dim)
        self.layers = [KVLayer(_zeros(shape, dtype, device), _zeros(shape, dtype, device)) for _ in range(spec.layers)]

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)

    def clear(self, blocks: Sequence[int]) -> None:
        """Zero the blocks. A NaN left in one would reach its next owner: masked keys weigh 0, and 0 * NaN is NaN."""
        for block in blocks:
            slots = slice(block * self._block_size, (block + 1) * self._block_size)
            for layer in self.layers:
                layer.keys[slots].zero_()
                layer.values[slots].zero_()


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy's zeros are mapped lazily: a large pool costs memory only as its blocks are used.
    element_bytes = torch.empty((), dtype=dtype).element_size()
    raw = np.zeros(int(np.prod(shape)) * element_bytes, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
