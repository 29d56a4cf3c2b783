"""Work that cannot be interrupted and that nobody waits for where the server ends before it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


async def in_own_thread(work: Callable[[], None], name: str) -> None:
    """Do it in a thread of its own, and raise what it raises.

    Whoever is cancelled goes on at once. asyncio's own threads would be waited for when the event loop is closed.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        failure: Exception | None = None
        try:
            work()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the event loop has been closed meanwhile
            loop.call_soon_threadsafe(tell, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done
