"""How an upstream stands: whether it is well, and how attempts at it ended so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Standing:
    """Of one upstream. Counts are since the start."""

    def __init__(self, failures: int = 2) -> None:
        """`failures`: checks in a row that must fail for it to be taken for ill."""
        self._most = failures
        self._in_a_row = 0
        self._ends: Counter[str] = Counter()
        self.retries = 0
        self.hedges = 0
        self.hedges_won = 0
        """Second attempts that began before the first."""

    @property
    def well(self) -> bool:
        """Whether checks say nothing else."""
        return self._in_a_row < self._most

    @property
    def ends(self) -> Mapping[str, int]:
        """Attempts by how they ended: `answered`, or the kind of their `Failure`."""
        return self._ends

    def checked(self, *, well: bool) -> bool:
        """A check said so; whether that changes how it stands."""
        before = self.well
        self._in_a_row = 0 if well else self._in_a_row + 1
        return before != self.well

    def answered(self) -> None:
        """An attempt gave a whole answer. Who is about to stop still gives some: only checks say that it is well."""
        self._ends["answered"] += 1

    def failed(self, kind: str) -> None:
        """An attempt failed."""
        self._ends[kind] += 1

    def retried(self) -> None:
        """Another attempt follows a failed one."""
        self.retries += 1

    def hedged(self, *, won: bool) -> None:
        """A second attempt was made beside a slow first one."""
        self.hedges += 1
        self.hedges_won += won
