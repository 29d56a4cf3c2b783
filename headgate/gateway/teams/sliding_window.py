"""How much passed in the last minute, so exactly that no minute ever sees more than is allowed.

A bucket of L that fills by L a minute lets up to 2 L pass in the minute after a pause. So what passed is remembered for
a full minute instead, in slots: all of a slot counts until the last of it is a minute old. Whatever the traffic, there
are at most `SPAN_S / GRAIN_S` slots, and nothing counts longer than a minute and `GRAIN_S`.
"""

from __future__ import annotations

from collections import deque

SPAN_S = 60.0
GRAIN_S = 0.05


class Window:
    """Amounts of the last `SPAN_S` seconds. Times are seconds on a scale that never goes back."""

    __slots__ = ("_slots", "_sum")

    def __init__(self) -> None:
        self._slots: deque[list[float | int]] = deque()  # first time, last time, amount
        self._sum = 0

    def add(self, now: float, amount: int) -> None:
        """Count an amount, of 0 or more."""
        if not amount:
            return
        slots = self._slots
        if slots and now - slots[-1][0] < GRAIN_S:
            slots[-1][1] = now
            slots[-1][2] += amount
        else:
            slots.append([now, now, amount])
        self._sum += amount

    def used(self, now: float) -> int:
        """What counts at this moment."""
        slots = self._slots
        while slots and slots[0][1] + SPAN_S <= now:
            self._sum -= int(slots.popleft()[2])
        return self._sum

    def frees(self, now: float, amount: int) -> float | None:
        """Seconds until so much less counts, if nothing is added; None where less than that counts."""
        self.used(now)
        if amount <= 0:
            return 0.0
        for _, last, counted in self._slots:
            amount -= int(counted)
            if amount <= 0:
                return max(0.0, last + SPAN_S - now)
        return None

    def clears(self, now: float) -> float:
        """Seconds until nothing counts, if nothing is added."""
        self.used(now)
        return self._slots[-1][1] + SPAN_S - now if self._slots else 0.0
