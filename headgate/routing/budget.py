"""Escalation budgets: which share of the requests of a window may be answered by the large tier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

    def count(self, *, large: bool) -> int:
        """One request is routed: in which slice it is counted, for `uncount`."""
        at = int(self._clock() / self._slice_s)
        self._add(at, large, 1)
        return at

    def uncount(self, at: int, *, large: bool) -> None:
        """Take back what was counted in a slice."""
        if at in self._slices:
            self._add(at, -large, -1)

    def _add(self, at: int, large: int, total: int) -> None:
        went, before = self._slices.get(at, (0, 0))
        self._slices[at] = went + large, before + total


class Claim:
    """How one request counts in budgets: from its plan on, or those planned at the same time would exceed them."""

    def __init__(self, budgets: Sequence[EscalationBudget], *, large: bool) -> None:
        """`large`: whether the large tier is to answer it."""
        self._budgets = budgets
        self._large = large
        self._at = [budget.count(large=large) for budget in budgets]

    def escalates(self) -> bool:
        """Whether the large tier may answer it now, after all. Where it may, it counts as that."""
        if not self._large:
            self.drop()
            self._count(large=all(budget.allows for budget in self._budgets))
        return self._large

    def settle(self, *, large: bool) -> None:
        """It is known who answers it."""
        if large != self._large:
            self.drop()
            self._count(large=large)

    def drop(self) -> None:
        """Nobody answers it."""
        for budget, at in zip(self._budgets, self._at, strict=False):
            budget.uncount(at, large=self._large)
        self._at = []

    def _count(self, *, large: bool) -> None:
        self._large = large
        self._at = [budget.count(large=large) for budget in self._budgets]
