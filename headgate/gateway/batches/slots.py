"""Who may answer a line now: a bounded number at a time, shared fairly by teams."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """As many holders as there are slots; a slot that falls free goes to the waiting team that holds fewest."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: Counter[str] = Counter()
        # Teams in the order in which they were last served, so that equals take turns.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def held(self) -> int:
        """Slots that are taken."""
        return sum(self._held.values())

    @asynccontextmanager
    async def hold(self, team: str) -> AsyncIterator[None]:
        """Hold a slot, after the wait for one."""
        await self._take(team)
        try:
            yield
        finally:
            self._give(team)

    async def _take(self, team: str) -> None:
        if self._free:
            self._free -= 1
            self._held[team] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(team, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give(team)
            raise

    def _give(self, team: str) -> None:
        self._held[team] -= 1
        if not self._held[team]:
            del self._held[team]
        self._free += 1
        while self._free and (chosen := self._next()) is not None:
            name, turn = chosen
            self._free -= 1
            self._held[name] += 1
            turn.set_result(None)

    def _next(self) -> tuple[str, asyncio.Future[None]] | None:
        for team, turns in list(self._waiting.items()):
            while turns and turns[0].done():
                turns.popleft()
            if not turns:
                del self._waiting[team]
        if not self._waiting:
            return None
        team = min(self._waiting, key=lambda name: self._held[name])
        turns = self._waiting.pop(team)
        turn = turns.popleft()
        if turns:
            self._waiting[team] = turns
        return team, turn
