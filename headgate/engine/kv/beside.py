"""What is done beside the step thread: copies that take long, in order of their haste, and looks at the clock."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

logger = logging.getLogger(__name__)

Task = Callable[[], None]


class Beside(Protocol):
    """Does tasks one after the other."""

    def put(self, task: Task, *, urgent: bool) -> None:
        """Do it, after those as urgent that came before and before all that are less."""
        ...

    def later(self, seconds: float, task: Task) -> Task:
        """Do it then, on a thread of its own, unless what is returned is called before.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        ...

    def close(self, seconds: float) -> None:
        """End after the task that is under way, or leave it alone if that takes longer."""
        ...


class BesideThread:
    """Implements Beside with a thread, from the first task on."""

    def __init__(self, on_device: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        """`on_device`: in which the thread works."""
        self._on_device = on_device
        self._tasks: queue.PriorityQueue[tuple[int, int, Task]] = queue.PriorityQueue()
        self._serial = itertools.count()
        self._thread: threading.Thread | None = None

    def put(self, task: Task, *, urgent: bool) -> None:
        """See Beside."""
        self._tasks.put((1 - urgent, next(self._serial), task))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="headgate-kv", daemon=True)
            self._thread.start()

    def later(self, seconds: float, task: Task) -> Task:
        """See Beside."""
        timer = threading.Timer(seconds, task)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def close(self, seconds: float) -> None:
        """See Beside."""
        if self._thread is not None:
            self._tasks.put((-1, next(self._serial), _end))
            self._thread.join(timeout=seconds)

    def _work(self) -> None:
        with self._on_device():
            while (task := self._tasks.get()[2]) is not _end:
                try:
                    task()
                except Exception:
                    logger.exception("a task beside the steps failed")


def _end() -> None:
    """The last task."""
