"""Circuit breaker: whether a destination that failed is asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["closed", "open", "half_open"]
"""Asked; not asked; asked by one request, whose fate decides."""


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When a destination is left alone, and for how long."""

    failures: int = 3
    """In a row."""
    open_s: float = 5.0
    """The first time; twice as long each time that the trial fails too."""
    longest_s: float = 60.0

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"failures must be at least 1, got {self.failures}")
        if not 0 < self.open_s <= self.longest_s:
            raise ValueError(f"open_s must be positive and at most longest_s ({self.longest_s}), got {self.open_s}")


class Breaker:
    """Of one destination. Call `begin` for each request that is sent there, then one of the three that end it."""

    def __init__(self, limits: BreakerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._failures = 0
        self._openings = 0
        self._until = 0.0
        self._trial = False

    @property
    def state(self) -> State:
        """As of now."""
        if not self._openings:
            return "closed"
        return "open" if self._clock() < self._until else "half_open"

    @property
    def allows(self) -> bool:
        """Whether a request may be sent now. Half open, that is one at a time."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._trial)

    @property
    def pause_s(self) -> float:
        """Seconds until a request may try it; 0 where one may now."""
        return 0.0 if self.allows else max(0.0, self._until - self._clock())

    def begin(self) -> None:
        """A request is sent. Who insists may send it whatever `allows` says."""
        if self.state == "half_open":
            self._trial = True

    def succeeded(self) -> None:
        """A request was answered: whatever was before, the destination works."""
        self._failures = self._openings = 0
        self._trial = False

    def failed(self) -> None:
        """A request failed there, for a reason that is the destination's."""
        state = self.state
        self._failures += 1
        if state == "half_open" or (state == "closed" and self._failures >= self._limits.failures):
            pause_s = min(self._limits.open_s * 2.0 ** min(self._openings, 30), self._limits.longest_s)
            self._openings += 1
            self._until = self._clock() + pause_s
            self._trial = False

    def left(self) -> None:
        """A request ended without telling anything: who asked went away, or asked what cannot be answered."""
        self._trial = False
