"""Work that nobody waits for: a bounded queue and one task that works it off."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Backlog(ABC, Generic[Item]):
    """Does one thing after the other, from `start` to `close`. All calls come from one event loop."""

    def __init__(self, name: str, most: int) -> None:
        """`name` of the task; `most`: items that may wait."""
        self._name = name
        self._queue: asyncio.Queue[Item] = asyncio.Queue(most)
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work off the queue."""
        self._worker = asyncio.create_task(self._work(), name=self._name)

    async def close(self) -> None:
        """Drop what waits and end what runs."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def drained(self) -> None:
        """Wait until everything that was put by now is done."""
        await self._queue.join()

    def _put(self, item: Item) -> bool:
        """Queue an item; False where there is no room. Never waits."""
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            return False
        return True

    @abstractmethod
    async def _do(self, item: Item) -> None:
        """Do one. What it raises ends the work: it has to deal with its failures."""

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                await self._do(item)
            finally:
                self._queue.task_done()
