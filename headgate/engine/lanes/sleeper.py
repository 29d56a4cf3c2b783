"""A model's sleep: its weights and its keys and values give their memory back until somebody wants the model again.

What takes long is done in a thread of its own, so that the device's other models go on; what changes the lane is done
by the step thread. Whoever comes meanwhile waits in the lane's queue, and wakes the model by that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from headgate.engine.errors import ModelBusy, WakeFailed
from headgate.engine.lane import Lane
from headgate.engine.models.language_model import LanguageModel
from headgate.engine.models.resting import Resting
from headgate.engine.request import Delta
from headgate.engine.runner import Runner

logger = logging.getLogger(__name__)

T = TypeVar("T")
SleepState = Literal["awake", "falling_asleep", "asleep", "waking"]


@dataclass(frozen=True, slots=True)
class SleepStats:
    """How a model stands, and counters since start."""

    state: SleepState = "awake"
    sleeps: int = 0
    wakes: int = 0
    wake_seconds: float = 0.0
    """All of them together."""
    last_wake_s: float = 0.0


class Sleeper:
    """Puts one model to sleep, and wakes it."""

    def __init__(
        self,
        name: str,
        lane: Lane,
        weights: Resting,
        assemble: Callable[[LanguageModel], Runner],
        *,
        call: Callable[[Callable[[], list[Delta]]], None],
        device: Callable[[], AbstractContextManager[object]],
        clock: Callable[[], float],
    ) -> None:
        """`assemble` gives what computes with a decoder, keys and values included; `call` is the step loop's."""
        self._name = name
        self._lane = lane
        self._weights = weights
        self._assemble = assemble
        self._call = call
        self._device = device
        self._clock = clock
        self._going: list[Future[None]] = []
        self._coming: list[Future[None]] = []
        self._wanted = False
        self.stats = SleepStats()
        """May be read from another thread."""

    def sleep(self) -> Future[None]:
        """Have the model sleep; done when the memory is free. ModelBusy where requests run or wait.

        So they do in the background where they generate; scores, probes and prompts to be pinned are ended there. What
        was cached of prompts is forgotten, pinned ones too.
        """
        return self._told(self._sleep)

    def wake(self) -> Future[None]:
        """Have the model be there again; done when it is. WakeFailed where it cannot be."""
        return self._told(self._wake)

    def rouse(self) -> None:
        """Somebody came: on the step thread."""
        if self.stats.state == "falling_asleep":
            self._wanted = True
        elif self.stats.state == "asleep":
            self._set("waking")
            self._apart(self._build, self._came)

    def _told(self, what: Callable[[Future[None]], list[Delta]]) -> Future[None]:
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # who stops waiting for it does not stop it
        self._call(partial(what, done))
        return done

    def _sleep(self, done: Future[None]) -> list[Delta]:
        state, (running, waiting) = self.stats.state, self._lane.wanted
        if state == "asleep":
            done.set_result(None)
        elif state == "falling_asleep":
            self._going.append(done)
        elif state == "waking" or running or waiting:
            done.set_exception(ModelBusy(self._name, running, waiting))
        else:
            self._set("falling_asleep")
            self._going.append(done)
            ended = self._lane.rest()
            self._apart(self._weights.leave, self._left)
            return ended
        return []

    def _wake(self, done: Future[None]) -> list[Delta]:
        if self.stats.state == "awake":
            done.set_result(None)
        else:
            self._coming.append(done)
            self.rouse()
        return []

    def _left(self, _: object, error: Exception | None, seconds: float) -> list[Delta]:
        going, self._going = self._going, []
        wanted, self._wanted = self._wanted, False
        self._set("asleep")
        if error is None:
            self.stats = replace(self.stats, sleeps=self.stats.sleeps + 1)
            logger.info("the model %s fell asleep in %.2f s", self._name, seconds)
        else:
            logger.warning("the model %s stays awake: %s", self._name, error)
        for done in going:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        if wanted or error is not None:
            self.rouse()
        return []

    def _build(self) -> Runner:
        try:
            return self._assemble(self._weights.back())
        except BaseException:
            self._weights.leave()
            raise

    def _came(self, runner: Runner | None, error: Exception | None, seconds: float) -> list[Delta]:
        coming, self._coming = self._coming, []
        if runner is None:
            self._set("asleep")
            logger.error("the model %s cannot be woken", self._name, exc_info=error)
            for done in coming:
                done.set_exception(WakeFailed(self._name, str(error)))
            return self._lane.fail_all(f"the model is asleep and cannot be woken: {error}", "asleep")
        self._lane.resume(runner)
        stats = self.stats
        self.stats = SleepStats("awake", stats.sleeps, stats.wakes + 1, stats.wake_seconds + seconds, seconds)
        logger.info("the model %s is awake after %.2f s", self._name, seconds)
        for done in coming:
            done.set_result(None)
        return []

    def _set(self, state: SleepState) -> None:
        self.stats = replace(self.stats, state=state)

    def _apart(self, work: Callable[[], T], then: Callable[[T | None, Exception | None, float], list[Delta]]) -> None:
        """Work in a thread of its own, whose workers end with it; `then` is told on the step thread."""

        def run() -> None:
            started = self._clock()
            found: T | None = None
            failure: Exception | None = None
            try:
                with self._device():
                    found = work()
            except Exception as error:
                failure = error.with_traceback(None)  # it would keep what was built until then
            self._call(partial(then, found, failure, self._clock() - started))

        try:
            threading.Thread(target=run, name=f"sleep {self._name}", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads, and the step thread must live
            self._call(partial(then, None, error, 0.0))
