"""A second attempt beside a slow first one: the one whose answer begins first is taken, the other is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar


class Beginning(Protocol):
    """An attempt that can be begun and closed."""

    async def begin(self) -> None:
        """Until something of the answer is there; raises where nothing will be."""
        ...

    def close(self) -> None:
        """End it."""
        ...


B = TypeVar("B", bound=Beginning)


async def race(first: B, second: Callable[[], B | None], after_s: float) -> tuple[B, B | None]:
    """The attempt that began first, and the one that lost, if there were two. Both are closed where neither begins.

    Args:
        first: not begun yet.
        second: makes another one, or None where there is to be none; called once, `after_s` seconds later.
        after_s: seconds that the first has for itself.
    """
    attempts = [first]
    tasks = [asyncio.create_task(first.begin())]
    try:
        await asyncio.wait(tasks, timeout=after_s)
        if not tasks[0].done() and (other := second()) is not None:
            attempts.append(other)
            tasks.append(asyncio.create_task(other.begin()))
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for at, task in enumerate(tasks):
                if task.done() and task.exception() is None:
                    winner = attempts.pop(at)
                    return winner, attempts[0] if attempts else None
        # Neither began; what the first says is as good a reason as any.
        tasks[0].result()
        raise AssertionError("an attempt that began is returned above")
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
        for attempt in attempts:
            attempt.close()
