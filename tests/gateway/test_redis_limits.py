"""Limits that gateways count together in a real Redis: never passed together, shared fairly while it is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from redis import Redis
from redis_process import RedisProcess, Time, running_redis

from headgate.cache.store.redis import RedisStore
from headgate.gateway.teams.admission import refused
from headgate.gateway.teams.limits import Rates, Scope
from headgate.gateway.teams.redis_limits import RedisLimits


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running_redis(tmp_path_factory.mktemp("redis")) as process:
        yield process


@pytest.fixture
async def books(redis: RedisProcess) -> AsyncIterator[list[RedisLimits]]:
    """Two gateways."""
    async with AsyncExitStack() as stack:
        stores = [RedisStore(redis.url, time.time, timeout_s=2.0) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield [RedisLimits(store, 2) for store in stores]


@pytest.fixture
def full(redis: RedisProcess) -> Iterator[None]:
    """Of the server's memory nothing is left."""
    with Redis.from_url(redis.url) as client:
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)


async def test_gateways_together_let_no_more_requests_through_than_one(books: list[RedisLimits]) -> None:
    scope = Scope("team requests", Rates(rpm=30))
    found = await asyncio.gather(*(books[n % 2].enter([scope]) for n in range(100)))
    assert sum(refusal is None for refusal in found) == 30
    refusal = next(refusal for refusal in found if refusal is not None)
    assert (refusal.what, refusal.limit, refusal.used) == ("requests", 30, 30)
    assert refusal.after_s is not None
    assert 50 < refusal.after_s <= 60
    level = books[0].standing([scope]).requests
    assert level is not None
    assert level.remaining == 0


async def test_tokens_are_set_aside_for_all_and_given_back_to_all(books: list[RedisLimits]) -> None:
    scope, other = Scope("team tokens", Rates(tpm=100)), Scope("user tokens", Rates(tpm=1000))
    assert await books[0].reserve([other, scope], 80) is None
    refusal = await books[1].reserve([other, scope], 30)
    assert refusal is not None
    assert (refusal.scope, refusal.what, refusal.used, refusal.after_s) == (scope, "tokens", 80, 1.0)
    books[0].settle([other, scope], 80, 30)
    await books[0].settled()
    assert await books[1].reserve([other, scope], 70) is None
    too_much = await books[1].reserve([scope], 101)
    assert too_much is not None
    assert too_much.after_s is None
    level = books[1].standing([other]).tokens
    assert level is not None
    assert level.remaining == 900


async def test_places_are_given_back(books: list[RedisLimits]) -> None:
    scope = Scope("team places", Rates(concurrency=2))
    found = await asyncio.gather(*(book.enter([scope]) for book in (*books, *books)))
    assert sum(refusal is None for refusal in found) == 2
    for book in books:
        book.leave([scope], 0.1)
        await book.settled()
    assert await books[0].enter([scope]) is None


async def test_a_clock_that_was_an_hour_ahead_stops_no_minute(books: list[RedisLimits], redis: RedisProcess) -> None:
    scope = Scope("team ahead", Rates(rpm=1))
    assert await books[0].enter([scope]) is None
    # As it stands where the server's clock was set an hour forward before that request, and back after it.
    with Redis.from_url(redis.url, decode_responses=True) as client:
        (base,) = [name for name in client.scan_iter("*team ahead*") if client.type(name) == "hash"]
        later = int(str(client.hget(base, "now"))) + 3_600_000
        client.hset(base, "now", str(later))
        client.lset(f"{base}:r", 0, f"{later}:{later}:1")
    waits = []
    for _ in range(2):
        refusal = await books[1].enter([scope])
        assert refusal is not None
        assert refusal.after_s is not None
        waits.append(refusal.after_s)
        await asyncio.sleep(0.02)
    assert 59 < waits[1] <= waits[0] - 0.015 < 60, "the minute goes on"


async def test_a_full_redis_goes_on_counting(books: list[RedisLimits], full: None) -> None:  # noqa: ARG001
    scope = Scope("team full", Rates(rpm=3, tpm=100, concurrency=3))
    found = await asyncio.gather(*(books[n % 2].enter([scope]) for n in range(8)))
    assert sum(refusal is None for refusal in found) == 3
    assert [await book.reserve([scope], 50) for book in books] == [None, None]
    assert await books[0].reserve([scope], 1) is not None
    for book in books:
        book.settle([scope], 50, 10)
        await book.settled()
    assert await books[0].reserve([scope], 80) is None
    assert await books[1].reserve([scope], 1) is not None


