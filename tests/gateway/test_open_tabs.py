"""Tabs of requests that may be sent again: here, and in a Redis that gateways share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from multidict import CIMultiDict
from redis import Redis
from redis_process import RedisProcess, running_redis

from headgate.cache.store.redis import RedisStore
from headgate.gateway.teams.open_tabs import MOST_TABS, OpenTabs
from headgate.gateway.teams.redis_tabs import RedisTabs
from headgate.gateway.teams.retries import IDEMPOTENCY_KEY, RETRY_COUNT, Key, retry_of
from headgate.gateway.teams.tabs import Tab
from headgate.gateway.wire.errors import ApiError

KEY: Key = ("red", "laptop", b"name", "")
PLAIN = retry_of(CIMultiDict(), b"{}")
AGAIN = retry_of(CIMultiDict({RETRY_COUNT: "1"}), b"{}")


def billed(*counts: int) -> Tab:
    """A tab on which this was billed."""
    tab = Tab()
    tab.begin()
    tab.billed.add(*counts)
    tab.end()
    return tab


async def test_tabs_are_closed_after_a_while_and_beyond_a_number() -> None:
    now = 0.0
    tabs = OpenTabs(window_s=10, clock=lambda: now)

    def key(place: int) -> Key:
        return "red", None, b"", str(place)

    async def leave(place: int) -> None:
        tab = await tabs.take(key(place), PLAIN)
        tab.used = True
        tabs.leave(key(place), PLAIN, tab, had=False)

    for place in range(MOST_TABS + 1):
        await leave(place)
    assert len(tabs) == MOST_TABS
    assert [(await tabs.take(key(place), PLAIN)).used for place in range(2)] == [False, True]
    now = 9.0
    await leave(2)  # the time is that of the first attempt
    await leave(0)
    now = 10.0
    assert not (await tabs.take(key(2), retry_of(CIMultiDict(), b"{ }"))).used
    assert (await tabs.take(key(0), PLAIN)).used


async def test_an_attempt_that_outlasts_its_tab_closes_it() -> None:
    now = 0.0
    tabs = OpenTabs(window_s=10, clock=lambda: now)
    tabs.leave(KEY, PLAIN, billed(1, 2, 3, 4), had=False)
    now = 9.0
    tab = await tabs.take(KEY, PLAIN)
    now = 10.0
    tabs.leave(KEY, PLAIN, tab, had=False)
    assert len(tabs) == 0
    assert not (await tabs.take(KEY, PLAIN)).used


async def test_the_tab_of_an_answer_that_was_had_is_for_those_who_say_that_it_was_lost() -> None:
    tabs = OpenTabs()
    tab = billed(5, 2, 0, 0)
    tabs.leave(KEY, PLAIN, tab, had=True)
    assert not (await tabs.take(KEY, PLAIN)).used
    assert await tabs.take(KEY, AGAIN) is tab
    assert not (await tabs.take(KEY, AGAIN)).used


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running_redis(tmp_path_factory.mktemp("redis")) as process:
        yield process


@pytest.fixture
async def gateways(redis: RedisProcess) -> AsyncIterator[list[OpenTabs]]:
    """Two that share a Redis with nothing in it."""
    with Redis.from_url(redis.url) as client:
        client.flushall()
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            store = RedisStore(redis.url, time.time, timeout_s=2.0)
            stack.push_async_callback(store.close)
            found.append(OpenTabs(window_s=60))
            found[-1].share(RedisTabs(store))
        yield found


async def test_another_gateway_goes_on_with_a_tab_and_nobody_else_does(gateways: list[OpenTabs]) -> None:
    one, two = gateways
    one.leave(KEY, PLAIN, billed(5, 2, 30, 400), had=False)
    await one.settled()
    found = await asyncio.gather(*(gateway.take(KEY, PLAIN) for gateway in (two, one, two, one)))
    used = [tab for tab in found if tab.used]
    assert [tuple(tab.billed) for tab in used] == [(5, 2, 30, 400)]
    assert used[0].until is not None
    assert 0 < used[0].until - time.monotonic() <= 60
    assert (len(one), len(two)) == (0, 0)


async def test_a_shared_tab_is_of_one_key_and_body_and_ends(gateways: list[OpenTabs], redis: RedisProcess) -> None:
    one, two = gateways
    named = retry_of(CIMultiDict({IDEMPOTENCY_KEY: "a"}), b"{}")
    one.leave(KEY, named, billed(1, 1, 1, 1), had=False)
    await one.settled()
    with pytest.raises(ApiError) as caught:
        await two.take(KEY, retry_of(CIMultiDict({IDEMPOTENCY_KEY: "a"}), b"{ }"))
    assert (caught.value.status, caught.value.code) == (422, "idempotency_key_reused")
    assert not (await two.take(("blue", *KEY[1:]), named)).used
    with Redis.from_url(redis.url) as client:
        (name,) = client.keys("*:tab:*")
        assert 0 < client.pttl(name) <= 60_000
        # As if its time were over.
        first = client.lindex(name, 0)
        client.lset(name, 0, b"1 " + first.split(b" ", 1)[1])
        assert not (await two.take(KEY, named)).used
        assert client.keys("*:tab:*") == []


async def test_a_full_redis_takes_tabs(gateways: list[OpenTabs], redis: RedisProcess) -> None:
    one, two = gateways
    with Redis.from_url(redis.url) as client:
        client.config_set("maxmemory", 1)
        try:
            one.leave(KEY, PLAIN, billed(5, 2, 30, 400), had=False)
            await one.settled()
            assert tuple((await two.take(KEY, PLAIN)).billed) == (5, 2, 30, 400)
        finally:
            client.config_set("maxmemory", 0)


async def test_a_tab_is_not_told_before_it_is_settled(gateways: list[OpenTabs]) -> None:
    """Who leaves an answer that others wait for is billed for it when it has come to its end."""
    one, two = gateways
    tab = Tab()
    tab.begin()
    one.leave(KEY, PLAIN, tab, had=False)
    assert not (await two.take(KEY, PLAIN)).used
    tab.billed.add(5, 9, 0, 0)
    tab.end()
    await one.settled()
    assert tuple((await two.take(KEY, PLAIN)).billed) == (5, 9, 0, 0)


async def test_while_redis_is_away_each_gateway_knows_its_own(gateways: list[OpenTabs], redis: RedisProcess) -> None:
    one, two = gateways
    redis.kill()
    try:
        tab = billed(5, 2, 0, 0)
        one.leave(KEY, PLAIN, tab, had=False)
        await one.settled()
        assert not (await two.take(KEY, PLAIN)).used
        assert await one.take(KEY, PLAIN) is tab
    finally:
        redis.start()


async def test_what_was_taken_for_somebody_who_left_is_there_for_the_next(gateways: list[OpenTabs]) -> None:
    one, two = gateways
    one.leave(KEY, PLAIN, billed(5, 2, 0, 0), had=False)
    await one.settled()
    taking = asyncio.create_task(two.take(KEY, PLAIN))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    # Whatever Redis says first, it gave the tab to the one who left.
    for _ in range(20):
        if (await two.take(KEY, PLAIN)).used:
            return
    raise AssertionError("the tab is lost")
