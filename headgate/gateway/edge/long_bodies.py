"""Long bodies are read beside the event loop, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 128 * 1024
"""Bytes from which on what is made of a body may take tens of milliseconds."""


async def in_turn(turns: asyncio.Semaphore, body: bytes, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` makes of a body: in a turn where that is long. Texts of megabytes take seconds of a thread, and there
    are few. A thread goes on where its client leaves, and has its turn until it ends.
    """
    return await work() if len(body) <= LONG else await one_by_one(turns, work)


async def one_by_one(turns: asyncio.Semaphore, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` makes of something, in a turn of its own, which it has until it ends, as above."""
    await turns.acquire()
    working = asyncio.ensure_future(work())
    working.add_done_callback(lambda _: turns.release())
    return await asyncio.shield(working)


async def aside(body: bytes, work: Callable[[], T]) -> T:
    """What `work` makes of a body: in a thread where that is long. Raises what it raises."""
    return work() if len(body) <= LONG else await asyncio.to_thread(work)
