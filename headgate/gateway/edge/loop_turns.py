"""Taking turns: between a few requests and the next few, the event loop looks at what has come meanwhile.

A loop handles all that it found in one look before it looks again. Who comes just after a look waits for all of them,
and then, found as the last, for all of the next look's: twice as long as the others, and often it is the same
connection again and again. With few requests between two looks, each is served about when it came.
"""

from __future__ import annotations

import asyncio
from collections import deque

A_LOOK = 4
"""Requests that begin between two looks."""


class Turns:
    """Lets requests begin in the order they came, a few at a time. All calls come from one event loop."""

    def __init__(self, most: int = A_LOOK) -> None:
        """`most`: requests that begin between two looks of the loop."""
        self._most = most
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until it is the caller's turn, which it mostly is at once."""
        if self._begun < self._most and not self._waiting:
            self._begin(1)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _begin(self, requests: int) -> None:
        if self._begun == 0:
            asyncio.get_running_loop().call_soon(self._looked)
        self._begun += requests

    def _looked(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begin(1)
