"""A bound on how much of a tenant's cache one key can fill."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

SLICES = 12
FREE_INSERTS = 100
"""So many entries per window everybody may make, whatever the others do."""


class InsertShare:
    """Counts the entries each principal makes, by scope, over a sliding window.

    Who has made `FREE_INSERTS` in the window and more than `share` of all that the scope has made in it makes no more
    until the others have caught up or the window has moved on. Who is alone in a scope is not held back: there is
    nobody to crowd out, and nobody to be served what was planted.

    With `most`, nobody makes more than so many in the window, alone or not: where teams share the memory, whoever fills
    it makes others' entries leave.

    The window moves in twelfths. Counts of scopes in which nothing was made for a window are dropped.
    """

    def __init__(self, share: float, window_s: float, clock: Callable[[], float], most: int | None = None) -> None:
        """No entries made yet.

        Args:
            share: of a scope's new entries that one principal may make, from 0.5, so that two who make as many do not
                hold each other back for ever, to 1, which sets no bound.
            window_s: seconds over which they are counted.
            clock: seconds on any scale that rarely goes back. Where it does, what was counted later than now is
                forgotten: it would stay until the clock is there again.
            most: entries that one principal may make in the window; None sets no bound.

        Raises:
            ValueError: an argument is out of range.
        """
        if not 0.5 <= share <= 1.0:
            raise ValueError(f"share is {share}; 0.5 to 1 is accepted")
        if not window_s > 0.0:
            raise ValueError(f"window_s is {window_s}; more than 0 is accepted")
        if most is not None and most < 1:
            raise ValueError(f"most is {most}; 1 or more, or None, is accepted")
        self._share = share
        self._most = most
        self._slice_s = window_s / SLICES
        self._clock = clock
        self._scopes: dict[str, deque[tuple[int, Counter[str]]]] = {}
        self._swept = 0

    def __len__(self) -> int:
        """Scopes with counts."""
        return len(self._scopes)

    def admit(self, scope: str, principal: str) -> bool:
        """Whether a principal may make one more entry in a scope; if so it is counted."""
        now = int(self._clock() // self._slice_s)
        self._sweep(now)
        slices = self._scopes.setdefault(scope, deque())
        _forget_outside(slices, now)
        own = sum(counts[principal] for _, counts in slices)
        total = sum(counts.total() for _, counts in slices)
        if self._most is not None and own >= self._most:
            return False
        if own >= FREE_INSERTS and self._share * total < own < total:
            return False
        if not slices or slices[-1][0] != now:
            slices.append((now, Counter()))
        slices[-1][1][principal] += 1
        return True

    def _sweep(self, now: int) -> None:
        if now == self._swept:
            return
        self._swept = now
        for scope, slices in list(self._scopes.items()):
            _forget_outside(slices, now)
            if not slices:
                del self._scopes[scope]


def _forget_outside(slices: deque[tuple[int, Counter[str]]], now: int) -> None:
    """Drop those that are not of the window that ends now."""
    while slices and slices[0][0] <= now - SLICES:
        slices.popleft()
    while slices and slices[-1][0] > now:
        slices.pop()
