"""A local model's sleep as requests, routing and administration see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from headgate.engine.errors import EngineError
from headgate.engine.front.local import LocalModel
from headgate.engine.lanes.sleeper import Sleeper, SleepStats
from headgate.gateway.configuration.models import SleepSection
from headgate.gateway.wire.errors import asleep

LOOK_S = 1.0
"""How often it is looked whether a model had nothing to do."""


class Sleep:
    """One model's. Calls come from one event loop."""

    def __init__(
        self, model: LocalModel, section: SleepSection | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`section`: None: the defaults; `clock`: monotonic seconds."""
        self._model = model
        self._sleeper: Sleeper | None = model.sleeper
        self._section = SleepSection() if section is None else section
        self._clock = clock
        self._seen: tuple[int, ...] = ()
        self._wakes = self.stats.wakes
        self._since = clock()

    @property
    def stats(self) -> SleepStats:
        """How it stands."""
        return SleepStats() if self._sleeper is None else self._sleeper.stats

    @property
    def awake(self) -> bool:
        """Whether requests are answered at once."""
        return self.stats.state == "awake"

    @property
    def refuses(self) -> bool:
        """Whether no request is answered."""
        return self._section.on_request == "refuse" and self.stats.state in ("falling_asleep", "asleep")

    @property
    def wake_s(self) -> float:
        """Seconds until a request is answered, by what it took last time."""
        return 0.0 if self.awake else self.stats.last_wake_s

    async def rouse(self) -> None:
        """Somebody wants the model: wait until it is there. ApiError 503 where it does not wake, or not in time."""
        if self.awake or self._sleeper is None:
            return
        name, within_s = self._model.info.name, self._section.wake_wait_s
        if self.refuses:
            raise asleep(f"The model '{name}' is asleep, and requests do not wake it (sleep.on_request: refuse).", None)
        try:
            async with asyncio.timeout(within_s):
                await self.wake()
        except TimeoutError:
            message = f"The model '{name}' was asleep and is not awake after {within_s:g} s. Retry."
            raise asleep(message, self.stats.last_wake_s) from None
        except EngineError:
            raise asleep(f"The model '{name}' is asleep and cannot be woken now; the log says why.", 1.0) from None

    async def wake(self) -> None:
        """Have it be there. EngineError where it cannot be."""
        if self._sleeper is not None:
            await asyncio.shield(asyncio.wrap_future(self._sleeper.wake()))
            self._wakes, self._since = self.stats.wakes, self._clock()

    async def sleep(self) -> None:
        """Have it sleep. ModelBusy where it is wanted."""
        if self._sleeper is not None:
            await asyncio.shield(asyncio.wrap_future(self._sleeper.sleep()))

    async def look(self) -> None:
        """Have it sleep if it had nothing to do for as long as is set."""
        stats, now = self._model.stats(), self._clock()
        seen, wakes = (stats.steps, stats.running, stats.waiting, stats.background), self.stats.wakes
        # A model that shares it may have woken it, which has another one of these.
        if seen != self._seen or any(seen[1:]) or wakes != self._wakes:
            self._seen, self._wakes, self._since = seen, wakes, now
        elif self._section.idle_s and self.awake and now - self._since >= self._section.idle_s:
            try:
                await self.sleep()
            except Exception:  # somebody came, or there is no room for the weights elsewhere: the log says so
                self._since = now
