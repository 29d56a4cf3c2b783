"""Long bodies are read beside the event loop, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

T = TypeVar("T")

LONG = 128 * 1024
"""Bytes from which on what is made of a body may take tens of milliseconds."""


def in_turn(turns: asyncio.Semaphore, body: bytes) -> AbstractAsyncContextManager[object]:
    """Wait for a turn where a body is long: texts of megabytes take seconds of a thread, and there are few."""
    return nullcontext() if len(body) <= LONG else turns


async def aside(body: bytes, work: Callable[[], T]) -> T:
    """What `work` makes of a body: in a thread where that is long. Raises what it raises."""
    return work() if len(body) <= LONG else await asyncio.to_thread(work)
