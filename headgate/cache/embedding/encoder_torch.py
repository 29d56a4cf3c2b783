"""The encoder's pass by torch's operators, for processors and installations that the compiled pass is not for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headgate.cache.embedding.encoder import MIDDLE, BertWeights, Dense, Floats, Layer

if TYPE_CHECKING:
    import torch

_ROWS = 20
"""Wordpieces of a text as they come; the layout of the weights is chosen for so many."""


class TorchPass:
    """Implements `Pass`. Weights, states and sums are bfloat16 where oneDNN has kernels for that, else float32: torch's
    own products of bfloat16 take several times as long as those of float32."""

    def __init__(self, weights: BertWeights) -> None:
        """A pass with these weights."""
        import torch

        self._torch = torch
        self._heads = weights.heads
        self._epsilon = weights.epsilon
        packs = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        dtype = torch.bfloat16 if packs else torch.float32
        self.kind = f"torch, {str(dtype).removeprefix('torch.')}"
        self._words, self._positions = (_tensor(table, dtype) for table in (weights.words, weights.positions))
        self._norm = _norm(weights.norm, dtype)
        self._dim = weights.words.shape[1]
        self._layers = [_Layer.of(layer, dtype, packs=packs) for layer in weights.layers]

    def __call__(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """See Pass."""
        torch = self._torch
        lengths = [len(ids) for ids in texts]
        longest = max(lengths)
        even = min(lengths) == longest
        with torch.inference_mode():
            ids = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in texts])
            # One text, the common case, needs neither mask nor padding.
            present = None if even else torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
            middle, last = (half.float() for half in self._states(ids, present))
            summed = last.sum(1) if present is None else (last * present[..., None]).sum(1)
            # Of unit norm, so that sum and mean are one.
            vectors: Floats = torch.nn.functional.normalize(summed, dim=1).numpy()
            states = torch.cat([middle, last], -1).numpy()
        return vectors, np.concatenate([own[:length] for own, length in zip(states, lengths, strict=True)])

    def _states(self, ids: torch.Tensor, present: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """States `[texts, tokens, dim]` after the two layers."""
        fn = self._torch.nn.functional
        texts, tokens = ids.shape
        mask = None if present is None else present[:, None, None, :]
        x = fn.layer_norm(self._words[ids] + self._positions[:tokens], (self._dim,), *self._norm, self._epsilon)
        middle = x
        for at, layer in enumerate(self._layers, start=1):
            query, key, value = layer.qkv(x).view(texts, tokens, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
            seen = fn.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            seen = seen.transpose(1, 2).reshape(texts, tokens, self._dim)
            x = fn.layer_norm(layer.out.plus(x, seen), (self._dim,), *layer.out_norm, self._epsilon)
            wide = layer.wide.gelu(x)
            x = fn.layer_norm(layer.narrow.plus(x, wide), (self._dim,), *layer.narrow_norm, self._epsilon)
            if at == MIDDLE:
                middle = x
        return middle, x


class _Linear:
    """A dense layer whose weights lie as oneDNN's matrix units read them, with what follows it in the same pass.

    Without oneDNN's bfloat16 kernels it is the plain operators.
    """

    def __init__(self, dense: Dense, dtype: torch.dtype, *, packs: bool) -> None:
        import torch

        self._fn, self._ops = torch.nn.functional, torch.ops.mkldnn
        self._bias = _tensor(dense.bias, dtype)
        self._packs = packs
        weight = _tensor(dense.weight, dtype)
        self._weight = self._ops._reorder_linear_weight(weight, _ROWS) if packs else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` to `[..., out]`."""
        made: torch.Tensor
        if self._packs:
            made = self._ops._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        else:
            made = self._fn.linear(x, self._weight, self._bias)
        return made

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """The exact gelu of the layer's output."""
        if not self._packs:
            return self._fn.gelu(self(x))
        made: torch.Tensor = self._ops._linear_pointwise(x, self._weight, self._bias, "gelu", [], "none")
        return made

    def plus(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The layer's output added to `[..., out]`."""
        if not self._packs:
            return residual + self(x)
        made: torch.Tensor = self._ops._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
        return made


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: _Linear
    out: _Linear
    out_norm: tuple[torch.Tensor, torch.Tensor]
    wide: _Linear
    narrow: _Linear
    narrow_norm: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def of(cls, layer: Layer, dtype: torch.dtype, *, packs: bool) -> _Layer:
        linear = partial(_Linear, dtype=dtype, packs=packs)
        return cls(
            linear(layer.qkv),
            linear(layer.out),
            _norm(layer.out_norm, dtype),
            linear(layer.wide),
            linear(layer.narrow),
            _norm(layer.narrow_norm, dtype),
        )


def _norm(norm: Dense, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return _tensor(norm.weight, dtype), _tensor(norm.bias, dtype)


def _tensor(array: Floats, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return torch.from_numpy(array).to(dtype)