async def test_while_redis_is_away_each_gateway_lets_its_share_pass(redis: RedisProcess) -> None:
    store = RedisStore(redis.url, time.time, timeout_s=1.0)
    book, scope = RedisLimits(store, 4), Scope("team away", Rates(rpm=40, tpm=400))
    assert [await book.enter([scope]) for _ in range(4)] == [None] * 4
    with redis.paused():
        found = [await book.enter([scope]) for _ in range(20)]
        # Ten are its share, and four it had let pass before.
        assert sum(refusal is None for refusal in found) == 6
        assert await book.reserve([scope], 100) is None
        refusal = await book.reserve([scope], 1)
        assert refusal is not None
        assert (refusal.limit, refusal.share) == (400, 100)
        book.settle([scope], 100, 40)
        await book.settled()
        assert await book.reserve([scope], 60) is None
    await store.close()


async def test_while_redis_is_away_what_is_beyond_a_share_only_may_come_again(redis: RedisProcess) -> None:
    store = RedisStore(redis.url, time.time, timeout_s=0.1)
    book, scope = RedisLimits(store, 2), Scope("team large", Rates(rpm=1, tpm=100))
    with redis.paused():
        found = [await book.enter([scope]), *[await book.reserve([scope], tokens) for tokens in (60, 100, 101)]]
    assert [None if one is None else (one.limit, one.share, one.after_s) for one in found] == [
        (1, 0, 1.0),
        (100, 50, 1.0),
        (100, 50, 1.0),
        (100, 50, None),
    ]
    assert found[1] is not None
    error = refused(found[1])
    assert error.headers.get("x-should-retry") != "false"
    assert "limit 100 (50 of it here, while gateways cannot count together)" in error.message
    await store.close()


async def test_what_ended_while_redis_was_slow_it_is_told_of_later_and_once(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.gateway.teams.redis_limits.AGAIN_S", 0.0)
    clock = Time()
    store = RedisStore(redis.url, time.time, timeout_s=0.2, monotonic=lambda: clock.monotonic)
    book, scope = RedisLimits(store, 2), Scope("team slow", Rates(rpm=100, concurrency=3, tpm=1000))

    async def connected() -> None:
        """What is asked by a connection that is there reaches Redis, though it stands still."""
        await store.ask(store.client.ping)
        await asyncio.gather(*(store.ask(store.client.ping) for _ in range(8)))

    # From the first time on Redis knows the scripts by their hashes.
    assert await book.reserve([scope], 100) is None
    book.settle([scope], 100, 7)
    await book.settled()
    for _ in range(3):
        assert await book.enter([scope]) is None
        assert await book.reserve([scope], 100) is None
    with redis.paused():
        assert await book.reserve([scope], 150) is None
    clock.monotonic += 10
    await connected()
    with redis.paused():
        for _ in range(3):
            book.leave([scope], 1.0)
            book.settle([scope], 100, 40)
        book.settle([scope], 150, 50)
        await book.settled()
    clock.monotonic += 10
    await book.settled()
    for _ in range(3):
        assert await book.enter([scope]) is None, "no place is taken by who has left"
    refusal = await book.reserve([scope], 824)
    assert refusal is not None
    assert refusal.used == 177
    assert await book.reserve([scope], 823) is None
    await store.close()


async def test_who_leaves_while_redis_is_asked_takes_no_place(redis: RedisProcess) -> None:
    store = RedisStore(redis.url, time.time, timeout_s=10.0)
    book, scope = RedisLimits(store, 2), Scope("team gone", Rates(concurrency=1, tpm=10))
    await store.ask(store.client.ping)
    with redis.paused():
        asking = [asyncio.create_task(book.enter([scope])), asyncio.create_task(book.reserve([scope], 10))]
        await asyncio.sleep(0)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        assert all(task.cancelled() for task in asking)
    await book.settled()
    assert await book.enter([scope]) is None
    assert await book.reserve([scope], 10) is None
    await store.close()
