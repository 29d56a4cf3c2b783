"""Whether the models of this process still compute: `/ready` says so where one does not.

A device may refuse all work for good, as a GPU after an illegal access. What fails of requests tells that a model is to
be looked at, and may be the requests' own fault; so a step is taken that nobody asked for, and its fate decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.local.destination import LocalDestination
from headgate.routing.breaker import Breaker, BreakerLimits

logger = logging.getLogger("headgate.gateway")

_TRIALS = BreakerLimits(failures=1, open_s=5.0, longest_s=60.0)
"""How long it is waited between steps that fail."""


class Computing:
    """Of all local models."""

    def __init__(
        self,
        models: Callable[[], Mapping[str, LocalDestination]],
        breakers: Mapping[str, Breaker],
        lifecycle: Lifecycle,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`models` that there are; `breakers` that requests open, by model; `clock`: monotonic seconds."""
        self._models = models
        self._breakers = breakers
        self._lifecycle = lifecycle
        self._clock = clock
        self._trials: dict[str, Breaker] = {}

    async def look(self) -> None:
        """Try the models whose requests fail, and those that failed before; note what came of it."""
        for name, model in self._models().items():
            trial = self._trials.setdefault(name, Breaker(_TRIALS, self._clock))
            breaker = self._breakers[name]
            if breaker.state == "closed":
                self._cleared(name, "computes again")  # a request was answered meanwhile
            elif not model.sleep.awake:
                # Where requests went elsewhere for what is said here, none would come to wake it.
                self._cleared(name, "sleeps, and is tried once it is awake")
            elif trial.allows and (breaker.state == "open" or trial.state != "closed"):
                trial.begin()
                wrong = await model.try_step()
                if wrong:
                    self._fails(name, wrong)
                else:
                    self._cleared(name, "computes again")

    def _fails(self, name: str, wrong: str) -> None:
        if self._trials[name].state == "closed":
            logger.error("the model %s computes nothing any more, and /ready says so: %s", name, wrong)
        self._trials[name].failed()
        self._lifecycle.set(part_of(name), "failed", wrong)

    def _cleared(self, name: str, why: str) -> None:
        if self._trials[name].state != "closed":
            logger.info("the model %s %s", name, why)
            self._trials[name].succeeded()
            self._lifecycle.set(part_of(name), "ready")


def part_of(model: str) -> str:
    """What a local model is called among the parts of the server."""
    return f"model {model}"
