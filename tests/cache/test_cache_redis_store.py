"""The store in Redis, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis_process import NOW, RedisProcess, Time

from headgate.cache.index import Place
from headgate.cache.store.base import NOTES, PASSING_NOTES
from headgate.cache.store.redis import MAX_ENTRY_BYTES, RedisStore
from headgate.cache.verdict import Entry, StoredChoice

ANSWER = "headgate:answer:"

TAG = "headgate:tag:"

Open = Callable[..., RedisStore]


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
    times = NOW - 0.125, NOW + 60.5
    stored = Entry("k" * 32, "où? \u2028", choices, "org/model:1", 7, 2**40, 0.1 + 0.2, *times, image_tokens=5)
    store = open_store()
    assert await store.get(stored.key) is None
    assert await store.put(stored, frozenset({"t"}))
    assert await store.get(stored.key) == stored


async def test_an_entry_of_before_tokens_of_pictures_were_counted_has_none(open_store: Open, server: Redis) -> None:
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(entry("a")))
    del older["image_tokens"]
    server.set(f"{ANSWER}a", msgspec.msgpack.encode(older))
    assert await open_store().get("a") == entry("a")


async def test_two_stores_on_a_server_share_entries_replacements_and_deletions(open_store: Open) -> None:
    one, two = open_store(), open_store()
    await one.put(entry("a"), frozenset())
    assert await two.get("a") == entry("a")
    await two.put(entry("a", body="newer"), frozenset())
    assert await one.get("a") == entry("a", body="newer")
    assert await one.delete("a")
    assert not await one.delete("a")
    assert await two.get("a") is None


async def test_the_name_in_a_certificate_is_checked_by_every_version_of_the_client() -> None:
    for url, checked in (("rediss://localhost", True), ("redis://localhost", None)):
        store = RedisStore(url, lambda: NOW)
        assert store.client.connection_pool.connection_kwargs.get("ssl_check_hostname") is checked
        await store.close()


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
    assert await store.put(msgspec.structs.replace(entry("b"), expires=float("inf")), frozenset())
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


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
async def test_a_purge_is_known_to_come_later_though_clocks_differ(open_store: Open, time: Time, ahead: float) -> None:
    one, two = open_store(), open_store()
    asked = time.now
    time.now += ahead
    await one.delete_tagged("t")
    time.now += 1.0 - ahead
    assert not await two.put(entry("a"), frozenset({"t"}), asked=asked)
    assert await two.put(entry("a"), frozenset({"t"}), asked=time.now + 1.0)


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


async def test_passing_notes_push_out_only_each_other(open_store: Open) -> None:
    one, other = open_store(), open_store()
    await one.put(entry("a"), frozenset())
    lasting, passing = [b"l%02d" % n for n in range(4)], [b"p%02d" % n for n in range(3 * NOTES)]
    assert await one.note("a", passing[0], passing=True)
    assert await one.note("a", lasting[0])
    for number, note in enumerate(passing[1:]):
        assert await (one, other)[number % 2].note("a", note, passing=True)
    for note in lasting[1:]:
        assert await other.note("a", note)
    assert await one.notes("a") == (lasting[0], *passing[-PASSING_NOTES:], *lasting[1:])


async def test_notes_stay_with_their_entry(open_store: Open, server: Redis) -> None:
    one, other = open_store(), open_store()
    assert not await one.note("a", b"nobody's")
    await one.put(entry("a"), frozenset({"t"}))
    for number in range(NOTES + 2):
        assert await (one, other)[number % 2].note("a", b"%02d" % number)
    assert await other.notes("a") == tuple(b"%02d" % number for number in range(2, NOTES + 2))
    ends_at = [server.execute_command("PEXPIRETIME", f"headgate:{kind}:a") for kind in ("notes", "answer")]
    assert ends_at[0] == ends_at[1] > 0
    for ends in (one.put(entry("a"), frozenset()), one.delete("a"), one.delete_tagged("t")):
        await other.put(entry("a"), frozenset({"t"}))
        await other.note("a", b"x")
        await ends
        assert await other.notes("a") == ()
        assert not server.exists("headgate:notes:a")
