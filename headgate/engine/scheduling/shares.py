"""Fair shares: which tenant is furthest behind.

Tenants are served in order of virtual time: tokens scheduled so far divided by the tenant's weight (Sheng et al. 2024,
"Fairness in serving large language models"). Only those that wait can be behind. A tenant of whom nothing waited, be it
idle or decoding, starts at the least virtual time of those that wait; where nobody does, at the greatest there is, for
nobody lacks anything then. So whoever got all he wanted earns no credit by that, however little it was, and having
worked alone costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headgate.engine.request import Request

_FEW = 64
"""Tenants whose times are kept without a look at them."""


class Shares:
    """Virtual times by tenant."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._greatest = 0.0
        self._most = _FEW  # until they are looked through; from then on when they have doubled

    def time(self, tenant: str) -> float:
        """Of a tenant who has joined: the one with the least is the next."""
        return self._times[tenant]

    def charge(self, request: Request, tokens: int) -> None:
        """A request's tenant, who has joined, gets so many tokens."""
        time = self._times[request.tenant] + tokens / request.weight
        self._times[request.tenant] = time
        self._greatest = max(self._greatest, time)

    def join(self, tenant: str, waiting: Collection[str], running: Iterable[str]) -> None:
        """Something of a tenant is to wait, and nothing did. `waiting`, `running`: tenants of whom something does."""
        times = self._times
        floor = min(times[t] for t in waiting) if waiting else self._greatest
        times[tenant] = max(times.get(tenant, 0.0), floor)
        if len(times) > self._most:
            # Idle tenants' times are dropped: they would start at the floor anyway unless they are ahead of it.
            kept = {tenant, *waiting, *running}
            self._times = {t: time for t, time in times.items() if t in kept or time > floor}
            self._most = 2 * len(self._times) + _FEW
