"""Several indexes on one Redis that is cut off, emptied, killed or full, against a real server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from index_gateways import DIM, STREAM, VECTOR, Open, entry, start, synced, vector_of
from redis import Redis
from redis_process import RedisProcess, Time

from headgate.cache.hnsw import HnswIndex
from headgate.cache.index import Place
from headgate.cache.store.redis_calls import PAUSE_S


async def test_a_follower_that_was_away_goes_on_where_it_stopped(open_gateway: Open) -> None:
    one, two = open_gateway(), open_gateway()
    await start(two)
    for key in ("1", "2"):
        await one.put(key)
    await synced(two)
    await two.feed.close()
    await one.store.delete("1")
    for key in range(10, 200):
        await one.put(str(key))
    await start(two)
    assert two.holds() == {"2", *map(str, range(10, 200))}
    assert two.feed.rebuilt == 1


async def test_a_stream_cut_past_a_follower_makes_it_start_anew(open_gateway: Open, server: Redis) -> None:
    one, two = open_gateway(feed_records=100), open_gateway()
    await start(two)
    for key in ("1", "2"):
        await one.put(key)
    await synced(two)
    await two.feed.close()
    await one.store.delete("1")
    for key in range(10, 400):
        await one.put(str(key))
    assert server.xlen(STREAM) < 390, "the cap cut it"
    await start(two)
    assert two.holds() == {"2", *map(str, range(10, 400))}
    assert two.feed.rebuilt == 2


async def test_a_server_emptied_empties_the_indexes(open_gateway: Open, server: Redis) -> None:
    one, two = open_gateway(), open_gateway()
    await start(one, two)
    await one.put("1")
    await synced(one, two)
    server.flushall()
    await two.put("2")
    await until(lambda: one.feed.rebuilt == two.feed.rebuilt == 2)
    await synced(one, two)
    assert one.holds() == two.holds() == {"2"}


async def until(condition: Callable[[], bool]) -> None:
    """Let the feeds run until something is so; bounded by time."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what is waited for depends on another process
            await asyncio.sleep(0)


async def test_a_server_killed_with_nothing_on_disk_leaves_consistent_indexes(
    open_gateway: Open, mortal: RedisProcess, time: Time
) -> None:
    one, two = open_gateway(mortal.url), open_gateway(mortal.url)
    await start(one, two)
    await one.put("1")
    await two.put("2")
    await synced(one, two)
    mortal.kill()
    with pytest.raises(OSError, match=str(mortal.port)):
        await one.put("3")
    time.monotonic += 1000.0
    assert two.feed.staleness_s >= 1000.0
    assert one.holds() == two.holds() == {"1", "2"}, "an outage takes nothing from the view"
    mortal.start()
    time.monotonic += PAUSE_S
    await one.put("4")
    await synced(one, two)
    assert one.holds() == two.holds() == {"4"}
    assert two.feed.rebuilt == 2
    assert two.feed.staleness_s < 1000.0


@pytest.mark.parametrize("lost", [True, False])
async def test_a_server_killed_with_some_on_disk_leaves_consistent_indexes(
    open_gateway: Open, mortal: RedisProcess, time: Time, lost: bool
) -> None:
    one, two = open_gateway(mortal.url), open_gateway(mortal.url)
    await start(one, two)
    await one.put("1")
    await two.put("2")
    with Redis(port=mortal.port) as client:
        client.save()
    if lost:
        await one.put("3")
        await two.store.delete("2")
    await synced(one, two)
    mortal.kill()
    mortal.start()
    await one.store.ping()
    time.monotonic += PAUSE_S
    await one.put("4")
    await synced(one, two)
    assert one.holds() == two.holds() == {"1", "2", "4"}
    assert two.feed.rebuilt == (2 if lost else 1)


async def test_redis_may_be_away_when_a_gateway_starts(open_gateway: Open, mortal: RedisProcess) -> None:
    mortal.kill()
    one = open_gateway(mortal.url)
    await one.feed.start()
    waiting = asyncio.create_task(one.feed.synced())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    mortal.start()
    async with asyncio.timeout(60):
        await waiting
    await one.put("1")
    await synced(one)
    assert one.holds() == {"1"}


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_several_do_at_once_all_end_with_what_redis_has(
    open_gateway: Open, server: Redis, seed: int
) -> None:
    draw = random.Random(seed)
    graph = HnswIndex(DIM, flat_max=10, tail_max=4)
    gateways = [open_gateway(), open_gateway(index=graph)]
    await start(*gateways)
    try:
        for turn in range(12):
            if turn == 8:
                gateways.append(late := open_gateway())
                await late.feed.start()
            steps = []
            for _ in range(20):
                gateway, key = draw.choice(gateways), str(draw.randrange(40))
                steps.append(
                    gateway.store.delete(key) if draw.random() < 0.3
                    else gateway.store.delete_tagged(f"t{draw.randrange(8)}") if draw.random() < 0.1
                    else gateway.put(key, f"t{int(key) % 8}")
                )  # fmt: skip
            await asyncio.gather(*steps)
        await synced(*gateways)
        there = {name.decode().removeprefix(VECTOR) for name in server.keys(f"{VECTOR}*")}
        assert there
        assert [gateway.holds() for gateway in gateways] == [there] * 3
    finally:
        await graph.close()


async def test_a_full_server_keeps_and_tells_nothing(open_gateway: Open, server: Redis) -> None:
    one, two = open_gateway(), open_gateway()
    await start(one, two)
    await one.put("1", "t")
    server.config_set("maxmemory", 1)
    for tags in (frozenset[str](), frozenset({"t"})):
        assert not await one.store.put(entry("2"), tags, Place("b", vector_of("2"), "m"))
    assert await one.store.delete("1")
    await synced(two)
    assert two.holds() == set()
    assert not server.exists(f"{VECTOR}2")
