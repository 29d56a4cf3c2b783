"""Several indexes on one Redis, against a real server."""

from __future__ import annotations

import asyncio
import random
import time as clocks
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from redis import Redis
from redis_process import RedisProcess, running_redis

from headgate.cache.answers import AnswerCache
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.hnsw import HnswIndex
from headgate.cache.index import FlatIndex, Place, Vector
from headgate.cache.store.feed import IndexFeed
from headgate.cache.store.redis import PAUSE_S, RedisStore
from headgate.cache.verdict import Entry, Hit, StoredChoice

NOW = 1_000_000.0
DIM = 8
STREAM = "headgate:changes"
VECTOR = "headgate:vector:"


class Time:
    """The clocks, moved by hand. A feed's own also goes on by itself, for it waits for a server that does."""

    def __init__(self) -> None:
        self.now = NOW
        self.monotonic = 50.0

    def running(self) -> float:
        return clocks.monotonic() + self.monotonic


@dataclass
class Gateway:
    """One process's share of the cache."""

    store: RedisStore
    index: FlatIndex | HnswIndex
    feed: IndexFeed
    copied: list[int]

    async def put(self, key: str, *tags: str, embedder: str = "m", ttl: float = 600.0) -> None:
        assert await self.store.put(entry(key, ttl), frozenset(tags), Place("b", vector_of(key), embedder))

    def holds(self) -> set[str]:
        """The keys in the index, asked for one by one by their vectors."""
        return {key for key in map(str, range(1000)) if key in self.index}


Open = Callable[..., Gateway]


