"""The store in Redis when the server is full, slow, killed or has lost what it had, against a real one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from redis import Redis
from redis_process import NOW, RedisProcess, Time

from headgate.cache.answers import AnswerCache
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.index import FlatIndex, Vector
from headgate.cache.store.base import StoreDownError
from headgate.cache.store.redis import RedisStore
from headgate.cache.store.redis_calls import PAUSE_S
from headgate.cache.verdict import Entry, Hit, Miss, StoredChoice

ANSWER = "headgate:answer:"

Open = Callable[..., RedisStore]

DIM = 4


def entry(key: str, *, text: str = "q", body: str = "a", ttl: float = 600.0) -> Entry:
    return Entry(key, text, (StoredChoice(body, "stop"),), "m", 1, 1, 0.1, NOW, NOW + ttl)


async def test_a_full_server_is_no_outage(open_store: Open, server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = open_store()
    await store.put(entry("a"), frozenset())
    server.config_set("maxmemory", 1)
    for key in "bc":
        assert not await store.put(entry(key), frozenset({"t"}))
    assert await store.get("a") == entry("a")
    server.config_set("maxmemory", 0)
    for key in "bc":
        assert await store.put(entry(key), frozenset({"t"}))
    assert [record.message for record in caplog.records] == [
        f"{store.address} is full and keeps no new answers: raise maxmemory or let it evict",
        f"{store.address} keeps new answers again",
    ]


async def test_a_server_that_pauses_its_clients_is_left_alone_for_a_while(
    process: RedisProcess, server: Redis, time: Time, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cache, _ = answer_cache(open_store(process.url, timeout_s=0.5), time)
    assert await answer(cache, ask("what is the capital of france")) is not None
    server.client_pause(2000, all=True)
    for _ in range(3):
        assert isinstance((await cache.lookup(ask("what is the capital of france"))).verdict, Miss)
    assert cache.faults.store >= 3
    assert "no answer within 500 ms" in caplog.records[0].message
    assert len(caplog.records) == 1
    async with asyncio.timeout(20):
        while isinstance((await cache.lookup(ask("what is the capital of france"))).verdict, Miss):
            time.monotonic += PAUSE_S


async def test_a_killed_server_fails_at_once_and_is_used_again_when_it_is_back(
    open_store: Open, mortal: RedisProcess, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[str | None] = []
    store = open_store(mortal.url, changed=changes.append)
    await store.put(entry("a"), frozenset({"t"}))
    mortal.kill()
    for call in (store.get("a"), store.put(entry("b"), frozenset()), store.delete("a"), store.delete_tagged("t")):
        with pytest.raises(StoreDownError):
            await call
    time.monotonic += PAUSE_S
    with pytest.raises(StoreDownError, match=str(mortal.port)):
        await store.get("a")
    assert len(changes) == len(caplog.records) == 1, "one line for an outage, however many calls failed in it"

    mortal.start()
    time.monotonic += PAUSE_S - 0.001
    with pytest.raises(StoreDownError, match="a moment ago"):
        await store.get("a")
    time.monotonic += 0.001
    assert await store.get("a") is None, "nothing was on disk"
    assert await store.put(entry("a"), frozenset({"t"}))
    assert await store.get("a") == entry("a")
    assert await store.delete_tagged("t") == 1
    assert changes[1:] == [None]
    assert "answers again" in caplog.text


async def test_a_server_that_is_slow_costs_one_timeout_and_then_nothing(
    process: RedisProcess, open_store: Open, time: Time
) -> None:
    store = open_store(timeout_s=0.05)
    with process.paused():
        with pytest.raises(StoreDownError, match="no answer within 50 ms"):
            await store.get("a")
        with pytest.raises(StoreDownError, match="a moment ago"):
            await store.get("a")
        time.monotonic += PAUSE_S
        tried = await asyncio.gather(*(store.get("a") for _ in range(10)), return_exceptions=True)
    said = [str(error) for error in tried]
    assert sum("no answer within" in s for s in said) == 1, "one tries for all"
    assert sum("a moment ago" in s for s in said) == 9


async def test_a_call_that_began_before_an_outage_and_fails_after_it_begins_no_other(
    process: RedisProcess, open_store: Open, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    store, given_up = open_store(timeout_s=0.05), asyncio.Event()

    async def unanswered() -> None:
        await given_up.wait()
        raise ConnectionResetError("its connection is gone")

    slow = asyncio.create_task(store.ask(unanswered, 60.0))
    await asyncio.sleep(0)
    with process.paused(), pytest.raises(StoreDownError, match="no answer within 50 ms"):
        await store.get("a")
    time.monotonic += PAUSE_S
    async with asyncio.timeout(20):
        while "answers again" not in caplog.text:
            with suppress(StoreDownError):
                await store.get("a")
            time.monotonic += PAUSE_S
    given_up.set()
    with pytest.raises(StoreDownError, match="its connection is gone"):
        await slow
    assert await store.get("a") is None
    assert caplog.text.count("left alone") == 1


async def test_after_a_failover_it_is_connected_to_anew(open_store: Open, mortal: RedisProcess, time: Time) -> None:
    store = open_store(mortal.url)
    await store.put(entry("a"), frozenset())
    with Redis(port=mortal.port) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "9")
        before = client.info("stats")["total_connections_received"]
        with pytest.raises(StoreDownError, match="read only"):
            await store.put(entry("b"), frozenset())
        time.monotonic += PAUSE_S
        assert await store.get("a") == entry("a")
        assert client.info("stats")["total_connections_received"] == before + 1, "the name may lead elsewhere now"
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert await store.put(entry("b"), frozenset())


async def test_of_a_replica_the_log_hears_once_a_minute(
    open_store: Open, mortal: RedisProcess, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(mortal.url)
    with Redis(port=mortal.port) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "9")
    for _ in range(61):
        with pytest.raises(StoreDownError, match="read only"):
            await store.put(entry("a"), frozenset())
        time.monotonic += PAUSE_S
        assert await store.get("a") is None
    assert caplog.text.count("left alone") == caplog.text.count("answers again") == 2


async def test_what_is_large_has_the_time_that_it_takes(process: RedisProcess, open_store: Open) -> None:
    store = open_store(timeout_s=0.05)
    with process.paused():
        large = asyncio.create_task(store.ask(store.client.ping, carries=500 << 20))
        await asyncio.sleep(0)
        with pytest.raises(StoreDownError, match="no answer within 50 ms"):
            await store.get("a")
    assert await large


async def test_more_calls_than_connections_wait_for_their_turn(open_store: Open, server: Redis) -> None:
    store = open_store()
    await store.put(entry("a"), frozenset())
    before = server.info("stats")["total_connections_received"]
    assert await asyncio.gather(*(store.get("a") for _ in range(200))) == [entry("a")] * 200
    assert server.info("stats")["total_connections_received"] - before <= 16


async def test_a_caller_that_gives_up_spoils_no_connection(process: RedisProcess, open_store: Open) -> None:
    store = open_store()
    for key in "ab":
        await store.put(entry(key), frozenset())
    with process.paused():
        leaving = asyncio.create_task(store.get("a"))
        for _ in range(10):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
    assert await store.get("b") == entry("b"), "not the answer to the question before"


async def test_no_password_is_told(open_store: Open, mortal: RedisProcess, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(f"redis://someone:hunter2@127.0.0.1:{mortal.port}/3")
    assert store.address == f"redis://127.0.0.1:{mortal.port}/3"
    reason = await store.ping()
    assert reason is not None
    assert caplog.records == [], "a ping tells nobody but its caller"
    again = open_store(f"redis://someone:hunter2@127.0.0.1:{mortal.port}")
    with pytest.raises(StoreDownError) as caught:
        await again.get("a")
    for told in (reason, caplog.text, str(caught.value)):
        assert told
        assert "hunter2" not in told
        assert "someone" not in told


class OneVector:
    """All texts mean the same."""

    name = "one"
    dim = DIM

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed(self, _text: str, _scope: str = "") -> Vector:
        return np.eye(1, DIM, dtype=np.float32)[0]


def answer_cache(store: RedisStore, time: Time) -> tuple[AnswerCache, FlatIndex]:
    index = FlatIndex(DIM)
    prints = Fingerprinter(b"0123456789abcdef")
    return AnswerCache(store, prints, index, OneVector(), lambda: time.now), index


async def answer(cache: AnswerCache, query: CacheQuery) -> Entry | None:
    found = await cache.lookup(query)
    return await cache.store(
        found.fingerprint, query, choices=(StoredChoice("Paris", "stop"),), model="m", prompt_tokens=1,
        completion_tokens=1, device_s=0.0, vector=found.vector, ttl=100.0,
    )  # fmt: skip


def ask(text: str) -> CacheQuery:
    return CacheQuery("team", "auto", "r", b"{}", text)


async def test_an_outage_is_a_miss_and_a_count_and_loses_no_similar_answer(
    open_store: Open, mortal: RedisProcess, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cache, index = answer_cache(open_store(mortal.url), time)
    assert await answer(cache, ask("what is the capital of france")) is not None
    mortal.kill()
    for text in ("what is the capital of france", "What is the capital of france?"):
        assert isinstance((await cache.lookup(ask(text))).verdict, Miss)
    assert await answer(cache, ask("something else")) is None
    assert cache.faults.store == 7, "three look-ups of two questions each, and one entry"
    assert len(caplog.records) == 1
    with pytest.raises(OSError, match="moment ago"):
        await cache.purge_tagged("any")
    assert len(index) == 1


async def test_similar_answers_come_from_redis_and_what_redis_lost_leaves_the_index(
    open_store: Open, server: Redis, time: Time
) -> None:
    cache, index = answer_cache(open_store(), time)
    stored = await answer(cache, ask("what is the capital of france"))
    found = await cache.lookup(ask("What is the capital of france?"))
    assert stored is not None
    assert found.verdict == Hit("semantic", stored, 1.0)
    server.flushall()
    assert (await cache.lookup(ask("What is the capital of france?"))).verdict == Miss()
    assert len(index) == 0
