"""Several indexes on one Redis, against a real server."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest
from index_gateways import DIM, STREAM, VECTOR, Open, entry, start, synced, vector_of
from msgspec.structs import replace
from redis import Redis
from redis_process import NOW, Time

from headgate.cache.answers import AnswerCache
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.index import Vector
from headgate.cache.store.feed import IndexFeed
from headgate.cache.verdict import Hit, StoredChoice


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
    assert late.feed.copying is None, "done"
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