def vector_of(key: str) -> Vector:
    vector = np.random.default_rng(int(key)).standard_normal(DIM, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def entry(key: str, ttl: float = 600.0) -> Entry:
    return Entry(key, "q", (StoredChoice("a", "stop"),), "m", 1, 1, 0.1, NOW, NOW + ttl)


async def synced(*gateways: Gateway) -> None:
    async with asyncio.timeout(60):
        for gateway in gateways:
            await gateway.feed.synced()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(autouse=True)
def server(process: RedisProcess) -> Iterator[Redis]:
    """The empty server, seen past the stores."""
    with Redis(port=process.port) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that a test may kill. What is saved is there when it starts again."""
    with running_redis(tmp_path) as running:
        yield running


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def open_gateway(process: RedisProcess, time: Time) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_gateway(
            url: str = process.url, index: FlatIndex | HnswIndex | None = None, embedder: str = "m", **store: Any
        ) -> Gateway:
            copied: list[int] = []
            opened = RedisStore(url, lambda: time.now, timeout_s=30.0, monotonic=lambda: time.monotonic, **store)
            view = FlatIndex(DIM) if index is None else index
            feed = IndexFeed(
                opened, view, embedder, lambda: time.now, block_s=0.01, pause_s=0.01, answer_s=30.0,
                monotonic=time.running, progress=copied.append,
            )  # fmt: skip
            opened.on_forget(view.remove)
            stack.push_async_callback(opened.close)
            stack.push_async_callback(feed.close)
            return Gateway(opened, view, feed, copied)

        yield open_gateway


async def start(*gateways: Gateway) -> None:
    for gateway in gateways:
        await gateway.feed.start()
    await synced(*gateways)


async def test_what_one_stores_the_other_finds(open_gateway: Open) -> None:
    one, two = open_gateway(), open_gateway()
    await start(one, two)
    await one.put("1")
    await two.put("2")
    await synced(one, two)
    for gateway in (one, two):
        for key in ("1", "2"):
            found = gateway.index.search("b", vector_of(key), 1)
            assert found == [(key, pytest.approx(1.0, abs=1e-3))]
        assert gateway.index.search("another", vector_of("1"), 1) == []
        assert (gateway.feed.applied, gateway.feed.skipped, gateway.feed.foreign, gateway.feed.rebuilt) == (2, 0, 0, 1)
        assert 0 <= gateway.feed.lag_s < 60


async def test_deletions_and_purges_reach_the_other(open_gateway: Open, server: Redis) -> None:
    one, two = open_gateway(), open_gateway()
    await start(one, two)
    await asyncio.gather(*(one.put(str(k), "t") for k in range(620)), *(two.put(str(k)) for k in (700, 701)))
    await synced(one, two)
    assert len(one.index) == len(two.index) == 622
    assert await one.store.delete("700")
    assert await two.store.delete_tagged("t") == 620
    await synced(one, two)
    assert one.holds() == two.holds() == {"701"}
    left = {f"{VECTOR}701", "headgate:answer:701", STREAM, "headgate:tag:t:purged"}
    assert {name.decode() for name in server.keys("*")} == left


async def test_an_answer_put_again_without_a_place_leaves_the_indexes(open_gateway: Open, server: Redis) -> None:
    one, two = open_gateway(), open_gateway()
    await start(one, two)
    await one.put("1")
    await two.put("2")
    await synced(one, two)
    assert await one.store.put(entry("1"), frozenset())
    await synced(one, two)
    assert one.holds() == two.holds() == {"2"}
    assert not server.exists(f"{VECTOR}1")
    before = server.xlen(STREAM)
    assert await one.store.put(entry("3"), frozenset())
    assert await one.store.delete("3")
    assert server.xlen(STREAM) == before, "what was in no index is told to none"


@pytest.mark.parametrize("prefix", ["headgate:", "[a-z]*?^\\:"])
async def test_a_gateway_that_starts_late_copies_what_is_there(
    open_gateway: Open, server: Redis, time: Time, prefix: str
) -> None:
    one = open_gateway(prefix=prefix)
    for key in range(300):
        await one.put(str(key), "odd" if key % 2 else "even", embedder="other" if key >= 290 else "m", ttl=600 + key)
    await one.store.delete_tagged("odd")
    server.set(f"{prefix}vector:junk", b"junk")
    await open_gateway(prefix="zzzz:").put("999")
    time.now = NOW + 700.0
    late = open_gateway(prefix=prefix)
    await start(late)
    assert late.holds() == {str(key) for key in range(102, 290, 2)}
    assert late.copied == sorted(late.copied)
    assert late.copied[-1] == 151
    assert (late.feed.rebuilt, late.feed.skipped, late.feed.foreign) == (1, 1, 5)


async def test_vectors_live_as_long_as_their_entries(open_gateway: Open, server: Redis) -> None:
    one = open_gateway()
    await one.put("1", ttl=600.0)
    assert 590_000 < server.pttl(f"{VECTOR}1") <= 600_000


async def test_what_expires_leaves_the_index_though_nobody_says_so(open_gateway: Open, time: Time) -> None:
    one, two = open_gateway(), open_gateway()
    await start(two)
    await one.put("1", ttl=100.0)
    await one.put("2", ttl=100.0)
    await one.put("3", ttl=500.0)
    await one.put("2", ttl=500.0)
    await synced(two)
    time.now = NOW + 100.0
    time.monotonic += 60.0
    await synced(two)
    await synced(two)
    assert two.holds() == {"2", "3"}, "2 was put again"


async def test_garbage_is_passed_over_and_counted(open_gateway: Open, server: Redis) -> None:
    one, two = open_gateway(), open_gateway()
    await start(two)
    bad = vector_of("5").astype("<f2")
    garbage: list[dict[str, bytes]] = [
        {"put": b""},
        {"put": b"\x91" * 100_000},
        {"put": msgspec.msgpack.encode(["k", "b", "m", "soon", bad.tobytes()])},
        {"put": msgspec.msgpack.encode(["k", "b", "m", NOW + 9, bad.tobytes()[:-1]])},
        {"put": msgspec.msgpack.encode(["k", "b", "m", NOW + 9, bad.tobytes() * 2])},
        {"put": msgspec.msgpack.encode(["k", "b", "m", NOW + 9, (0 * bad).tobytes()])},
        {"put": msgspec.msgpack.encode(["k", "b", "m", NOW + 9, (np.nan * bad).tobytes()])},
        {"gone": b"\xc1"},
        {"gone": msgspec.msgpack.encode("k")},
        {"\xff": b"1"},
    ]
    for fields in garbage:
        server.xadd(STREAM, fields)
    await one.put("1")
    await synced(two)
    assert two.feed.skipped == len(garbage)
    assert two.holds() == {"1"}
    assert len(two.index) == two.feed.applied == two.feed.rebuilt == 1


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


async def test_waits_that_make_no_sense_are_refused(open_gateway: Open) -> None:
    one = open_gateway()
    with pytest.raises(ValueError, match=r"block_s is 0; 0\.001 or more"):
        IndexFeed(one.store, one.index, "m", lambda: NOW, block_s=0)


async def test_an_answer_of_one_cache_is_a_semantic_hit_in_the_other(open_gateway: Open) -> None:
    one, two = open_gateway(embedder="letters"), open_gateway(embedder="letters")
    await start(one, two)
    caches = [
        AnswerCache(gateway.store, Fingerprinter(b"0123456789abcdef"), gateway.index, Letters(), lambda: NOW)
        for gateway in (one, two)
    ]
    query = CacheQuery("team", "auto", "r", b"{}", "What is the capital of France?")
    found = await caches[0].lookup(query)
    await caches[0].store(
        found.fingerprint, query, choices=(StoredChoice("Paris", "stop"),), model="m", prompt_tokens=1,
        completion_tokens=1, device_s=0.1, vector=found.vector, ttl=600.0,
    )  # fmt: skip
    await synced(two)
    verdict = (await caches[1].lookup(replace(query, text="please tell me what the capital of france is"))).verdict
    assert isinstance(verdict, Hit)
    assert (verdict.kind, verdict.entry.choices[0].text) == ("semantic", "Paris")


class Letters:
    """Texts with the same letters are close."""

    name = "letters"
    dim = DIM

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed(self, text: str, _scope: str = "") -> Vector:
        vector = np.full(DIM, 0.01, np.float32)
        for letter in text.lower():
            vector[ord(letter) % DIM] += 1.0
        return vector / np.linalg.norm(vector)
