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
from typing import Literal, NamedTuple, Protocol, get_args
from zoneinfo import ZoneInfo

import msgspec

from headgate.gateway.teams.costs import MICRO, NANO, NOTHING, Cost
from headgate.gateway.teams.sections import BudgetsSection

logger = logging.getLogger("headgate.gateway")

Bound = Literal["daily_usd", "monthly_usd", "daily_device_s", "monthly_device_s"]
_BOUNDS: tuple[Bound, ...] = get_args(Bound)


class Share(msgspec.Struct, frozen=True):
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


class Standing(NamedTuple):
    """How all budgets of a team stand."""

    exhausted: bool
    """Whether nothing is left of one of them."""
    warning: str
    """Those of which more is spent than the soft share, for a header."""


_CALM = Standing(exhausted=False, warning="")


@dataclass(frozen=True, slots=True)
class Over:
    """Why nothing was set aside."""

    share: Share
    asked: float
    for_good: bool
    """Whether it would not fit either if nothing else were set aside: until the period ends."""
    away: bool = False
    """Whether nobody can say what other gateways have spent by now."""


class Hold(msgspec.Struct, frozen=True):
    """What is set aside for a team, against the day on which it was."""

    team: str
    day: str
    cost: Cost


@dataclass(slots=True)
class Sums:
    """What was spent in a day or a month, and what is set aside."""

    spent: Cost = NOTHING
    reserved: Cost = NOTHING


@dataclass(frozen=True, slots=True)
class _Budget:
    """One of a team's, in the period that is now."""

    bound: Bound
    limit: float
    period: str
    own: Sums
    """What this process has of the period."""
    calm_below: float
    """Billionths of a dollar or microseconds, spent and set aside together, from which on something is said of it."""


@dataclass(frozen=True, slots=True)
class _Present:
    """A team's budgets in one minute: what of them does not change with what is spent."""

    section: BudgetsSection
    minute: int
    day: str
    sums: tuple[Sums, Sums]
    """Of the day and the month."""
    budgets: tuple[_Budget, ...]

    def calm(self, more: Cost) -> bool:
        """Whether, with so much more set aside, nothing is to be said of any of them. Nearly always that is all there
        is to know, and it takes far less than to work out how they stand."""
        for budget in self.budgets:
            spent, reserved = budget.own.spent, budget.own.reserved
            if budget.bound.endswith("usd"):
                taken = spent.nano_usd + reserved.nano_usd + more.nano_usd
            else:
                taken = spent.device_us + reserved.device_us + more.device_us
            if taken >= budget.calm_below:
                return False
        return True


Admitted = Literal["taken", "over", "away"]
"""Whether a hold is within the budgets: it is, it is not, or this gateway's part is taken and nobody knows the rest."""


class Pool(Protocol):
    """What other gateways count of the same budgets."""

    def others(self, team: str, period: str) -> Sums:
        """What they have, as far as it is known."""
        ...

    async def admit(self, hold: Hold, section: BudgetsSection) -> Admitted:
        """Whether a hold that is among this gateway's sums is within the budgets of all."""
        ...

    def changed(self, team: str, day: str) -> None:
        """This gateway's sums of a day have changed."""
        ...


