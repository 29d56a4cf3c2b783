"""A checkpoint's configuration beside its files, and which of the two is believed where they contradict each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from headgate.engine.models.architectures import read_spec
from headgate.engine.models.quantization import check_quantization
from headgate.engine.models.spec import DecoderSpec
from headgate.engine.models.tensors import Tensors, read_json

logger = logging.getLogger(__name__)

T_co = TypeVar("T_co", bound=Tensors, covariant=True)

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Opened(Generic[T_co]):
    """A checkpoint whose weights can be read.

    Attributes:
        config: the content of config.json, with what its files have instead.
        spec: what that describes.
        source: the tensors.
        embedding: the name of the one that tokens are looked up in.
    """

    config: Mapping[str, Any]
    spec: DecoderSpec
    source: T_co
    embedding: str


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
    source.packing = check_quantization(config)
    if not spec.tied_head or HEAD not in source:
        return Opened(config, spec, source, EMBEDDING)
    if EMBEDDING not in source:
        return Opened(config, spec, source, HEAD)
    if source.equal(EMBEDDING, HEAD):
        return Opened(config, spec, source, EMBEDDING)
    logger.warning(
        "%s: config.json has tie_word_embeddings, but %r is not %r; each is used as it is. "
        "tie_word_embeddings false says so.",
        folder,
        HEAD,
        EMBEDDING,
    )
    return Opened({**config, "tie_word_embeddings": False}, replace(spec, tied_head=False), source, EMBEDDING)
