"""Budgets by day and month: set aside before, settled after, in the team's time zone, whatever the clock does."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.teams.budgets import Budgets, Hold, Over
from headgate.gateway.teams.costs import NANO, Cost, Prices
from headgate.gateway.teams.sections import BudgetsSection

DOLLAR = Cost(NANO)


class Clock:
    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self.now = datetime.fromisoformat(text).timestamp()

    def __call__(self) -> float:
        return self.now


def section(**fields: Any) -> BudgetsSection:
    return BudgetsSection.model_validate(fields)


def held(budgets: Budgets, limits: BudgetsSection, cost: Cost = DOLLAR) -> Hold:
    hold = budgets.reserve("red", limits, cost)
    assert isinstance(hold, Hold)
    return hold


def spent(budgets: Budgets, limits: BudgetsSection) -> list[float]:
    return [share.spent for share in budgets.shares("red", limits)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60), st.integers(1, 100))
def test_what_is_spent_and_set_aside_never_passes_the_budget(steps: list[tuple[int, int]], limit: int) -> None:
    limits, budgets = section(daily_usd=limit), Budgets(Clock("2026-11-22T12:00+00:00"))
    holds: list[Hold] = []
    total = 0
    for most, end in steps:
        if end < len(holds):
            hold = holds.pop(end)
            cost = min(hold.cost.nano_usd, most * NANO)
            budgets.settle(hold, Cost(cost))
            total += cost
        else:
            found = budgets.reserve("red", limits, Cost(most * NANO))
            fits = total + sum(h.cost.nano_usd for h in holds) + most * NANO
            if isinstance(found, Hold):
                assert fits <= limit * NANO
                holds.append(found)
            else:
                assert fits > limit * NANO or fits - most * NANO == limit * NANO
                assert found.for_good == (total + most * NANO > limit * NANO or total == limit * NANO)
    assert spent(budgets, limits) == [total / NANO]


def test_a_day_and_a_month_begin_where_the_team_lives() -> None:
    clock = Clock("2026-11-30T22:30+00:00")
    budgets, limits = Budgets(clock), section(daily_usd=1, monthly_usd=5, timezone="Europe/Berlin")
    budgets.settle(held(budgets, limits), DOLLAR)
    assert isinstance(budgets.reserve("red", limits, DOLLAR), Over)
    clock.now += 3600  # half past midnight in Berlin, still November in UTC
    assert spent(budgets, limits) == [0, 0]
    assert budgets.day(limits) == "2026-12-01"
    assert datetime.fromtimestamp(clock.now, ZoneInfo("UTC")).month == 11


def test_what_began_before_midnight_is_charged_to_the_day_on_which_it_began() -> None:
    clock = Clock("2026-11-22T23:59+00:00")
    budgets, limits = Budgets(clock), section(daily_usd=3)
    hold = held(budgets, limits)
    clock.set("2026-11-23T00:01+00:00")
    budgets.settle(hold, DOLLAR)
    assert spent(budgets, limits) == [0]
    clock.set("2026-11-22T23:00+00:00")
    assert spent(budgets, limits) == [1]


def test_a_clock_that_jumps_opens_no_day_twice() -> None:
    clock = Clock("2026-11-23T00:10+00:00")
    budgets, limits = Budgets(clock), section(daily_usd=1)
    clock.set("2026-11-22T23:50+00:00")
    budgets.settle(held(budgets, limits), DOLLAR)
    for _ in range(3):
        clock.set("2026-11-23T00:10+00:00")
        assert spent(budgets, limits) == [0]
        clock.set("2026-11-22T23:55+00:00")
        over = budgets.reserve("red", limits, DOLLAR)
        assert isinstance(over, Over)
        assert (over.share.bound, over.share.renewed, over.for_good) == ("daily_usd", "2026-11-23", True)


def test_what_is_set_aside_for_others_may_come_back() -> None:
    budgets, limits = Budgets(Clock("2026-11-22T12:00+00:00")), section(daily_device_s=1.5)
    hold = held(budgets, limits, Cost(0, 1_000_000))
    over = budgets.reserve("red", limits, Cost(0, 1_000_000))
    assert isinstance(over, Over)
    assert not over.for_good
    budgets.settle(hold, Cost(0, 100_000))
    held(budgets, limits, Cost(0, 1_000_000))


def test_the_soft_share_warns_once_in_the_log_and_on_every_reply(caplog: pytest.LogCaptureFixture) -> None:
    budgets, limits = Budgets(Clock("2026-11-22T12:00+00:00")), section(daily_usd=4, soft_percent=50)
    assert budgets.standing("red", limits).warning == ""
    for text in ("", "daily_usd=50.0%", "daily_usd=75.0%"):
        budgets.settle(held(budgets, limits), DOLLAR)
        assert budgets.standing("red", limits).warning == text
    assert len(caplog.records) == 1
    assert "team red has spent 50.0 % of its daily_usd budget of 4" in caplog.text


def test_a_budget_that_does_not_block_is_exceeded_by_one_request_at_most_before_it_turns() -> None:
    budgets, limits = Budgets(Clock("2026-11-22T12:00+00:00")), section(daily_usd=1, on_exceed="downgrade")
    held(budgets, limits, Cost(NANO // 2))
    assert not budgets.shares("red", limits)[0].exhausted
    held(budgets, limits)
    assert budgets.shares("red", limits)[0].exhausted


def test_costs_are_whole_numbers_and_read_as_dollars() -> None:
    prices = Prices((), usd_per_device_hour=3.6)
    assert prices.of("any", 10, 10, 0.5) == Cost(500_000, 500_000)
    assert Cost(1_500_000_001).usd == "1.500000001"
    assert (Cost(0).usd, Cost(-10).usd, Cost(2 * NANO).usd) == ("0", "-0.00000001", "2")
