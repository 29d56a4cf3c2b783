"""What was embedded in an earlier run, so that a cache of many texts is filled in the time that filling takes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from headgate.cache.embedding.comparator import Comparator
from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import Vector

_PIECE = 500


class KeptEmbedder:
    """Implements `Embedder` for some texts, each asked for once and in their order, from a file of the first run."""

    def __init__(self, embedder: SentenceEmbedder, comparator: Comparator, texts: Sequence[str], folder: Path) -> None:
        """The model, the comparator that makes the sketches, and the texts are in the file's name."""
        of = "\n".join([embedder.name, embedder.kind, "packed", *texts]).encode() + comparator.digest
        named = hashlib.blake2b(of, digest_size=8).hexdigest()
        self._path = folder / f"embedded-{named}.msgpack"
        self._embedder = embedder
        self._texts = texts
        self._records: Iterator[tuple[str, bytes, bytes]] = iter(())
        self._sketches: dict[str, bytes] = {}

    @property
    def name(self) -> str:
        """Of the model."""
        return self._embedder.name

    @property
    def dim(self) -> int:
        """Of its vectors."""
        return self._embedder.dim

    async def make(self) -> None:
        """Write the file if there is none."""
        if not self._path.is_file():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            with part.open("wb") as file:
                for at in range(0, len(self._texts), _PIECE):
                    texts = self._texts[at : at + _PIECE]
                    vectors = await asyncio.gather(*(self._embedder.embed(text) for text in texts))
                    for text, vector in zip(texts, vectors, strict=True):
                        record = msgspec.msgpack.encode((text, vector.tobytes(), await self._embedder.sketch(text)))
                        file.write(len(record).to_bytes(4, "little") + record)
            part.rename(self._path)
        self._records = self._read()

    async def embed(self, text: str, scope: str = "") -> Vector:  # noqa: ARG002
        """The vector of the next text.

        Raises:
            ValueError: another text is asked for.
        """
        known, vector, sketch = next(self._records)
        if known != text:
            raise ValueError(f"text is {text!r}; {known!r}, which comes next, is accepted")
        self._sketches = {text: sketch}
        return np.frombuffer(vector, np.float32)

    async def sketch(self, text: str, scope: str = "") -> bytes:  # noqa: ARG002
        """The sketch of the text that was embedded last."""
        return self._sketches[text]

    def _read(self) -> Iterator[tuple[str, bytes, bytes]]:
        decoder = msgspec.msgpack.Decoder(tuple[str, bytes, bytes])
        with self._path.open("rb") as file:
            while size := file.read(4):
                yield decoder.decode(file.read(int.from_bytes(size, "little")))
