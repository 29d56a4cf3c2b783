"""Tensors of large checkpoints that nobody wrote: drawn where they are to be, so that no disk needs room for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headgate.bench.checkpoints import QWEN3
from headgate.engine.models.adapters.files import Adapter
from headgate.engine.models.weights.quantization import Packing
from headgate.engine.quant.fp8 import BLOCK, E4M3, LARGEST

LLAMA_3_8B: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 16384,
    "dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
QWEN3_30B_A3B: Mapping[str, Any] = {
    **QWEN3,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
}
_SPREAD = 0.02
_SCALE = _SPREAD / 100


class RandomTensors:
    """Implements Tensors: whatever is asked for is there; projections are fp8 blocks if that is wanted."""

    def __init__(self, folder: Path, device: torch.device, *, fp8: bool) -> None:
        self.folder, self.parameters = folder, 0
        self.files: list[Path] = []
        self.packing: Packing | None = None
        self.adapter: Adapter | None = None
        self._device, self._fp8 = device, fp8
        self._generator = torch.Generator(device).manual_seed(0)
        self._shapes: dict[str, tuple[int, ...]] = {}

    def __contains__(self, name: str) -> bool:
        # Not what some checkpoints have instead: other formats' codes, or all experts in one tensor without fp8.
        return name.endswith(".weight") or (self._fp8 and name.endswith("_proj.weight_scale_inv"))

    def dtype(self, name: str) -> torch.dtype:
        """See Tensors."""
        return E4M3 if self._fp8 and name.endswith("_proj.weight") else torch.bfloat16

    def shape(self, name: str) -> tuple[int, ...]:
        """See Tensors: that of the scales of a tensor that was drawn."""
        outputs, inputs = self._shapes[name.removesuffix("_scale_inv")]
        return -(-outputs // BLOCK), -(-inputs // BLOCK)

    def get(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        parameters: int | None = None,
        of: str | None = None,  # noqa: ARG002  nothing is released
    ) -> Tensor:
        """See Tensors. Matrices have a standard deviation of 0.02, norms are ones."""
        if name.endswith("_scale_inv"):
            return torch.full(shape, _SCALE, device=self._device)
        self._shapes[name] = shape
        drawn = torch.empty(shape, device=self._device)
        self.parameters += drawn.numel() if parameters is None else parameters
        if len(shape) == 1:
            return drawn.fill_(1.0).bfloat16()
        dtype = dtype or self.dtype(name)
        drawn.normal_(0, _SPREAD / _SCALE if dtype == E4M3 else _SPREAD, generator=self._generator)
        # Of a billion numbers some are beyond what e4m3 has, where they would be no numbers.
        return (drawn.clamp_(-LARGEST, LARGEST) if dtype == E4M3 else drawn).to(dtype)

    def equal(self, one: str, other: str) -> bool:
        """See Tensors: whatever would be the same is."""
        return one in self and other in self

    def release(self, name: str) -> None:
        """See Tensors."""

    def refuse_leftovers(self, *, unread: Sequence[str]) -> None:
        """See Tensors."""
