"""What teams have spent today and this month, what is set aside, and whether more may be.

A day's sum belongs to its date, a month's to its month, as the team's time zone has them when a request reserves. So a
clock that is set back goes on with the sum that the earlier date had, and one that is set forward opens a later date's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from headgate.gateway.teams.costs import MICRO, NANO, NOTHING, Cost
from headgate.gateway.teams.sections import BudgetsSection

logger = logging.getLogger("headgate.gateway")

Bound = Literal["daily_usd", "monthly_usd", "daily_device_s", "monthly_device_s"]


@dataclass(frozen=True, slots=True)
class Share:
    """How one budget stands, in its own unit."""

    bound: Bound
    limit: float
    spent: float
    """Settled."""
    reserved: float
    renewed: str
    """When its next period begins."""

    @property
    def used(self) -> float:
        """What is spent, as a share of the budget."""
        return self.spent / self.limit if self.limit else 1.0

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left."""
        return self.spent + self.reserved >= self.limit


@dataclass(frozen=True, slots=True)
class Over:
    """Why nothing was set aside."""

    share: Share
    asked: float
    for_good: bool
    """Whether it would not fit either if nothing else were set aside: until the period ends."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What is set aside for a team, against the day on which it was."""

    team: str
    day: str
    cost: Cost


class _Sum:
    __slots__ = ("reserved", "spent")

    def __init__(self) -> None:
        self.spent = NOTHING
        self.reserved = NOTHING


class Budgets:
    """The sums of every team. Calls come from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since the epoch; it may be set forward and back."""
        self._clock = clock
        self._sums: dict[tuple[str, str], _Sum] = {}
        self._warned: set[tuple[str, str, Bound]] = set()

    def load(self, sums: Iterable[tuple[str, str, Cost]]) -> None:
        """Go on from what teams have spent on days, as a ledger has it."""
        for team, day, cost in sums:
            for period in (day, day[:7]):
                self._sum(team, period).spent += cost

    def day(self, section: BudgetsSection) -> str:
        """Today's date for a team, such as 2026-11-22."""
        # Days begin on a minute, wherever on earth.
        return _day(int(self._clock()) // 60, section.timezone)

    def shares(self, team: str, section: BudgetsSection) -> list[Share]:
        """How a team's budgets stand."""
        bounds, found = _bounds(section), []
        if not bounds:
            return []
        day = self.day(section)
        for bound, limit in bounds:
            period = day if bound.startswith("daily") else day[:7]
            total = self._sum(team, period)
            found.append(
                Share(bound, limit, _amount(bound, total.spent), _amount(bound, total.reserved), _renewed(period))
            )
        return found

    def reserve(self, team: str, section: BudgetsSection, cost: Cost) -> Hold | Over:
        """Set aside what may be spent, or say which budget it does not fit.

        Budgets that do not block let what they still have be exceeded, once.
        """
        for share in self.shares(team, section):
            asked = _amount(share.bound, cost)
            if section.on_exceed == "block" and share.spent + share.reserved + asked > share.limit:
                # A budget of which nothing is left takes nothing, not even what costs nothing.
                return Over(share, asked, share.spent + asked > share.limit)
            if share.exhausted and section.on_exceed == "block":
                return Over(share, asked, share.spent >= share.limit)
        day = self.day(section)
        for period in (day, day[:7]):
            self._sum(team, period).reserved += cost
        return Hold(team, day, cost)

    def settle(self, hold: Hold, cost: Cost) -> None:
        """What was set aside has cost this."""
        for period in (hold.day, hold.day[:7]):
            total = self._sum(hold.team, period)
            total.reserved -= hold.cost
            total.spent += cost

    def warning(self, team: str, section: BudgetsSection) -> str:
        """The budgets of which more is spent than the soft share, for a header; the log is told once of each."""
        return self.warn(team, section, self.shares(team, section))

    def warn(self, team: str, section: BudgetsSection, shares: Iterable[Share]) -> str:
        """The same of shares that are known."""
        texts = []
        for share in shares:
            percent = 100 * share.used
            if percent < section.soft_percent:
                continue
            texts.append(f"{share.bound}={percent:.1f}%")
            key = (team, share.renewed, share.bound)
            if key not in self._warned:
                self._warned.add(key)
                logger.warning(
                    "team %s has spent %.1f %% of its %s budget of %g", team, percent, share.bound, share.limit
                )
        return ", ".join(texts)

    def teams(self) -> set[str]:
        """Everybody who has spent something."""
        return {team for team, _ in self._sums}

    def _sum(self, team: str, period: str) -> _Sum:
        found = self._sums.get((team, period))
        if found is None:
            found = self._sums[team, period] = _Sum()
        return found


def _bounds(section: BudgetsSection) -> list[tuple[Bound, float]]:
    return [(bound, limit) for bound in get_args(Bound) if (limit := getattr(section, bound)) is not None]


def _amount(bound: Bound, cost: Cost) -> float:
    return cost.nano_usd / NANO if bound.endswith("usd") else cost.device_us / MICRO


@lru_cache(maxsize=1024)
def _day(minute: int, timezone: str) -> str:
    return datetime.fromtimestamp(minute * 60, ZoneInfo(timezone)).strftime("%Y-%m-%d")


@lru_cache(maxsize=1024)
def _renewed(period: str) -> str:
    first = datetime.strptime(period, "%Y-%m-%d" if len(period) == 10 else "%Y-%m")
    following = first + timedelta(days=1) if len(period) == 10 else (first + timedelta(days=31)).replace(day=1)
    return following.strftime("%Y-%m-%d")
