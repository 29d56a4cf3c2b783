"""Whether to ask an upstream again, and when: decisions over plain values."""

from __future__ import annotations

from collections.abc import Callable

from headgate.gateway.upstream.failures import Failure
from headgate.gateway.upstream.sections import UpstreamHedgeSection, UpstreamRetriesSection, quantile_of

_JITTER = 0.25


class Retrying:
    """The attempts at one request."""

    def __init__(
        self, rule: UpstreamRetriesSection, clock: Callable[[], float], draw: Callable[[], float], *, total_s: float
    ) -> None:
        """The first attempt begins now.

        Args:
            rule: how often and how long.
            clock: monotonic seconds.
            draw: gives numbers from 0 to below 1, so that clients that failed together do not come again together.
            total_s: what the whole request may take.
        """
        self._rule = rule
        self._clock = clock
        self._draw = draw
        self._until = clock() + min(rule.within_s, total_s)
        self.retries = 0

    def wait_s(self, failure: Failure) -> float | None:
        """Seconds until the next attempt; None where there is to be none. A hint of the upstream is kept exactly."""
        if not failure.retriable or self.retries >= self._rule.most:
            return None
        own = min(self._rule.first_wait_s * 2.0**self.retries, self._rule.longest_wait_s)
        wait_s = own * (1 - _JITTER * self._draw()) if failure.after_s is None else failure.after_s
        if self._clock() + wait_s > self._until:
            return None
        self.retries += 1
        return wait_s


class HedgeShare:
    """Bounds how many requests get a second attempt: so many of the last, and never more than a few at once."""

    _MOST = 5.0

    def __init__(self, share: float) -> None:
        """`share`: of requests, above 0 and at most 1."""
        self._share = share
        self._left = 1.0

    def asked(self) -> None:
        """A request was sent."""
        self._left = min(self._MOST, self._left + self._share)

    def take(self) -> bool:
        """Whether a second attempt may be made now; it is counted."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def hedge_s(rule: UpstreamHedgeSection, quantile: Callable[[float], float | None]) -> float | None:
    """Seconds after which a second attempt is made; None: never.

    `quantile` gives the upstream's own first-token time at a share, None where not enough is known yet.
    """
    if rule.after == "off":
        return None
    if isinstance(rule.after, str):
        share = quantile_of(rule.after)
        return None if share is None else quantile(share)
    return rule.after
