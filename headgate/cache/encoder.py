"""A BERT sentence encoder that also gives what it saw of every wordpiece: the same pass makes vector and sketch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_LAYERS = (3, 6)
"""After which layers the states of wordpieces are taken. The middle one tells words apart, the last one their use."""

_ROWS = 20
"""Wordpieces of a text as they come; the layout of the weights is chosen for so many."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text.

    Attributes:
        vector: `[dim]`, float32, unit norm.
        ids: `[tokens]`, wordpieces without the marks at either end.
        states: `[tokens, 2 * dim]`, float32.
    """

    vector: NDArray[np.float32]
    ids: NDArray[np.int64]
    states: NDArray[np.float32]


class BertEncoder:
    """Six layers of BERT with the mean of all positions as the sentence's vector: all-MiniLM-L6-v2 and its like.

    Weights and sums are bfloat16, which processors with matrix units multiply two to four times as fast as float32;
    the vectors' cosine with those of float32 is above 0.9999.
    """

    def __init__(self, folder: Path) -> None:
        """Read a sentence-transformers folder.

        Raises:
            ValueError: the folder holds another kind of model.
        """
        import torch
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        if not suits(folder):
            raise ValueError(f"{folder} holds no BERT of {max(_LAYERS)} layers with mean pooling and unit norm")
        config = json.loads((folder / "config.json").read_bytes())
        limit = json.loads((folder / "sentence_bert_config.json").read_bytes())["max_seq_length"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(limit)
        self._tokenizer.no_padding()
        self._torch = torch
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config["layer_norm_eps"])
        found = load_file(folder / "model.safetensors")
        weights = {name: value.to(torch.bfloat16) for name, value in found.items() if value.is_floating_point()}
        self.dim = int(config["hidden_size"])
        words, types = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
        self._words = words + types[0]
        self._positions = weights["embeddings.position_embeddings.weight"]
        self._norm = (weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"])
        self._layers = [_Layer.read(weights, f"encoder.layer.{at}.") for at in range(max(_LAYERS))]

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """All texts in one pass."""
        torch = self._torch
        read = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        lengths = [len(its) for its in read]
        longest = max(lengths)
        even = min(lengths) == longest
        with torch.inference_mode():
            ids = torch.tensor([its + [0] * (longest - len(its)) for its in read])
            # One text, the common case, needs neither mask nor padding.
            present = None if even else torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
            middle, last = (half.float() for half in self._states(ids, present))
            summed = last.sum(1) if present is None else (last * present[..., None]).sum(1)
            # Of unit norm, so that sum and mean are one.
            vectors = torch.nn.functional.normalize(summed, dim=1).numpy()
            states = torch.cat([middle, last], -1).numpy()
        return [
            Encoded(vectors[row].copy(), np.array(its[1:-1], np.int64), states[row, 1 : len(its) - 1])
            for row, its in enumerate(read)
        ]

    def _states(self, ids: torch.Tensor, present: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """States `[texts, tokens, dim]` after the two layers."""
        fn = self._torch.nn.functional
        texts, tokens = ids.shape
        mask = None if present is None else present[:, None, None, :]
        x = fn.layer_norm(self._words[ids] + self._positions[:tokens], (self.dim,), *self._norm, self._epsilon)
        kept = []
        for at, layer in enumerate(self._layers, start=1):
            query, key, value = layer.qkv(x).view(texts, tokens, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
            seen = fn.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            seen = seen.transpose(1, 2).reshape(texts, tokens, self.dim)
            x = fn.layer_norm(layer.out.plus(x, seen), (self.dim,), *layer.out_norm, self._epsilon)
            wide = layer.wide.gelu(x)
            x = fn.layer_norm(layer.narrow.plus(x, wide), (self.dim,), *layer.narrow_norm, self._epsilon)
            if at in _LAYERS:
                kept.append(x)
        return tuple(kept)


def suits(folder: Path) -> bool:
    """Whether `BertEncoder` computes what sentence-transformers would for this folder."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        pooling = json.loads((folder / "1_Pooling" / "config.json").read_bytes())
        modules = json.loads((folder / "modules.json").read_bytes())
        lowered = json.loads((folder / "sentence_bert_config.json").read_bytes())
    except (OSError, ValueError):
        return False
    # Older files of sentence-transformers spell the kinds of pooling as so many booleans.
    ways = [name for name, on in pooling.items() if name.startswith("pooling_mode") and on]
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("num_hidden_layers") == max(_LAYERS)
        and config.get("position_embedding_type", "absolute") == "absolute"
        and (ways == ["pooling_mode_mean_tokens"] or pooling.get("pooling_mode") == "mean")
        and kinds == ["Transformer", "Pooling", "Normalize"]
        and "max_seq_length" in lowered
        and (folder / "tokenizer.json").is_file()
        and (folder / "model.safetensors").is_file()
    )


class _Dense:
    """A dense layer whose weights lie as oneDNN's matrix units read them, with what follows it in the same pass.

    Without oneDNN's bfloat16 kernels it is the plain operators.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """`weight` `[out, in]` and `bias` `[out]`, bfloat16."""
        import torch

        self._fn, self._ops = torch.nn.functional, torch.ops.mkldnn
        self._bias = bias
        self._packs = bool(self._ops._is_mkldnn_bf16_supported())
        self._weight = self._ops._reorder_linear_weight(weight, _ROWS) if self._packs else weight

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
    qkv: _Dense
    out: _Dense
    out_norm: tuple[torch.Tensor, torch.Tensor]
    wide: _Dense
    narrow: _Dense
    narrow_norm: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def read(cls, weights: dict[str, torch.Tensor], prefix: str) -> _Layer:
        import torch

        def both(name: str) -> tuple[torch.Tensor, torch.Tensor]:
            return weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]

        parts = [both(f"attention.self.{name}") for name in ("query", "key", "value")]
        return cls(
            _Dense(torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])),
            _Dense(*both("attention.output.dense")),
            both("attention.output.LayerNorm"),
            _Dense(*both("intermediate.dense")),
            _Dense(*both("output.dense")),
            both("output.LayerNorm"),
        )
