"""Work that nobody waits for: a bounded queue and a few tasks that work it off."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

Item = TypeVar("Item")

MOST_BYTES = 64 * 1024 * 1024
"""Of what waits in one of them, and is done just now."""


class Backlog(ABC, Generic[Item]):
    """Does one thing after the other, from `start` to `close`. All calls come from one event loop."""

    def __init__(self, name: str, most: int, at_once: int = 1, most_bytes: int = MOST_BYTES) -> None:
        """`name` of the tasks; `most` and `most_bytes`: of what waits; `at_once`: items that are done side by side."""
        self._name = name
        self._at_once = at_once
        self._queue: asyncio.Queue[tuple[Item, int]] = asyncio.Queue(most)
        self._most_bytes = most_bytes
        self._bytes = 0
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to work off the queue."""
        self._workers = [asyncio.create_task(self._work(), name=f"{self._name} {n}") for n in range(self._at_once)]

    async def close(self) -> None:
        """Drop what waits and end what runs."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def drained(self) -> None:
        """Wait until everything that was put by now is done."""
        await self._queue.join()

    def _put(self, item: Item, size: int) -> bool:
        """Queue an item of so many bytes; False where there is no room. Never waits."""
        if self._bytes + size > self._most_bytes:
            return False
        try:
            self._queue.put_nowait((item, size))
        except asyncio.QueueFull:
            return False
        self._bytes += size
        return True

    @abstractmethod
    async def _do(self, item: Item) -> None:
        """Do one. What it raises ends the work: it has to deal with its failures."""

    async def _work(self) -> None:
        while True:
            item, size = await self._queue.get()
            try:
                await self._do(item)
            finally:
                self._bytes -= size
                self._queue.task_done()
