"""Escalation budgets: which share of the requests of a window may be answered by the large tier."""

from __future__ import annotations

from collections.abc import Callable

_SLICES = 12


class EscalationBudget:
    """Counts one team's or key's routed requests over a sliding window of `_SLICES` slices."""

    def __init__(self, share: float, window_s: float, clock: Callable[[], float], *, free: int = 10) -> None:
        """A budget.

        Args:
            share: of the window's requests that may go large, 0 to 1.
            window_s: its length in seconds.
            clock: seconds.
            free: requests of a window that may go large whatever the share, if that is not 0: without them the first
                request of a morning could not.
        """
        if not 0 <= share <= 1 or window_s <= 0 or free < 0:
            raise ValueError(
                f"share must be in [0, 1], window_s positive, free at least 0: {share}, {window_s}, {free}"
            )
        self._share = share
        self._slice_s = window_s / _SLICES
        self._clock = clock
        self._free = free if share > 0 else 0
        self._slices: dict[int, tuple[int, int]] = {}

    @property
    def spent(self) -> tuple[int, int]:
        """Requests of the window that went large, and all of them."""
        now = int(self._clock() / self._slice_s)
        self._slices = {at: counts for at, counts in self._slices.items() if at > now - _SLICES}
        return sum(c[0] for c in self._slices.values()), sum(c[1] for c in self._slices.values())

    @property
    def allows(self) -> bool:
        """Whether the next request may go large."""
        if self._share >= 1:
            return True
        large, total = self.spent
        return large < self._free or large + 1 <= self._share * (total + 1)

    def count(self, *, large: bool) -> None:
        """One request was routed."""
        at = int(self._clock() / self._slice_s)
        went, total = self._slices.get(at, (0, 0))
        self._slices[at] = went + large, total + 1
