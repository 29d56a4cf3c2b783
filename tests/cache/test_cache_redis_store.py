"""The store in Redis, against a real server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis_process import RedisProcess, running_redis

from headgate.cache.answers import AnswerCache
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.index import FlatIndex, Place, Vector
from headgate.cache.store.base import StoreDownError
from headgate.cache.store.redis import MAX_ENTRY_BYTES, PAUSE_S, RedisStore
from headgate.cache.verdict import Entry, Hit, Miss, StoredChoice

NOW = 1_000_000.0
ANSWER = "headgate:answer:"
TAG = "headgate:tag:"
Open = Callable[..., RedisStore]


class Time:
    """Both clocks of a store, moved by hand."""

    def __init__(self) -> None:
        self.now = NOW
        self.monotonic = 50.0


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(autouse=True)
def server(process: RedisProcess) -> Iterator[Redis]:
    """The empty server, seen past the store."""
    with Redis(port=process.port) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def open_store(process: RedisProcess, time: Time) -> AsyncIterator[Open]:
    """Opens stores on the server. They wait long, for a busy machine must not look like an outage."""
    async with AsyncExitStack() as stack:

        def open_store(url: str = process.url, timeout_s: float = 20.0, **options: Any) -> RedisStore:
            store = RedisStore(url, lambda: time.now, timeout_s=timeout_s, monotonic=lambda: time.monotonic, **options)
            stack.push_async_callback(store.close)
            return store

        yield open_store


def entry(key: str, *, text: str = "q", body: str = "a", ttl: float = 600.0) -> Entry:
    return Entry(key, text, (StoredChoice(body, "stop"),), "m", 1, 1, 0.1, NOW, NOW + ttl)


async def until_gone(server: Redis, name: str) -> None:
    """Ask until the server has let the key expire; bounded by time."""
    async with asyncio.timeout(20):
        while server.exists(name):  # noqa: ASYNC110  what is waited for happens in another process
            await asyncio.sleep(0)


async def test_every_field_comes_back(open_store: Open) -> None:
    choices = (
        StoredChoice("Grüße, 世界 🎉\0\n", "stop", (0, 1, 2**31), bytes(range(256))),
        StoredChoice("", "length"),
    )
    stored = Entry("k" * 32, "où? \u2028", choices, "org/model:1", 7, 2**40, 0.1 + 0.2, NOW - 0.125, NOW + 60.5)
    store = open_store()
    assert await store.get(stored.key) is None
    assert await store.put(stored, frozenset({"t"}))
    assert await store.get(stored.key) == stored


async def test_two_stores_on_a_server_share_entries_replacements_and_deletions(open_store: Open) -> None:
    one, two = open_store(), open_store()
    await one.put(entry("a"), frozenset())
    assert await two.get("a") == entry("a")
    await two.put(entry("a", body="newer"), frozenset())
    assert await one.get("a") == entry("a", body="newer")
    assert await one.delete("a")
    assert not await one.delete("a")
    assert await two.get("a") is None


async def test_prefixes_keep_stores_apart(open_store: Open, server: Redis) -> None:
    store = open_store(prefix="one:")
    await store.put(entry("a"), frozenset({"t"}))
    assert await open_store(prefix="two:").get("a") is None
    assert all(name.startswith(b"one:") for name in server.scan_iter())


async def test_entries_live_as_long_as_they_say(open_store: Open, server: Redis, time: Time) -> None:
    store = open_store()
    assert await store.put(entry("a", ttl=600.0), frozenset({"t"}))
    assert 590_000 < server.pttl(f"{ANSWER}a") <= 600_000
    assert 590_000 < server.pttl(f"{TAG}t") <= 600_000
    time.now = NOW + 600.0
    assert await store.get("a") is None, "by our clock, whatever the server's says"
    assert not await store.put(entry("a", ttl=600.0), frozenset()), "too late"
    assert not server.exists(f"{ANSWER}a"), "the older answer goes all the same"
    assert await store.put(replace(entry("b"), expires=float("inf")), frozenset())
    assert server.pttl(f"{ANSWER}b") > 0


async def test_the_server_drops_what_has_expired_and_tags_keep_no_trace_of_it(open_store: Open, server: Redis) -> None:
    store = open_store()
    await store.put(entry("long"), frozenset({"t"}))
    await store.put(entry("short", ttl=0.001), frozenset({"t", "u"}))
    assert server.pttl(f"{TAG}t") > 590_000, "a tag lives as long as the longest of its entries"
    await until_gone(server, f"{ANSWER}short")
    await until_gone(server, f"{TAG}u")
    assert await store.get("short") is None
    await store.put(entry("next"), frozenset({"t"}))
    assert set(server.zrange(f"{TAG}t", 0, -1)) == {b"long", b"next"}


async def test_tags_drop_together_whoever_put_them(open_store: Open, server: Redis) -> None:
    one, two = open_store(), open_store()
    await one.put(entry("a"), frozenset({"x"}))
    await two.put(entry("b"), frozenset({"x", "y"}))
    await two.put(entry("c"), frozenset({"y"}))
    assert await one.delete_tagged("x") == 2
    assert await one.delete_tagged("x") == 0
    assert await two.get("b") is None
    assert await one.get("c") is not None
    assert set(server.scan_iter()) == {f"{ANSWER}c".encode(), f"{TAG}y".encode(), f"{TAG}x:purged".encode()}


async def test_deleted_and_expired_entries_are_forgotten_and_replaced_ones_are_not(
    open_store: Open, time: Time
) -> None:
    store = open_store()
    gone: list[str] = []
    store.on_forget(gone.append)
    for key in "abcd":
        await store.put(entry(key, ttl=10.0), frozenset({"t"} if key == "b" else ()))
    await store.put(entry("c", ttl=20.0), frozenset())
    assert gone == []
    await store.delete("a")
    await store.delete_tagged("t")
    assert gone == ["a", "b"]
    time.now = NOW + 10.0
    await store.put(entry("e", ttl=60.0), frozenset())
    assert gone == ["a", "b", "d"], "c has a newer answer"
    time.now = NOW + 20.0
    await store.put(entry("f", ttl=60.0), frozenset())
    assert gone == ["a", "b", "d", "c"]


async def test_an_index_that_knows_of_later_changes_is_not_told_of_a_deletion(open_store: Open, time: Time) -> None:
    store, gone = open_store(), list[str]()
    store.on_forget(gone.append)
    place = Place("b", np.ones(4, dtype=np.float32) / 2, "m")
    await store.put(entry("a"), frozenset(), place)
    await store.put(entry("b", ttl=5.0), frozenset())
    store.followed(b"99999999999999-0")
    assert await store.delete("a")
    time.now += 10.0
    await store.put(entry("c"), frozenset())
    assert gone == [], "another process may have put either again, and the stream tells"
    store.followed(b"0-1")
    assert await store.delete("c")
    assert gone == ["c"]


async def test_a_large_purge_goes_in_parts(open_store: Open, server: Redis) -> None:
    store = open_store()
    for number in range(1101):
        await store.put(entry(str(number)), frozenset({"t"}))
    await store.put(entry("other"), frozenset({"u"}))
    assert await store.delete_tagged("t") == 1101
    assert await store.delete_tagged("t") == 0
    assert {name.decode() for name in server.keys("*")} == {f"{ANSWER}other", f"{TAG}u", f"{TAG}t:purged"}
    assert 0 < server.pttl(f"{TAG}t:purged") <= 600_000, "a trace that goes by itself"


async def test_an_answer_on_its_way_when_its_tag_was_purged_is_not_kept_by_any(open_store: Open, time: Time) -> None:
    one, two = open_store(), open_store()
    await one.delete_tagged("t")
    assert not await two.put(entry("a"), frozenset({"t", "u"}), asked=time.now - 1.0)
    assert await two.get("a") is None
    assert await two.put(entry("a"), frozenset({"t", "u"}), asked=time.now + 1.0)
    assert await two.put(entry("b"), frozenset({"u"}), asked=time.now - 1.0)
    assert (await one.count_tagged("t"), await one.count_tagged("u"), await one.count_tagged("v")) == (1, 2, 0)


async def test_a_full_server_can_be_purged(open_store: Open, server: Redis) -> None:
    store = open_store()
    await store.put(entry("a"), frozenset({"t"}))
    server.config_set("maxmemory", 1)
    assert await store.delete_tagged("t") == 1
    assert await store.delete_tagged("t") == 0
    assert await store.get("a") is None


@pytest.mark.parametrize("bad", [entry("a", body="x" * 2000), entry("a", text="\ud800")])
async def test_what_cannot_be_kept_ends_the_older_answer(open_store: Open, bad: Entry) -> None:
    store = open_store(max_entry_bytes=1000)
    assert await store.put(entry("a"), frozenset())
    assert not await store.put(bad, frozenset())
    assert await store.get("a") is None


async def test_there_is_a_bound_by_default(open_store: Open) -> None:
    assert not await open_store().put(entry("a", body="x" * MAX_ENTRY_BYTES), frozenset())


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


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=60),
        st.builds(lambda cut, tail: msgspec.msgpack.encode(entry("a"))[:cut] + tail, st.integers(0, 90), st.binary()),
        st.recursive(st.none() | st.integers(-9, 9) | st.text(), st.lists).map(msgspec.msgpack.encode),
    )
)
def test_garbage_is_a_miss(process: RedisProcess, garbage: bytes) -> None:
    async def ask() -> Entry | None:
        store = RedisStore(process.url, lambda: NOW, timeout_s=20.0)
        try:
            return await store.get("garbage")
        finally:
            await store.close()

    with Redis(port=process.port) as server:
        server.set(f"{ANSWER}garbage", garbage)
    assert asyncio.run(ask()) is None


async def test_values_of_another_kind_or_shape_are_misses(
    open_store: Open, server: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    server.rpush(f"{ANSWER}list", "x")
    server.set(f"{ANSWER}deep", b"\x91" * 100_000)
    server.set(f"{ANSWER}other", msgspec.msgpack.encode(entry("elsewhere")))
    server.set(f"{ANSWER}lacking", msgspec.msgpack.encode({"key": "lacking"}))
    for key in ("list", "deep", "other", "lacking"):
        assert await store.get(key) is None
        assert await store.put(entry(key), frozenset()), "and the next answer takes its place"
        assert await store.get(key) == entry(key)
    assert caplog.records == []


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that a test may kill."""
    with running_redis(tmp_path) as running:
        yield running


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


DIM = 4


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
