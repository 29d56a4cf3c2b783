import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, StoredChoice


def entry(key: str, *, body: int = 0, created: float = 0.0, expires: float = 1e9) -> Entry:
    return Entry(key, "q", (StoredChoice("x" * body, "stop"),), "m", 1, 1, 0.1, created, expires)


SIZE = entry("a").size


async def test_keeps_replaces_and_deletes() -> None:
    store = MemoryStore(10 * SIZE, lambda: 0.0)
    gone: list[str] = []
    store.on_forget(gone.append)
    assert await store.get("a") is None
    assert await store.put(entry("a"), frozenset({"t"}))
    newer = replace(entry("a"), created=5.0)
    assert await store.put(newer, frozenset({"u"}))
    assert await store.get("a") == newer
    assert (len(store), store.bytes_used, gone) == (1, newer.size, [])
    assert await store.delete_tagged("t") == 0
    assert await store.delete("a")
    assert not await store.delete("a")
    assert (len(store), store.bytes_used, gone) == (0, 0, ["a"])


async def test_the_least_recently_used_leaves_first() -> None:
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


async def test_expired_entries_are_never_given_and_make_room_first() -> None:
    now = [0.0]
    store = MemoryStore(2 * SIZE, lambda: now[0])
    gone: list[str] = []
    store.on_forget(gone.append)
    await store.put(entry("a"), frozenset())
    await store.put(entry("b", expires=10.0), frozenset({"t"}))
    await store.get("b")
    now[0] = 10.0
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
    assert await store.delete_tagged("x") == 2
    assert await store.get("c") is not None
    assert len(store) == 1


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes is -1"):
        MemoryStore(-1, lambda: 0.0)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "get", "delete", "tag", "tick"]),
        st.sampled_from("abcdef"),
        st.integers(0, 900),
        st.integers(1, 8),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_any_run_agrees_with_a_simple_model(operations: list[tuple[str, str, int, int]]) -> None:
    async def run() -> None:
        now = 0.0
        budget = 4 * SIZE
        store = MemoryStore(budget, lambda: now)
        model: dict[str, tuple[Entry, str]] = {}  # ordered by use

        def forget(key: str) -> None:
            assert key in model
            del model[key]

        store.on_forget(forget)
        for action, key, body, ttl in operations:
            if action == "tick":
                now += ttl
            elif action == "get":
                expected = model.get(key)
                found = await store.get(key)
                if expected is not None and expected[0].expires > now:
                    assert found == expected[0]
                    model[key] = model.pop(key)
                else:
                    assert found is None
                    assert key not in model
            elif action == "delete":
                held = key in model
                assert await store.delete(key) == held
            elif action == "tag":
                tag = "even" if body % 2 == 0 else "odd"
                keys = {k for k, (_, t) in model.items() if t == tag}
                assert await store.delete_tagged(tag) == len(keys)
                assert keys.isdisjoint(model)
            else:
                tag = "even" if body % 2 == 0 else "odd"
                item = entry(key, body=body, created=now, expires=now + ttl)
                if item.size <= budget:
                    if key in model and model[key][0].expires > now:
                        del model[key]  # replaced, which is not forgotten
                    live = [k for k, (e, _) in model.items() if e.expires > now]
                    assert await store.put(item, frozenset({tag}))
                    kept = list(model)
                    assert kept == live[len(live) - len(kept) :]
                    model[key] = (item, tag)
                else:
                    assert not await store.put(item, frozenset({tag}))
                    assert key not in model
            assert store.bytes_used == sum(e.size for e, _ in model.values()) <= budget
            assert len(store) == len(model)

    asyncio.run(run())
