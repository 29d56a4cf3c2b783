"""A model in an engine of its own, for as long as a test asks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headgate.engine.engine import Engine, EngineSettings, ModelSpec
from headgate.engine.local import LocalModel


@contextmanager
def serving(folder: Path, settings: EngineSettings, blocks: int | None = None) -> Iterator[LocalModel]:
    """The checkpoint in float32; `blocks` bounds the memory of keys and values, whatever one of them takes."""
    if blocks is not None:
        with serving(folder, settings) as model:
            settings = replace(settings, kv_bytes=blocks * settings.block_size * model.info.kv_bytes_per_token)
    engine = Engine(settings)
    engine.load(ModelSpec("m", folder, dtype="float32"))
    engine.start()
    try:
        yield engine.models["m"]
    finally:
        engine.stop()
