"""Adapters that come and go while their model computes.

Files are read and factors are put into layers in a thread of the caller's, beside the steps of everybody else; the step
thread takes over what is ready between two steps. What it computed with until then is never changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from headgate.engine.errors import CheckpointError, EngineStopped
from headgate.engine.lane import Lane
from headgate.engine.lanes.sleeper import Sleeper
from headgate.engine.models.adapters.decoder import AdaptedDecoder, AdapterFacts, LoadedAdapter, Tuning
from headgate.engine.request import Delta
from headgate.engine.runner import Runner

logger = logging.getLogger(__name__)

T = TypeVar("T")
_LOOK_S = 1.0
"""How often who waits for the step thread looks whether it is still there."""


class Adapting:
    """Changes the adapters of one model. One change at a time; the others wait."""

    def __init__(
        self,
        name: str,
        lane: Lane,
        sleeper: Sleeper,
        *,
        call: Callable[[Callable[[], list[Delta]]], None],
        running: Callable[[], bool],
        device: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Of the model `name`; `call` is the step loop's, and `running` says whether it answers."""
        self._name = name
        self._lane = lane
        self._sleeper = sleeper
        self._call = call
        self._running = running
        self._device = device
        self._changing = threading.Lock()
        lane.adapters.left = self._tidy_apart

    def add(self, name: str, folder: Path) -> AdapterFacts:
        """Take requests for the adapter in `folder` by a name, which may be another's until then.

        Raises:
            CheckpointError: it, or any of this model, cannot be rows' of a batch.
            WakeFailed: the model was asleep, and stays so.
            EngineStopped: nobody computes.
        """
        with self._changing, self._device():
            runner, decoder = self._begin()
            try:
                adapter, taken = decoder.read(name, folder), False
                while not taken:
                    kept = self._needed(decoder)
                    number = next(n for n in range(1, len(kept) + 2) if n not in kept)
                    tuning = decoder.tuned_by({**kept, number: adapter})
                    taken = self._ask(partial(self._take, runner, tuning, (name, adapter.facts.revision, number)))
            finally:
                self._ask(self._lane.unhold)
        if self._lane.adapters.leaving:
            self._tidy_apart()
        return adapter.facts

    def remove(self, name: str) -> None:
        """Take no more requests for an adapter. Those that run, or were on their way, end as they would have.

        EngineStopped where nobody computes.
        """
        self._ask(partial(self._lane.adapters.drop, name))
        self._tidy_apart()

    def _begin(self) -> tuple[Runner, AdaptedDecoder]:
        """What computes, which does not sleep from now on; it is woken first where it does."""
        while (runner := self._ask(self._lane.hold)) is None:
            self._wait(self._sleeper.wake())
        decoder = runner.adapted
        if decoder is None:
            self._ask(self._lane.unhold)
            raise CheckpointError(
                f"the model '{self._name}' takes no adapters for rows: it has one in its weights, or is computed by "
                "transformers' own layers"
            )
        return runner, decoder

    def _needed(self, decoder: AdaptedDecoder) -> dict[int, LoadedAdapter]:
        needed = self._ask(lambda: self._lane.adapters_needed)
        return {number: adapter for number, adapter in decoder.loaded.items() if number in needed}

    def _take(self, runner: Runner, tuning: Tuning | None, new: tuple[str, str, int] | None = None) -> bool:
        """On the step thread: compute with other adapters. False, and nothing changes, where somebody came meanwhile
        for one that is not among them, as for one that had the number of a `new` one.
        """
        numbers = set() if tuning is None else set(tuning.adapters)
        if new is not None:
            numbers.discard(new[2])
        if not self._lane.adapters_needed <= numbers:
            return False
        runner.tune(tuning)
        self._lane.adapters.forget(numbers)
        if new is not None:
            self._lane.adapters.put(*new)
        return True

    def _tidy_apart(self) -> None:
        """Let go of what nobody computes with any more, in a thread of its own, whose workers end with it."""
        try:
            threading.Thread(target=self._tidy, name=f"adapters of {self._name}", daemon=True).start()
        except RuntimeError:  # the system gives no more threads: the next change sees to it
            logger.warning("the memory of adapters of %s that are gone is not given back yet", self._name)

    def _tidy(self) -> None:
        """A model that sleeps is not woken for it: the next change sees to it."""
        try:
            with self._changing, self._device():
                if (runner := self._ask(self._lane.hold)) is None:
                    return
                try:
                    decoder = runner.adapted
                    if decoder is not None and len(kept := self._needed(decoder)) < len(decoder.loaded):
                        self._ask(partial(self._take, runner, decoder.tuned_by(kept)))
                finally:
                    self._ask(self._lane.unhold)
        except EngineStopped:
            pass
        except Exception:  # as where there is no memory for it: what computes stays as it is
            logger.exception("the memory of adapters of %s that are gone is not given back", self._name)

    def _ask(self, what: Callable[[], T]) -> T:
        """Have the step thread do it, and wait."""
        done: Future[T] = Future()

        def command() -> list[Delta]:
            try:
                done.set_result(what())
            except Exception as error:
                done.set_exception(error)
            return []

        self._call(command)
        return self._wait(done)

    def _wait(self, done: Future[T]) -> T:
        """For what the step thread tells. EngineStopped where it tells nothing any more."""
        while self._running():
            with suppress(TimeoutError):
                return done.result(_LOOK_S)
        raise EngineStopped("the engine computes nothing: it is stopping or was not started")
