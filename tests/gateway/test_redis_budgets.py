"""Budgets that gateways spend together in a real Redis: exact whatever ends, and within a part while it is away."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis_process import RedisProcess, Time, running_redis

from headgate.cache.store.redis import RedisStore
from headgate.cache.store.redis_calls import PAUSE_S
from headgate.gateway.teams.budgets import Budgets, Hold, Over
from headgate.gateway.teams.costs import NANO, NOTHING, Cost
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.redis_budgets import RedisBudgets
from headgate.gateway.teams.sections import BudgetsSection

NOON = 1795348800.0  # 2026-11-22
DOLLAR = Cost(NANO, 1000)
TEN = BudgetsSection(daily_usd=10, monthly_usd=1000)

BUDGET_USD = 0.016
WORKER = """
import asyncio, random, sys, time
from pathlib import Path
from headgate.cache.store.redis import RedisStore
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.road.request import Usage
from headgate.gateway.settings import Settings
from headgate.gateway.teams.accounts import Accounts, Payer
from headgate.gateway.teams.budgets import Over
from headgate.gateway.teams.costs import Prices
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.ledger import open_ledger
from headgate.gateway.teams.redis_budgets import RedisBudgets
from headgate.gateway.teams.sections import BudgetsSection, TeamPolicy

async def main(folder, url, budget, most_whole):
    draw, whole = random.Random(folder), 0
    price = {"usd_per_million_prompt_tokens": 3.0, "usd_per_million_completion_tokens": 7.0}
    accounts = Accounts(Prices(Settings(models=[{"id": "tiny", "path": "x", "price": price}]).models))
    accounts.ledger = await open_ledger(Path(folder), accounts.budgets, Lifecycle())
    store = RedisStore(url, time.time, timeout_s=5.0)
    pool = RedisBudgets(store, accounts.budgets, accounts.ledger.gateway, 2)
    accounts.budgets.share(pool)
    following = asyncio.create_task(pool.follow())
    payer = Payer(Principal("red", policy=TeamPolicy(budgets=BudgetsSection(daily_usd=float(budget)))), "r")

    async def client():
        nonlocal whole
        size = 9
        while size:
            prompt, most = draw.randint(1, size), draw.randint(1, size)
            bill = await accounts.open(payer, "tiny", prompt, most, 0.0)
            if isinstance(bill, Over):
                size -= bill.for_good
                await asyncio.sleep(0.001)
                continue
            if whole >= int(most_whole):
                print("held", flush=True)
                await asyncio.Event().wait()  # under way until it is killed
            await asyncio.sleep(draw.choice([0, 0.001]))
            used = Usage(prompt, draw.randint(0, most), 0)
            how = draw.choice(["whole", "left", "failed"])
            if how == "whole":
                await bill.settled(used, 0.0, "generated")
                whole += 1
                print("whole", flush=True)
            elif how == "left":
                bill.settle(used, 0.0, "cancelled")
            else:
                bill.drop()

    await asyncio.gather(*(client() for _ in range(10)))
    await pool.settled()
    following.cancel()
    await accounts.ledger.close()
    await store.close()

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running_redis(tmp_path_factory.mktemp("redis")) as process:
        yield process


class Gateway:
    """The budgets of one gateway."""

    def __init__(self, store: RedisStore, name: str) -> None:
        self.budgets = Budgets(lambda: NOON)
        self.pool = RedisBudgets(store, self.budgets, name, 2)
        self.budgets.share(self.pool)

    async def take(self, team: str, section: BudgetsSection = TEN, cost: Cost = DOLLAR) -> Hold | Over:
        return await self.budgets.take(team, section, cost)

    async def spend(self, team: str, times: int) -> None:
        for _ in range(times):
            hold = await self.take(team)
            assert isinstance(hold, Hold)
            self.budgets.settle(hold, DOLLAR)
        await self.pool.settled()

    async def knows(self, team: str) -> tuple[float, float]:
        """What all have spent and set aside today, in dollars."""
        await self.pool.look()
        share = self.budgets.shares(team, TEN)[0]
        return share.spent, share.reserved


@asynccontextmanager
async def two(redis: RedisProcess, timeout_s: float, clock: Time | None = None) -> AsyncIterator[list[Gateway]]:
    now = time.monotonic if clock is None else lambda: clock.monotonic
    async with AsyncExitStack() as stack:
        stores = [RedisStore(redis.url, time.time, timeout_s=timeout_s, monotonic=now) for _ in "ab"]
        for store in stores:
            stack.push_async_callback(store.close)
        yield [Gateway(store, name) for store, name in zip(stores, "ab", strict=True)]


@pytest.fixture
async def gateways(redis: RedisProcess) -> AsyncIterator[list[Gateway]]:
    async with two(redis, 2.0) as gateways:
        yield gateways


async def test_gateways_together_pass_no_budget_and_refuse_nothing_that_fits(gateways: list[Gateway]) -> None:
    found = await asyncio.gather(*(gateways[n % 2].take("exact") for n in range(40)))
    holds = [(gateways[n % 2], hold) for n, hold in enumerate(found) if isinstance(hold, Hold)]
    assert len(holds) == 10
    over = next(one for one in found if isinstance(one, Over))
    assert (over.share.bound, over.share.limit, over.asked, over.for_good, over.away) == (
        "daily_usd", 10, 1, False, False,
    )  # fmt: skip
    for number, (gateway, hold) in enumerate(holds):
        gateway.budgets.settle(hold, DOLLAR if number % 2 else NOTHING)
    for gateway in gateways:
        await gateway.pool.settled()
    again = [await gateways[n % 2].take("exact") for n in range(6)]
    assert [isinstance(one, Hold) for one in again] == [True] * 5 + [False]
    for gateway in gateways:
        assert await gateway.knows("exact") == (5, 5)


