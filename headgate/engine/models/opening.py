"""A checkpoint's configuration beside its files, and which of the two is believed where they contradict each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from headgate.engine.models.architectures import read_spec
from headgate.engine.models.gguf.tensors import GgufTensors
from headgate.engine.models.spec import DecoderSpec, Places
from headgate.engine.models.weights.quantization import check_quantization
from headgate.engine.models.weights.tensors import INDEX, WHOLE, CheckpointTensors, Tensors, read_json

logger = logging.getLogger(__name__)

_PARTS = ("embed_tokens", "layers", "norm")
"""Of what `Places.model` names. What sees may be called alike but for these."""

T_co = TypeVar("T_co", bound=Tensors, covariant=True)


@dataclass(frozen=True, slots=True)
class Opened(Generic[T_co]):
    """A checkpoint whose weights can be read.

    Attributes:
        config: the content of config.json, with what its files have instead.
        spec: what that describes.
        source: the tensors.
        places: where the decoder's parts are among them.
        embedding: the name of the one that tokens are looked up in.
    """

    config: Mapping[str, Any]
    spec: DecoderSpec
    source: T_co
    places: Places
    embedding: str

    @property
    def head(self) -> str:
        """The name of the output layer's weight, where it is not the embedding."""
        return f"{self.places.head}.weight"

    @property
    def unread(self) -> Sequence[str]:
        """What the names of those tensors begin with that are no part of the decoder, or are there twice."""
        return (*self.spec.names.unread, self.head) if self.spec.tied_head else self.spec.names.unread

    def stored(self, name: str) -> str:
        """The name that the files have for a tensor which other versions of transformers may call otherwise.

        So may its class of the decoder alone, where the files have what sees beside it.
        """
        return stored_name(name, self.places, self.spec.names.places)


def stored_name(name: str, places: Places, others: Sequence[Places]) -> str:
    """See `Opened.stored`: of files whose decoder is at `places`, among `others` that it may be at."""
    for other in (*others, Places()):
        if name.startswith(tuple(f"{other.model}.{part}." for part in _PARTS)):
            return places.model + name.removeprefix(other.model)
        if name.startswith(f"{other.head}."):
            return places.head + name.removeprefix(other.head)
    return name


def folder_tensors(folder: Path) -> CheckpointTensors | GgufTensors:
    """Those of the safetensors in `folder`, or of the GGUF files where it has no others.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    plain = (folder / WHOLE).exists() or (folder / INDEX).exists() or not any(folder.glob("*.gguf"))
    return CheckpointTensors(folder) if plain else GgufTensors(folder)


def open_checkpoint(folder: Path, tensors: Callable[[Path], T_co]) -> Opened[T_co]:
    """Read config.json of `folder` and open its `tensors`.

    Where the configuration says that the head is the embedding, and the files have a head that is another, that one is
    the head: such a model was trained with both. Where they have the head only, it is the embedding, too. So it is in
    transformers.

    Raises:
        CheckpointError: naming the file and the tensor or key that is missing, damaged or unexpected.
    """
    config = read_json(folder / "config.json")
    spec, source = read_spec(config), tensors(folder)
    source.packing = check_quantization(config, stacks=spec.names.interleaved_experts)
    places = _places(spec.names.places, source)
    embedding, head = f"{places.model}.embed_tokens.weight", f"{places.head}.weight"
    if not spec.tied_head or head not in source:
        return Opened(config, spec, source, places, embedding)
    if embedding not in source:
        return Opened(config, spec, source, places, head)
    if source.equal(embedding, head):
        return Opened(config, spec, source, places, embedding)
    text = config.get("text_config")
    if any(isinstance(part, Mapping) and part.get("tie_word_embeddings") for part in (config, text)):
        logger.warning(
            "%s: config.json has tie_word_embeddings, but %r is not %r; each is used as it is. "
            "tie_word_embeddings false says so.",
            folder,
            head,
            embedding,
        )
    return Opened({**config, "tie_word_embeddings": False}, replace(spec, tied_head=False), source, places, embedding)


def _places(candidates: Sequence[Places], source: Tensors) -> Places:
    """The first that the files have something of; transformers renamed some between its versions."""
    for places in candidates[:-1]:
        if f"{places.model}.norm.weight" in source:
            return places
    return candidates[-1]
