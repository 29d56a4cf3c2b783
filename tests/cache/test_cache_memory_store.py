import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_entries import SIZE, charge, entry

from headgate.cache.index import Place
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, StoredChoice


async def charge_of_tags(tags: frozenset[str]) -> int:
    """Of the first entry with them."""
    store = MemoryStore(10**6, lambda: 0.0)
    await store.put(entry("a"), tags)
    return store.bytes_used - charge(entry("a"))


async def test_keeps_replaces_and_deletes() -> None:
    store = MemoryStore(10 * SIZE, lambda: 0.0)
    gone: list[str] = []
    store.on_forget(gone.append)
    assert await store.get("a") is None
    assert await store.put(entry("a"), frozenset({"t"}))
    newer = msgspec.structs.replace(entry("a"), created=5.0)
    assert await store.put(newer, frozenset({"u"}))
    assert await store.get("a") == newer
    assert (len(store), store.bytes_used, gone) == (1, charge(newer) + await charge_of_tags(frozenset("u")), [])
    assert await store.delete_tagged("t") == 0
    assert await store.delete("a")
    assert not await store.delete("a")
    assert (len(store), store.bytes_used, gone) == (0, 0, ["a"])


async def test_of_equals_the_least_recently_used_leaves_first() -> None:
    store = MemoryStore(2 * SIZE, lambda: 0.0)
    gone: list[str] = []
    store.on_forget(gone.append)
    await store.put(entry("a"), frozenset())
    await store.put(entry("b"), frozenset())
    await store.get("a")
    await store.put(entry("c"), frozenset())
    assert gone == ["b"]
    assert store.evictions == 1
    assert await store.get("a") is not None


async def test_what_saves_least_per_byte_leaves_first() -> None:
    cheap, dear = entry("cheap", device_s=0.1), entry("dear", device_s=5.0)
    large = entry("large", device_s=5.0, body=900)
    store = MemoryStore(charge(cheap) + charge(dear) + charge(large), lambda: 0.0)
    for item in (dear, large, cheap):
        await store.put(item, frozenset())
    await store.get("cheap")
    assert await store.put(entry("new", device_s=5.0), frozenset())
    assert await store.get("cheap") is None, "used last and twice, and yet it saves little"
    assert await store.put(entry("newer", device_s=5.0, body=500), frozenset())
    assert await store.get("large") is None, "it saves as much as the others and takes more room"
    assert await store.get("dear") == dear


async def test_what_is_worth_less_than_all_others_is_not_kept() -> None:
    store = MemoryStore(2 * charge(entry("a", device_s=5.0)), lambda: 0.0)
    for key in "ab":
        assert await store.put(entry(key, device_s=5.0), frozenset())
    assert not await store.put(entry("c", device_s=0.1), frozenset())
    assert await store.get("a") is not None
    assert await store.get("b") is not None


async def test_what_nobody_asks_for_any_more_ages() -> None:
    store = MemoryStore(2 * charge(entry("a", device_s=1.0)), lambda: 0.0)
    gone: list[str] = []
    store.on_forget(gone.append)
    await store.put(entry("a", device_s=1.0), frozenset())
    for _ in range(5):
        await store.get("a")
    for key in "bcdefghijklmnopqrstu":
        await store.put(entry(key, device_s=1.0), frozenset())
    assert "a" not in gone[:3]
    assert "a" in gone, "once loved, then forgotten"


async def test_what_an_index_takes_for_an_entry_is_charged_too() -> None:
    store = MemoryStore(2 * SIZE, lambda: 0.0)
    place = Place("b", np.ones(64, dtype=np.float32) / 8, "m", 300)
    taken = 0
    store.beside(lambda: taken)
    await store.put(entry("a"), frozenset(), place)
    assert store.bytes_used == SIZE, "it is not there yet"
    taken = 300
    assert store.bytes_used == SIZE + 300
    assert await store.put(entry("a"), frozenset(), place)
    assert store.bytes_used == SIZE + 300
    assert await store.put(entry("b", device_s=9.0), frozenset())
    assert (await store.get("a"), store.bytes_used) == (None, SIZE + 300), "two are too many beside 300 bytes"
    taken = 0
    assert await store.put(entry("c", device_s=99.0), frozenset(), replace(place, row_bytes=SIZE - 1))
    assert len(store) == 1, "room is made for what is to come"
    assert not await store.put(entry("d"), frozenset(), replace(place, row_bytes=2 * SIZE))
    taken = 3 * SIZE
    assert not await store.put(entry("e"), frozenset())
    assert len(store) == 0
    assert store.max_bytes == 2 * SIZE