async def test_a_spent_budget_is_spent_for_all_and_for_good(gateways: list[Gateway]) -> None:
    first, second = gateways
    await first.spend("spent", 10)
    over = await second.take("spent")
    assert isinstance(over, Over)
    assert (over.for_good, over.share.spent, over.share.reserved) == (True, 10, 0)
    # Nothing is left for what costs nothing either, and a budget that does not block only says so.
    assert isinstance(await second.take("spent", cost=NOTHING), Over)
    soft = TEN.model_copy(update={"on_exceed": "downgrade"})
    assert isinstance(await second.take("spent", soft), Hold)
    assert second.budgets.shares("spent", soft)[0].exhausted


async def test_a_full_redis_goes_on_counting(gateways: list[Gateway], redis: RedisProcess) -> None:
    with Redis.from_url(redis.url) as client:
        client.config_set("maxmemory", 1)
        try:
            found = await asyncio.gather(*(gateways[n % 2].take("full") for n in range(20)))
            assert sum(isinstance(one, Hold) for one in found) == 10
            for gateway in gateways:
                assert await gateway.knows("full") == (0, 10)
        finally:
            client.config_set("maxmemory", 0)


async def test_while_redis_is_away_each_spends_its_part_of_what_was_left(redis: RedisProcess) -> None:
    clock = Time()
    async with two(redis, 1.0, clock) as (first, second):
        await first.spend("away", 4)
        held = await second.take("away")
        assert isinstance(held, Hold)
        assert await first.knows("away") == (4, 1)
        with redis.paused():
            taken = [await asyncio.gather(*(g.take("away") for _ in range(9))) for g in (first, second)]
            # Five are left, of which each may spend two.
            assert [sum(isinstance(one, Hold) for one in found) for found in taken] == [2, 2]
            refused = next(one for one in taken[0] if isinstance(one, Over))
            assert (refused.away, refused.for_good) == (True, False)
            for hold in taken[0]:
                if isinstance(hold, Hold):
                    first.budgets.settle(hold, DOLLAR)
            await first.pool.settled()
            stranger = await first.take("never asked", cost=Cost(6 * NANO))
            assert isinstance(stranger, Over)
            assert stranger.away, "of a budget that it knows nothing of it has its part of the whole"
        clock.monotonic += PAUSE_S
        await first.pool.look()
        # What was spent meanwhile is known to all once Redis answers.
        assert await second.knows("away") == (6, 3)
        assert await first.knows("away") == (6, 3)


def test_sums_are_exact_though_a_gateway_is_killed(redis: RedisProcess, tmp_path: Path) -> None:
    def start(name: str, most_whole: int = 1_000_000) -> subprocess.Popen[str]:
        (tmp_path / name).mkdir(exist_ok=True)
        command = [sys.executable, "-c", WORKER, str(tmp_path / name), redis.url, str(BUDGET_USD), str(most_whole)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    gateways = [start("a", most_whole=20), start("b")]
    try:
        for process in gateways:
            _read(process, "ready")
        _go(gateways[0])
        assert gateways[0].stdout is not None
        assert "held\n" in gateways[0].stdout
        _go(gateways[1])
        gateways[0].kill()
        gateways[0].communicate(timeout=30)
        gateways[0] = start("a")
        _go(gateways[0])
        for process in gateways:
            process.communicate(timeout=60)
            assert process.returncode == 0
    finally:
        for process in gateways:
            process.kill()
            process.communicate()

    ledgers = [_spent(tmp_path / name / FILE) for name in "ab"]
    assert all(cost > 0 for cost, _ in ledgers)
    total = sum(cost for cost, _ in ledgers)
    # A prompt token and one of an answer did not fit any more.
    assert BUDGET_USD * NANO - 10_000 < total <= BUDGET_USD * NANO
    assert 0 < ledgers[0][1] <= 10, "what ten clients had under way when it was killed"
    assert asyncio.run(_told(redis.url)) == (total / NANO, 0)


def _read(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{expected}\n"


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _spent(path: Path) -> tuple[int, int]:
    """The sum of a ledger, and how many of its entries a kill has cut off."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    (row,) = connection.execute("SELECT SUM(nano_usd), SUM(cause = 'cut') FROM generations").fetchall()
    connection.close()
    return int(row[0]), int(row[1])


async def _told(url: str) -> tuple[float, float]:
    """What Redis has of the team today, as a third gateway learns it."""
    store = RedisStore(url, time.time, timeout_s=5.0)
    budgets, limits = Budgets(), BudgetsSection(daily_usd=1)
    pool = RedisBudgets(store, budgets, "third", 3)
    budgets.share(pool)
    hold = await budgets.take("red", limits, NOTHING)
    assert isinstance(hold, Hold)
    await store.close()
    (share,) = budgets.shares("red", limits)
    return share.spent, share.reserved
