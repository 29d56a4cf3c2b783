"""A model in an engine of its own, for as long as a test asks it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from headgate.engine.engine import Engine
from headgate.engine.front.local import LocalModel
from headgate.engine.settings import EngineSettings, ModelSpec

T = TypeVar("T")


class StartLine:
    """An engine's clock on which its step thread waits until all are there whom a test wants to meet in one step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._off = threading.Event()
        self._off.set()

    def __call__(self) -> float:
        if threading.current_thread().name == "headgate-step":
            self._off.wait()
        return self._clock()

    async def together(self, model: LocalModel, askers: list[Coroutine[Any, Any, T]]) -> list[T]:
        """What each gets, who asks for one choice, however late some of them come to ask."""
        self._off.clear()
        all_of_them = asyncio.gather(*askers)
        try:
            while self._there(model) < len(askers) and not all_of_them.done():  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)
        finally:
            self._off.set()
        return await all_of_them

    def _there(self, model: LocalModel) -> int:
        stats = model.stats()
        return stats.waiting + stats.running


@contextmanager
def serving(
    folder: Path,
    settings: EngineSettings,
    blocks: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LocalModel]:
    """The checkpoint in float32; `blocks` bounds the memory of keys and values, whatever one of them takes."""
    if blocks is not None:
        with serving(folder, settings) as model:
            settings = replace(settings, kv_bytes=blocks * settings.block_size * model.info.kv_bytes_per_token)
    engine = Engine(settings, clock=clock)
    engine.load(ModelSpec("m", folder, dtype="float32"))
    engine.start()
    try:
        yield engine.models["m"]
    finally:
        engine.stop()