async def test_tags_that_many_have_are_charged_once_and_others_each() -> None:
    shared = frozenset({"team", "all"})
    once = await charge_of_tags(shared)
    store = MemoryStore(10**6, lambda: 0.0)
    for key in "abcd":
        await store.put(entry(key), shared)
    assert store.bytes_used == 4 * SIZE + once
    await store.put(entry("e"), shared | {"own"})
    assert store.bytes_used > 5 * SIZE + 2 * once
    assert (await store.count_tagged("team"), await store.count_tagged("own")) == (5, 1)
    await store.delete("e")
    for key in "abc":
        await store.delete(key)
    assert store.bytes_used == SIZE + once
    await store.delete("d")
    assert store.bytes_used == 0


async def test_a_row_that_is_used_again_has_nothing_of_the_entry_before() -> None:
    store = MemoryStore(10 * SIZE, lambda: 0.0)
    await store.put(entry("a", device_s=9.0), frozenset({"t"}))
    await store.note("a", b"a's")
    await store.get("a")
    await store.delete("a")
    await store.put(entry("b", body=3), frozenset())
    assert await store.get("b") == entry("b", body=3)
    assert (await store.notes("b"), await store.count_tagged("t"), await store.get("a")) == ((), 0, None)
    assert store.bytes_used == charge(entry("b", body=3))


async def test_an_entry_comes_back_as_it_was_put() -> None:
    choices = (StoredChoice("é\n", "stop", (1, 70_000), b"\x01"), StoredChoice("", "length"))
    item = Entry("k" * 32, "ä?", choices, "small", 20, 12, 0.25, 1e9 + 0.5, 2e9, bytes(range(256)), b"s", 9)
    store = MemoryStore(10**6, lambda: 0.0)
    await store.put(item, frozenset())
    assert await store.get(item.key) == item


async def test_text_that_is_not_unicode_is_not_kept() -> None:
    store = MemoryStore(10 * SIZE, lambda: 0.0)
    assert not await store.put(entry("a", text="\ud800"), frozenset())
    assert store.bytes_used == 0


async def test_expired_entries_are_never_given_and_make_room_first() -> None:
    now = [0.0]
    store = MemoryStore(2 * SIZE + await charge_of_tags(frozenset({"t"})), lambda: now[0])
    gone: list[str] = []
    store.on_forget(gone.append)
    await store.put(entry("a"), frozenset())
    await store.put(entry("b", expires=10.0), frozenset({"t"}))
    await store.get("b")
    assert await store.count_tagged("t") == 1
    now[0] = 10.0
    assert await store.count_tagged("t") == 0
    await store.put(entry("c"), frozenset())
    assert gone == ["b"]
    assert store.evictions == 0
    await store.put(entry("c", expires=20.0), frozenset())
    now[0] = 20.0
    assert await store.get("c") is None
    assert gone == ["b", "c"]
    assert await store.delete_tagged("t") == 0


async def test_too_large_or_too_late_is_not_stored_and_ends_the_older_answer() -> None:
    store = MemoryStore(SIZE, lambda: 100.0)
    assert not await store.put(entry("a", body=1), frozenset())
    assert not await store.put(entry("a", expires=100.0), frozenset())
    assert await store.put(entry("a"), frozenset())
    assert not await store.put(entry("a", body=1), frozenset())
    assert await store.get("a") is None
    assert not await MemoryStore(0, lambda: 0.0).put(entry("a"), frozenset())


async def test_tags_drop_together() -> None:
    store = MemoryStore(10 * SIZE, lambda: 0.0)
    for key, tags in (("a", {"x"}), ("b", {"x", "y"}), ("c", {"y"})):
        await store.put(entry(key), frozenset(tags))
    assert await store.count_tagged("y") == 2
    assert await store.delete_tagged("x") == 2
    assert await store.get("c") is not None
    assert len(store) == 1


@pytest.mark.parametrize("set_by", [-3600.0, 3600.0])
async def test_entries_live_as_long_as_they_were_put_for_whatever_the_clock_is_set_to(set_by: float) -> None:
    wall, elapsed = 1000.0, 5.0
    store = MemoryStore(10**6, lambda: wall, lambda: elapsed)
    await store.put(entry("a", created=wall, expires=wall + 60.0), frozenset({"t"}))
    wall += set_by
    assert await store.get("a") is not None
    await store.put(entry("b", created=wall, expires=wall + 60.0), frozenset({"t"}))
    elapsed += 59.0
    assert await store.count_tagged("t") == 2
    elapsed += 1.0
    assert (await store.get("a"), store.packed("b"), await store.count_tagged("t")) == (None, None, 0)