class Budgets:
    """The sums of every team. Calls come from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since the epoch; it may be set forward and back."""
        self._clock = clock
        self._sums: dict[tuple[str, str], Sums] = {}
        self._warned: set[tuple[str, str, Bound]] = set()
        self._pool: Pool | None = None
        self._present: dict[str, _Present] = {}

    def load(self, sums: Iterable[tuple[str, str, Cost]]) -> None:
        """Go on from what teams have spent on days, as a ledger has it."""
        for team, day, cost in sums:
            for period in periods(day):
                self.own(team, period).spent += cost

    def share(self, pool: Pool) -> None:
        """From now on budgets are those of several gateways together."""
        self._pool = pool

    def day(self, section: BudgetsSection) -> str:
        """Today's date for a team, such as 2026-11-22."""
        return _day(int(self._clock()) // 60, section.timezone)

    def own(self, team: str, period: str) -> Sums:
        """What this process has of a team's day or month, such as 2026-11-22 or 2026-11."""
        found = self._sums.get((team, period))
        if found is None:
            found = self._sums[team, period] = Sums()
        return found

    def shares(self, team: str, section: BudgetsSection) -> list[Share]:
        """How a team's budgets stand."""
        found = []
        for budget in self._of(team, section).budgets:
            bound, total = budget.bound, self._total(team, budget)
            spent, reserved = _amount(bound, total.spent), _amount(bound, total.reserved)
            found.append(Share(bound, budget.limit, spent, reserved, _renewed(budget.period)))
        return found

    async def take(self, team: str, section: BudgetsSection, cost: Cost) -> Hold | Over:
        """Set aside what may be spent, or say which budget it does not fit.

        Budgets that do not block let what they still have be exceeded, once.
        """
        if self._pool is None or not bounds(section):
            return self.reserve(team, section, cost)
        # Set aside before others are asked: whoever comes meanwhile counts it.
        hold = self._hold(team, section, cost)
        try:
            admitted = await self._pool.admit(hold, section)
        except BaseException:
            self.settle(hold, NOTHING)
            raise
        if admitted == "taken":
            return hold
        self.settle(hold, NOTHING)
        found = self._over(team, section, cost)
        if found is None or admitted == "away":
            share = self.shares(team, section)[0] if found is None else found.share
            return Over(share, _amount(share.bound, cost), for_good=False, away=admitted == "away")
        return found

    def reserve(self, team: str, section: BudgetsSection, cost: Cost) -> Hold | Over:
        """The same by what this process knows."""
        return self._over(team, section, cost) or self._hold(team, section, cost)

    def over(self, team: str, section: BudgetsSection) -> Over | None:
        """The budget of which nothing is left, where that blocks, by what this process knows."""
        return self._over(team, section, NOTHING)

    def settle(self, hold: Hold, cost: Cost) -> None:
        """What was set aside has cost this."""
        for period in periods(hold.day):
            total = self.own(hold.team, period)
            total.reserved -= hold.cost
            total.spent += cost
        if self._pool is not None:
            self._pool.changed(hold.team, hold.day)

    def standing(self, team: str, section: BudgetsSection) -> Standing:
        """How a team's budgets stand on the whole; the log is told once of each that is nearly spent."""
        if self._pool is None and self._of(team, section).calm(NOTHING):
            return _CALM
        shares = self.shares(team, section)
        return Standing(any(share.exhausted for share in shares), self._warning(team, section, shares))

    def _warning(self, team: str, section: BudgetsSection, shares: Iterable[Share]) -> str:
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

    def days(self) -> set[tuple[str, str]]:
        """Every team and day of which something is known."""
        return {(team, period) for team, period in self._sums if len(period) == len("2026-11-22")}

    def _hold(self, team: str, section: BudgetsSection, cost: Cost) -> Hold:
        present = self._of(team, section)
        for total in present.sums:
            total.reserved += cost
        return Hold(team, present.day, cost)

    def _over(self, team: str, section: BudgetsSection, cost: Cost) -> Over | None:
        if section.on_exceed != "block" or (self._pool is None and self._of(team, section).calm(cost)):
            return None
        for share in self.shares(team, section):
            asked = _amount(share.bound, cost)
            if share.spent + share.reserved + asked > share.limit:
                return Over(share, asked, share.spent + asked > share.limit)
            if share.exhausted:
                # A budget of which nothing is left takes nothing, not even what costs nothing.
                return Over(share, asked, share.spent >= share.limit)
        return None

    def _of(self, team: str, section: BudgetsSection) -> _Present:
        """A team's budgets now."""
        minute, present = int(self._clock()) // 60, self._present.get(team)
        if present is None or present.minute != minute or present.section is not section:
            present = self._present[team] = self._made(team, section, minute)
        return present

    def _made(self, team: str, section: BudgetsSection, minute: int) -> _Present:
        # Days begin on a minute, wherever on earth.
        day = _day(minute, section.timezone)
        of_day, of_month = sums = self.own(team, day), self.own(team, day[:7])
        budgets = []
        for bound, limit in bounds(section):
            daily = bound.startswith("daily")
            unit = NANO if bound.endswith("usd") else MICRO
            calm_below = limit * unit * section.soft_percent / 100
            budgets.append(_Budget(bound, limit, day if daily else day[:7], of_day if daily else of_month, calm_below))
        return _Present(section, minute, day, sums, tuple(budgets))

    def _total(self, team: str, budget: _Budget) -> Sums:
        own = budget.own
        if self._pool is None:
            return own
        others = self._pool.others(team, budget.period)
        return Sums(own.spent + others.spent, own.reserved + others.reserved)


def periods(day: str) -> tuple[str, str]:
    """The day, such as 2026-11-22, and its month."""
    return day, day[:7]


def bounds(section: BudgetsSection) -> list[tuple[Bound, float]]:
    """What is bounded, in dollars or seconds."""
    return [(bound, limit) for bound in _BOUNDS if (limit := getattr(section, bound)) is not None]


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
