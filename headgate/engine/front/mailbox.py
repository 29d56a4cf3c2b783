"""The way from the step thread to the requests of one event loop.

The loop shares the interpreter and the cores with the step thread, so every hand-over slows the steps. First tokens and
ends go over at once. What lies between is paced: the loop may spend a small share of the time on handing over, and
while it has spent more, tokens wait for each other, at most 100 ms. Models whose step takes longer than the loop's work
for it, which are all but tiny ones, never wait.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from headgate.engine.request import Delta, Finish

LOOP_SHARE = 0.03
"""Share of the time that the loop's thread may compute while tokens are waiting for it."""
LONGEST_WAIT_S = 0.1
"""Longest that a token waits for others: ten frames a second, each of tens of tokens where a wait is that long."""
_LEAVE_S = 2.0
"""How long the account of work that was ended is waited for."""


class Mailbox:
    """Deltas of many requests. `post` belongs to the step thread, everything else to the loop's."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        longest_s: float = LONGEST_WAIT_S,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`cpu_clock` gives the seconds that the calling thread has computed."""
        self._loop = weakref.ref(loop)
        self._longest_s = longest_s
        self._cpu_clock = cpu_clock
        self._boxes: dict[str, _Box] = {}
        self._posted: deque[Sequence[Delta]] = deque()
        self._begun: set[str] = set()  # the step thread's own
        self._eager: set[str] = set()
        self._woken = False
        self._ticking = False
        self._flushed_at = 0.0
        self._cpu_at_flush = 0.0

    def open(self, request_id: str, *, eager: bool = False) -> None:
        """Take in deltas of a request from now on. Those of an eager one never wait."""
        self._boxes[request_id] = _Box(eager)
        if eager:
            self._eager.add(request_id)

    def close(self, request_id: str) -> None:
        """Drop what comes from now on."""
        del self._boxes[request_id]
        self._eager.discard(request_id)

    async def take(self, request_id: str) -> list[Delta]:
        """Everything handed over since the last call, at least one delta."""
        box = self._boxes[request_id]
        while not box.ready:
            box.reader = asyncio.get_running_loop().create_future()
            await box.reader
        box.ready = False
        deltas, box.deltas = box.deltas, []
        return deltas

    async def ends(self, request_id: str, count: int) -> list[Finish]:
        """The last words on so many cancelled choices; none where they do not come, which takes a step as a rule."""
        ends: list[Finish] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                while len(ends) < count:
                    deltas = await self.take(request_id)
                    ends.extend(delta.finish for delta in deltas if delta.finish is not None)
        return ends

    def post(self, deltas: Sequence[Delta]) -> None:
        """What one step brought. Wakes the loop at most once; not at all if it will look and nothing is urgent."""
        urgent = False
        for delta in deltas:
            if delta.finish is not None:
                # The last delta of a request is a finish, closed or not: nothing is remembered of it.
                self._begun.discard(delta.request_id)
                urgent = True
            elif delta.request_id not in self._begun:
                self._begun.add(delta.request_id)
                urgent = True
            elif delta.request_id in self._eager:
                urgent = True
        # The loop lowers its flags before it empties the queue, so that nothing posted after stays behind.
        self._posted.append(deltas)
        loop = self._loop()
        if self._woken or (self._ticking and not urgent) or loop is None or loop.is_closed():
            return
        self._woken = True
        loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._woken = False
        self._sort()
        if not self._ticking:
            self._tick()

    def _sort(self) -> None:
        """Into the boxes; first tokens and ends are ready at once."""
        boxes, posted = self._boxes, self._posted
        while posted:
            for delta in posted.popleft():
                box = boxes.get(delta.request_id)
                if box is not None:
                    box.deltas.append(delta)
                    if delta.finish is not None or box.eager or not box.begun:
                        box.begun = True
                        box.hand_over()

    def _tick(self) -> None:
        """Hand everything over if the loop may by now, and otherwise look again when it may."""
        self._ticking = False
        self._sort()
        waiting = [box for box in self._boxes.values() if box.deltas and not box.ready]
        if not waiting:
            return
        loop = asyncio.get_running_loop()
        cpu, now = self._cpu_clock(), loop.time()
        due = self._flushed_at + min(self._longest_s, (cpu - self._cpu_at_flush) / LOOP_SHARE)
        if now < due:
            self._ticking = True
            loop.call_at(due, self._tick)
            return
        self._flushed_at, self._cpu_at_flush = now, cpu
        for box in waiting:
            box.hand_over()


class _Box:
    """One request's deltas, and whether its one reader should look."""

    __slots__ = ("begun", "deltas", "eager", "reader", "ready")

    def __init__(self, eager: bool) -> None:
        self.eager = eager
        self.deltas: list[Delta] = []
        self.ready = False
        self.reader: asyncio.Future[None] | None = None
        self.begun = False

    def hand_over(self) -> None:
        self.ready = True
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)
