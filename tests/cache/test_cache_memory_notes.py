"""Notes beside the entries of a store in memory."""

from __future__ import annotations

from memory_entries import SIZE, entry

from headgate.cache.store.base import NOTES, PASSING_NOTES
from headgate.cache.store.memory import MemoryStore


async def test_notes_stay_with_their_entry_and_are_charged() -> None:
    clock = [0.0]
    store = MemoryStore(10 * SIZE, lambda: clock[0])
    assert not await store.note("a", b"nobody's")
    await store.put(entry("a", expires=10.0), frozenset())
    empty = store.bytes_used
    for number in range(NOTES + 2):
        assert await store.note("a", b"%02d" % number)
    assert await store.notes("a") == tuple(b"%02d" % number for number in range(2, NOTES + 2))
    assert store.bytes_used > empty + NOTES
    charged = store.bytes_used
    await store.note("a", b"99")
    assert store.bytes_used == charged
    await store.put(entry("a", created=1.0, expires=10.0), frozenset())
    assert (await store.notes("a"), store.bytes_used) == ((), empty), "another answer"
    await store.note("a", b"new")
    clock[0] = 10.0
    assert await store.notes("a") == ()


async def test_passing_notes_push_out_only_each_other() -> None:
    store = MemoryStore(10 * SIZE, lambda: 0.0)
    await store.put(entry("a"), frozenset())
    empty = store.bytes_used
    lasting, passing = [b"l%02d" % n for n in range(4)], [b"p%02d" % n for n in range(3 * NOTES)]
    assert await store.note("a", passing[0], passing=True)
    assert await store.note("a", lasting[0])
    for note in passing[1:]:
        assert await store.note("a", note, passing=True)
    for note in lasting[1:]:
        assert await store.note("a", note)
    assert await store.notes("a") == (lasting[0], *passing[-PASSING_NOTES:], *lasting[1:])
    await store.put(entry("a", created=1.0), frozenset())
    assert (await store.notes("a"), store.bytes_used) == ((), empty)


async def test_notes_make_room_for_themselves() -> None:
    store = MemoryStore(2 * SIZE, lambda: 0.0)
    for key in "ab":
        await store.put(entry(key), frozenset())
    assert await store.note("b", b"x")
    assert (await store.get("a"), await store.notes("b")) == (None, (b"x",))
    assert store.bytes_used <= store.max_bytes
