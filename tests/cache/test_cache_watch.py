"""The watch: what it holds back, for whom, and for how long."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from redis_process import running_redis

from headgate.cache.audit import Auditor
from headgate.cache.bound import Evidence, HitModel
from headgate.cache.label_log import LabelLog, LabelRecord
from headgate.cache.labels import Label
from headgate.cache.store.base import StoreDownError
from headgate.cache.store.memory import MemoryStore
from headgate.cache.store.redis import RedisStore
from headgate.cache.verdict import Entry, Hit, Near, StoredChoice
from headgate.cache.watch import Watch

RIGHT, WRONG = Label("identical", True), Label("canonical", False)


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MemoryStore(1 << 20, lambda: self.now)

    def watch(self, ladder: tuple[float, ...] = (0.7, 0.8, 0.9)) -> Watch:
        auditor = Auditor(0.02, 1.0, 0.05, b"secret")
        return Watch(self.store, auditor, ladder, 0.7, LabelLog(), lambda: self.now)

    async def entry(self, key: str = "k") -> Entry:
        entry = Entry(key, "text", (StoredChoice("a", "stop"),), "m", 1, 1, 1.0, self.now, self.now + 60.0)
        await self.store.put(entry, frozenset())
        return entry


async def serve(watch: Watch, entry: Entry, label: Label, request: str = "r") -> None:
    await watch.audited(watch.draw(entry.key, request), Hit("semantic", entry, 0.85), label)


async def test_an_entry_found_wrong_is_held_back_everywhere_until_it_is_replaced() -> None:
    world = World()
    watch, other = world.watch(), world.watch()
    entry, sound = await world.entry(), await world.entry("sound")
    await serve(watch, entry, WRONG)
    await serve(watch, sound, RIGHT, "s")
    assert watch.quarantined == 1
    for seen_by in (watch, other):
        assert await seen_by.holds(entry, 0.99) == "quarantine"
        assert await seen_by.holds(sound, 0.99) is None
    world.now += 5.0
    answered_anew = await world.entry()
    for seen_by in (watch, other):
        assert await seen_by.holds(answered_anew, 0.99) is None
    await world.store.delete("k")
    assert watch.quarantined == 0


async def test_gateways_on_one_redis_hold_back_what_one_of_them_found_wrong(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        now = time.time()
        stores = [RedisStore(server.url, lambda: now, timeout_s=20.0) for _ in range(3)]
        entry = Entry("k", "text", (StoredChoice("a", "stop"),), "m", 1, 1, 1.0, now, now + 600.0)
        finder, other, later = (
            Watch(store, Auditor(0.02, 1.0, 0.05, b"secret"), (0.7,), 0.7, LabelLog(), lambda: now) for store in stores
        )
        await stores[0].put(entry, frozenset())
        assert await other.holds(entry, 0.99) is None
        await serve(finder, entry, WRONG)
        assert await other.holds(entry, 0.99) == await later.holds(entry, 0.99) == "quarantine"
        assert await later.holds(replace(entry, created=now + 1.0), 0.99) is None
        for store in stores:
            await store.close()


async def test_a_mark_outlives_the_entry_by_nothing() -> None:
    world = World()
    watch, later = world.watch(), world.watch()
    entry = await world.entry()
    await serve(watch, entry, WRONG)
    assert await later.holds(entry, 0.99) == "quarantine"
    world.now = entry.expires
    assert await later.holds(entry, 0.99) is None


async def test_too_many_wrong_hits_raise_the_threshold_step_by_step_and_then_nothing_is_served() -> None:
    world = World()
    watch = world.watch()
    number = 0
    for before, after in ((0.7, 0.8), (0.8, 0.9), (0.9, None)):
        assert watch.threshold == before
        breaches = watch.breaches
        while watch.breaches == breaches:
            number += 1
            assert number < 60
            await serve(watch, await world.entry(str(number)), WRONG, str(number))
        assert watch.threshold == after
        # The new threshold starts with a clean sheet.
        assert watch.interval().hits == 0
        fresh = await world.entry(f"fresh{number}")
        assert await watch.holds(fresh, before + 0.05) == "audit"
        assert (await watch.holds(fresh, 0.99) is None) == (after is not None)


async def test_a_label_that_comes_after_the_threshold_rose_counts_for_the_entry_only() -> None:
    world = World()
    watch = world.watch()
    late = watch.draw("late", "late")
    for number in range(20):
        if watch.breaches:
            break
        await serve(watch, await world.entry(str(number)), WRONG, str(number))
    entry = await world.entry("late")
    await watch.audited(late, Hit("semantic", entry, 0.85), WRONG)
    assert watch.interval().labels == 0
    assert await watch.holds(entry, 0.99) == "quarantine"


async def test_a_store_that_is_down_keeps_nothing_from_being_held_back_here() -> None:
    class Down(MemoryStore):
        async def put(self, *_: object, **__: object) -> bool:
            raise StoreDownError("away")

    world = World()
    entry = await world.entry()
    world.store = Down(1 << 20, lambda: world.now)
    watch = world.watch()
    await serve(watch, entry, WRONG)
    assert await watch.holds(entry, 0.99) == "quarantine"


async def test_every_label_is_logged_with_where_it_came_from() -> None:
    world = World()
    watch = world.watch()
    entry = await world.entry()
    await serve(watch, entry, RIGHT)
    watch.answered(Near(entry, 0.75, "numbers"), WRONG)
    assert [(r.against, r.right, r.kind, r.source, r.similarity, r.at) for r in watch.log] == [
        (None, True, "identical", "audit", 0.85, 1000.0),
        ("numbers", False, "canonical", "near", 0.75, 1000.0),
    ]
    assert watch.quarantined == 0, "what was not served need not be held back"
    assert watch.interval().labels == 1


def record(entry: str, number: int, evidence: Evidence | None = None, right: bool = True) -> LabelRecord:
    return LabelRecord(entry, 0.8, None, right, "identical", "audit", float(number), evidence)


def test_the_log_is_bounded_and_survives_its_packing() -> None:
    log = LabelLog(capacity=5, per_entry=2)
    for number in range(9):
        log.add(record("ab"[number % 2], number))
    assert [r.at for r in log] == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert [r.at for r in log.of_entry("a")] == [6.0, 8.0]
    copy = LabelLog()
    copy.unpack(log.pack())
    assert list(copy) == list(log)
    for number in range(5):
        log.add(record("c", number))
    assert log.of_entry("a") == ()
    for packed in (b"\xc1", msgspec.msgpack.encode((2, [])), msgspec.msgpack.encode((1, [7]))):
        with pytest.raises(ValueError, match="label log"):
            copy.unpack(packed)


def test_an_entry_whose_labels_say_wrong_gets_an_offset_below_zero() -> None:
    evidence = Evidence(0.9, 0.1, 0.8)
    model = HitModel(evidence.names, (0.0,) * 3, (1.0,) * 3, (1.0,) * 3, 0.0, 1.0)
    log = LabelLog()
    for number in range(3):
        log.add(record("bad", number, evidence, right=False))
        log.add(record("good", number, evidence))
        log.add(record("unknown", number))
    assert log.offset("bad", model) < 0 < log.offset("good", model)
    assert log.offset("unknown", model) == log.offset("never seen", model) == 0.0
