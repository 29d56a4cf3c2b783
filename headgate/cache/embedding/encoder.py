"""A BERT sentence encoder that also gives what it saw of every wordpiece: the same pass makes vector and sketch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.cache.embedding.truncation import Beginnings

if TYPE_CHECKING:
    from tokenizers import Encoding

Floats = NDArray[np.float32]

LAYERS = 6
MIDDLE = 3
"""States of wordpieces are taken after this layer and after the last. The middle one tells words apart, the last one
their use."""
_SHORT = 4096
"""Characters of a text that is read as it is."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text.

    Attributes:
        vector: `[dim]`, float32, unit norm.
        ids: `[tokens]`, wordpieces without the marks at either end.
        states: `[tokens, 2 * dim]`, float32.
    """

    vector: Floats
    ids: NDArray[np.int64]
    states: Floats


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer: `weight` `[out, in]` and `bias` `[out]`, float32."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's products, the three projections of its attention in one, and its norms: `weight` and `bias` `[dim]`."""

    qkv: Dense
    out: Dense
    out_norm: Dense
    wide: Dense
    narrow: Dense
    narrow_norm: Dense


@dataclass(frozen=True, slots=True)
class BertWeights:
    """What a checkpoint holds.

    Attributes:
        words: `[vocabulary, dim]`, the embedding of the only type of token included.
        positions: `[longest text, dim]`.
        norm: of the sum of the two.
        layers: from the first to the last.
        heads: of each attention.
        epsilon: of all norms.
    """

    words: Floats
    positions: Floats
    norm: Dense
    layers: tuple[Layer, ...]
    heads: int
    epsilon: float

    @classmethod
    def read(cls, folder: Path) -> BertWeights:
        """From a folder that `suits`."""
        from safetensors.torch import load_file

        config = json.loads((folder / "config.json").read_bytes())
        # By way of torch, for NumPy knows no bfloat16.
        found = load_file(folder / "model.safetensors")
        every = {name: value.float().numpy() for name, value in found.items() if value.is_floating_point()}
        words, types = (every[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
        return cls(
            words + types[0],
            every["embeddings.position_embeddings.weight"],
            Dense(every["embeddings.LayerNorm.weight"], every["embeddings.LayerNorm.bias"]),
            tuple(_layer(every, f"encoder.layer.{at}.") for at in range(LAYERS)),
            int(config["num_attention_heads"]),
            float(config["layer_norm_eps"]),
        )


class Pass(Protocol):
    """A way to compute the encoder."""

    @property
    def kind(self) -> str:
        """What computes, for the log."""
        ...

    def __call__(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Vectors `[texts, dim]` of unit norm, and states `[rows, 2 * dim]` of all texts' wordpieces one after another:
        after the middle layer, then after the last. No text is empty."""
        ...


class BertEncoder:
    """Six layers of BERT with the mean of all positions as the sentence's vector: all-MiniLM-L6-v2 and its like.

    Weights are bfloat16, which processors with instructions for it multiply two to four times as fast as float32, and
    which all others read in half the time; the vectors' cosine with those of float32 is above 0.9999. They run in a
    kernel of our own where it is compiled and the processor has AVX2 or more, and in torch elsewhere.
    """

    def __init__(self, folder: Path, compute: Pass | None = None) -> None:
        """Read a sentence-transformers folder.

        Args:
            folder: of the model.
            compute: how; None takes the fastest there is.

        Raises:
            ValueError: the folder holds another kind of model.
        """
        from tokenizers import Tokenizer

        if not suits(folder):
            raise ValueError(f"{folder} holds no BERT of {LAYERS} layers with mean pooling and unit norm")
        self.longest = int(json.loads((folder / "sentence_bert_config.json").read_bytes())["max_seq_length"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(self.longest)
        self._tokenizer.no_padding()
        self.unknown = self._tokenizer.token_to_id(getattr(self._tokenizer.model, "unk_token", None) or "")
        """The wordpiece of all that is in no vocabulary; None if there is none."""
        # A tokenizer that cuts cannot say how long a text is.
        self._ruler = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._ruler.no_truncation()
        self._ruler.no_padding()
        self._beginnings = Beginnings(self._tokenizer) if Beginnings.can(self._tokenizer) else None
        self._compute = fastest(folder) if compute is None else compute
        self.dim = int(json.loads((folder / "config.json").read_bytes())["hidden_size"])

    @property
    def kind(self) -> str:
        """What computes the passes, for the log."""
        return self._compute.kind

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, the marks at either end included, however long it is."""
        return [len(encoding.ids) for encoding in self._ruler.encode_batch(list(texts))]

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """The wordpieces that are read of each text, `longest` at most, the marks at either end included.

        Where the tokenizer is of BERT's kind, what comes after them takes no time."""
        begun = [self._begun(text, self.longest) for text in texts]
        read = self._tokenizer.encode_batch([head for head, _ in begun])
        return [
            encoding.ids if whole or self._enough(encoding, head) else self._read_on(text)
            for text, (head, whole), encoding in zip(texts, begun, read, strict=True)
        ]

    def _read_on(self, text: str) -> list[int]:
        """Of a text whose special tokens make few wordpieces of many words."""
        words = self.longest
        while True:
            words *= 4
            head, whole = self._begun(text, words)
            (encoding,) = self._tokenizer.encode_batch([head])
            if whole or self._enough(encoding, head):
                return list(encoding.ids)

    def _begun(self, text: str, words: int) -> tuple[str, bool]:
        if self._beginnings is None or len(text) <= _SHORT:
            return text, True
        # More than are read, so that the last of those is not at the end.
        return self._beginnings.of(text, words + self._beginnings.margin)

    def _enough(self, encoding: Encoding, head: str) -> bool:
        """Whether the beginning of a text has all wordpieces that are read."""
        margin = 0 if self._beginnings is None else self._beginnings.margin
        return len(encoding.ids) == self.longest and max(end for _, end in encoding.offsets) <= len(head) - margin

    def encode(self, texts: Sequence[str], begun: Callable[[], None] | None = None) -> list[Encoded]:
        """All texts in one pass; `begun` is called when nothing but the pass is left to do."""
        read = self.read(texts)
        if begun is not None:
            begun()
        vectors, states = self._compute(read)
        ends = accumulate(len(ids) for ids in read)
        return [
            Encoded(vector.copy(), np.array(ids[1:-1], np.int64), states[end - len(ids) + 1 : end - 1])
            for vector, ids, end in zip(vectors, read, ends, strict=True)
        ]


def fastest(folder: Path) -> Pass:
    """The compiled pass where it can be used, torch otherwise."""
    from headgate.cache.embedding.encoder_native import NativePass, instructions

    weights = BertWeights.read(folder)
    if instructions() and NativePass.fits(weights):
        return NativePass(weights)
    from headgate.cache.embedding.encoder_torch import TorchPass

    return TorchPass(weights)


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
        and config.get("num_hidden_layers") == LAYERS
        and config.get("position_embedding_type", "absolute") == "absolute"
        and (ways == ["pooling_mode_mean_tokens"] or pooling.get("pooling_mode") == "mean")
        and kinds == ["Transformer", "Pooling", "Normalize"]
        and "max_seq_length" in lowered
        and lowered["max_seq_length"] <= config.get("max_position_embeddings", 512)
        and (folder / "tokenizer.json").is_file()
        and (folder / "model.safetensors").is_file()
    )


def _layer(every: Mapping[str, Floats], prefix: str) -> Layer:
    def dense(*names: str) -> Dense:
        return Dense(
            np.concatenate([every[f"{prefix}{name}.weight"] for name in names]),
            np.concatenate([every[f"{prefix}{name}.bias"] for name in names]),
        )

    return Layer(
        dense(*(f"attention.self.{name}" for name in ("query", "key", "value"))),
        dense("attention.output.dense"),
        dense("attention.output.LayerNorm"),
        dense("intermediate.dense"),
        dense("output.dense"),
        dense("output.LayerNorm"),
    )
