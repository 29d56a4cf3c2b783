"""Long bodies are read beside the event loop, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 128 * 1024
"""Bytes from which on what is made of a body may take tens of milliseconds."""


async def aside(body: bytes, work: Callable[[], T]) -> T:
    """What `work` makes of a body: in a thread where that is long. Raises what it raises."""
    return work() if len(body) <= LONG else await asyncio.to_thread(work)