async def test_an_answer_on_its_way_when_its_tag_was_purged_is_not_kept() -> None:
    now = [100.0]
    store = MemoryStore(10 * SIZE, lambda: now[0])
    await store.delete_tagged("t")
    assert not await store.put(entry("a"), frozenset({"t"}), asked=99.0)
    assert await store.put(entry("a"), frozenset({"t"}), asked=101.0)
    assert await store.put(entry("b"), frozenset({"u"}), asked=99.0)
    now[0] = 1000.0
    await store.delete_tagged("u")
    assert await store.put(entry("a"), frozenset({"t"}), asked=99.0), "nobody asks for ten minutes"


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes is -1"):
        MemoryStore(-1, lambda: 0.0)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "get", "get", "delete", "tag", "tick"]),
        st.sampled_from("abcdef"),
        st.integers(0, 900),
        st.integers(1, 8),
    ),
    max_size=60,
)


@dataclass
class Modelled:
    entry: Entry
    tag: str
    uses: int
    level: float
    """When it was last used."""
    order: int

    @property
    def rank(self) -> tuple[float, int]:
        size = charge(self.entry)
        return self.level + self.uses * self.entry.device_s / size, self.order


@given(OPERATIONS)
def test_any_run_agrees_with_a_model_that_looks_at_every_entry(operations: list[tuple[str, str, int, int]]) -> None:
    async def run() -> None:
        now, level = 0.0, 0.0
        tag_charge = await charge_of_tags(frozenset({"odd"}))
        budget = 4 * SIZE + 2 * tag_charge
        store = MemoryStore(budget, lambda: now)
        model: dict[str, Modelled] = {}
        gone: list[str] = []
        store.on_forget(gone.append)

        def used() -> int:
            return sum(charge(m.entry) for m in model.values()) + len({m.tag for m in model.values()}) * tag_charge

        def drop(keys: list[str]) -> list[str]:
            for key in keys:
                del model[key]
            return keys

        def expired() -> list[str]:
            return sorted((k for k, m in model.items() if m.entry.expires <= now), key=lambda k: model[k].entry.expires)

        for order, (action, key, body, ttl) in enumerate(operations):
            gone.clear()
            left: list[str] = []
            tag = "even" if body % 2 == 0 else "odd"
            if action == "tick":
                now += ttl
            elif action == "get":
                found = await store.get(key)
                if key in model and model[key].entry.expires <= now:
                    left = drop([key])
                if key in model:
                    known = model[key]
                    known.uses, known.level, known.order = known.uses + 1, level, order
                    assert found == known.entry
                else:
                    assert found is None
            elif action == "delete":
                left = drop([key] if key in model else [])
                assert await store.delete(key) == bool(left)
            elif action == "tag":
                left = drop([k for k, m in model.items() if m.tag == tag])
                assert await store.delete_tagged(tag) == len(left)
            else:
                item = entry(key, body=body, created=now, expires=now + ttl, device_s=ttl / 10)
                left = drop(expired())
                uses = model[key].uses if key in model else 1
                if charge(item) + tag_charge > budget:
                    left += drop([key] if key in model else [])
                else:
                    model[key] = Modelled(item, tag, uses, level, order)
                    while used() > budget:
                        worst = min(model, key=lambda k: model[k].rank)
                        level = model[worst].rank[0]
                        left += drop([worst])
                assert await store.put(item, frozenset({tag})) == (key in model)
            assert sorted(gone) == sorted(left)
            assert store.bytes_used == used() <= budget
            assert len(store) == len(model)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
async def test_it_saves_more_device_time_than_keeping_the_latest(seed: int) -> None:
    """Zipf popularity; what an answer costs and how long it is vary as they do: over two orders, and not together."""
    draw = random.Random(seed)
    texts = 2000
    items = [
        entry(str(i), body=int(draw.lognormvariate(6.5, 1.0)), device_s=draw.lognormvariate(0.0, 1.2))
        for i in range(texts)
    ]
    draw.shuffle(items)
    stream = draw.choices(items, weights=[1 / (rank + 1) ** 0.9 for rank in range(texts)], k=20_000)
    budget = sum(charge(item) for item in items) // 10
    store, saved = MemoryStore(budget, lambda: 0.0), 0.0
    latest: OrderedDict[str, Entry] = OrderedDict()
    used, saved_by_latest = 0, 0.0
    for item in stream:
        if await store.get(item.key) is not None:
            saved += item.device_s
        else:
            await store.put(item, frozenset())
        if item.key in latest:
            saved_by_latest += item.device_s
            latest.move_to_end(item.key)
        else:
            latest[item.key] = item
            used += charge(item)
            while used > budget:
                used -= charge(latest.popitem(last=False)[1])
    print(f"saved {saved:.0f} s of device time, the latest {saved_by_latest:.0f} s")
    assert saved > 1.1 * saved_by_latest
