"""The watch: what it holds back, for whom, and for how long."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from redis_process import running_redis

from headgate.cache.audits.audit import Auditor
from headgate.cache.audits.entry_labels import VOTES
from headgate.cache.audits.label_log import LabelLog
from headgate.cache.audits.labels import Label
from headgate.cache.audits.watch import Quarantined, Watch
from headgate.cache.bound import Evidence, HitModel
from headgate.cache.store.base import StoreDownError
from headgate.cache.store.journal import FileJournal, Journal
from headgate.cache.store.memory import MemoryStore
from headgate.cache.store.redis import RedisStore
from headgate.cache.verdict import Entry, Hit, Near, StoredChoice

RIGHT, WRONG = Label("identical", True), Label("canonical", False)


EVIDENCE = Evidence(0.0, 0.0, 0.0)
MODEL = HitModel(EVIDENCE.names, (0.0,) * 3, (1.0,) * 3, (1.0,) * 3, 0.0, 1.0)


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MemoryStore(1 << 20, lambda: self.now)

    def watch(self, ladder: tuple[float, ...] = (0.7, 0.8, 0.9), journal: Journal | None = None) -> Watch:
        auditor = Auditor(0.02, 1.0, 0.05, b"secret")
        return Watch(self.store, auditor, ladder, ladder[0], LabelLog(journal), lambda: self.now, journal, voices=3)

    async def entry(self, key: str = "k") -> Entry:
        entry = Entry(key, "text", (StoredChoice("a", "stop"),), "m", 1, 1, 1.0, self.now, self.now + 60.0)
        await self.store.put(entry, frozenset())
        return entry


async def serve(watch: Watch, entry: Entry, label: Label, request: str = "r") -> None:
    await watch.audited(watch.draw(entry.key, request), Hit("semantic", entry, 0.85), label)


async def breach(watch: Watch, world: World) -> int:
    """Serve wrong answers until the threshold gives way; gives how many that took."""
    number = 0
    while not watch.breaches:
        number += 1
        await serve(watch, await world.entry(str(number)), WRONG, str(number))
    return number


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


async def test_several_users_hold_an_entry_back_and_nobody_does_alone() -> None:
    world = World()
    watch, other = world.watch(), world.watch()
    entry = await world.entry()

    async def votes(said: bool, *voices: str) -> list[bool]:
        return [await watch.voted("k", world.now, said, voice) for voice in voices]

    # Each voice counts once, and changes its mind once.
    assert await votes(False, "ann", "ann", "ann") == [True, False, False]
    assert await votes(True, "ann") == [True]
    assert await votes(False, "ann") == [False]
    assert await votes(False, "bob", "cem") == [True, True]
    assert await watch.holds(entry, 0.99) is None
    assert await votes(False, "dan") == [True]
    for seen_by in (watch, other):
        assert await seen_by.holds(entry, 0.99) == "quarantine"
    assert [one.wrong for one in await watch.quarantine()] == [3]
    # As many who call it right let it be served again, and an operator who lifts it clears the sheet.
    assert await votes(True, "eve", "fay") == [True, True]
    assert await other.holds(entry, 0.99) is None
    assert await votes(False, "gus", "hal") == [True, True]
    assert await watch.lift("k")
    assert await other.holds(entry, 0.99) is None
    assert await votes(False, "ann", "bob") == [True, True]
    assert await other.holds(entry, 0.99) is None


async def test_votes_push_out_no_label_and_are_of_the_answer_that_was_served() -> None:
    world = World()
    watch, deaf = (
        world.watch(),
        Watch(World().store, Auditor(0.02, 1.0, 0.05, b"s"), (0.7,), 0.7, LabelLog(), lambda: 0),
    )
    entry = await world.entry()
    await serve(watch, entry, WRONG)
    taken = [await watch.voted("k", world.now, True, f"voice-{number}") for number in range(100)]
    assert sum(taken) == VOTES
    assert await watch.holds(entry, 0.99) == "quarantine"
    world.now += 5.0
    await world.entry()
    assert not await watch.voted("k", world.now - 1.0, False, "ann")
    assert not await watch.voted("gone", world.now, False, "ann")
    assert not await deaf.voted("k", world.now, False, "ann")


async def test_near_questions_push_out_nothing_that_holds_an_entry_back() -> None:
    world = World()
    watch, other = world.watch(), world.watch()
    audited, voted = await world.entry(), await world.entry("voted")
    await serve(watch, audited, WRONG)
    for voice in ("ann", "bob", "cem"):
        assert await watch.voted("voted", world.now, False, voice)
    for entry in (audited, voted):
        for number in range(100):
            await watch.answered(Near(entry, 0.85, "quarantine"), Label("canonical", number % 2 == 0))
            await serve(watch, entry, RIGHT, f"{entry.key} {number}")
        for seen_by in (watch, other):
            assert await seen_by.holds(entry, 0.99) == "quarantine"
    assert watch.quarantined == 2


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
        assert await later.holds(msgspec.structs.replace(entry, created=now + 1.0), 0.99) is None
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
        async def note(self, *_: object, **__: object) -> bool:
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
    await watch.answered(Near(entry, 0.75, "numbers"), WRONG)
    assert [(r.against, r.right, r.kind, r.source, r.similarity, r.at) for r in watch.log] == [
        (None, True, "identical", "audit", 0.85, 1000.0),
        ("numbers", False, "canonical", "near", 0.75, 1000.0),
    ]
    assert watch.quarantined == 0, "what was not served need not be held back"
    assert watch.interval().labels == 1


async def test_what_labels_say_of_an_entry_raises_its_bar_and_never_lowers_it() -> None:
    """With one label wrong at log odds of 0, slope and variance 1, the offset solves b = -1 / (1 + exp(-b))."""
    world = World()
    watch = world.watch((0.0, 1.0))
    await watch.resume("rule", MODEL)
    entry, liked = await world.entry(), await world.entry("liked")
    for number in range(20):
        await watch.answered(Near(liked, 0.75, "bound", EVIDENCE), RIGHT)
        assert await watch.holds(liked, -0.01) == "audit", number
    assert await watch.holds(entry, 0.1) is None
    await watch.answered(Near(entry, 0.75, "bound", EVIDENCE), WRONG)
    offset = -0.401058
    assert await watch.holds(entry, -offset - 0.001) == "labels"
    assert await watch.holds(entry, -offset + 0.001) is None
    assert await watch.holds(liked, 0.0) is None
    later = world.watch((0.0, 1.0))
    await later.resume("rule", MODEL)
    assert await later.holds(entry, -offset - 0.001) == "labels", "the labels stay with the entry"
    await later.resume("another rule", MODEL)
    assert await later.holds(entry, 0.0) is None, "another rule's log odds say nothing of this one's"


async def test_a_guard_that_forbade_serving_says_nothing_of_the_entry() -> None:
    world = World()
    watch = world.watch((0.0,))
    await watch.resume("rule", MODEL)
    entry = await world.entry()
    for _ in range(5):
        await watch.answered(Near(entry, 0.75, "numbers"), WRONG)
    assert await watch.holds(entry, 0.0) is None


async def test_a_quarantine_is_listed_and_lifted_for_all(tmp_path: Path) -> None:
    world = World()
    journal = FileJournal(tmp_path)
    watch, other = world.watch(journal=journal), world.watch(journal=journal)
    entry, second = await world.entry(), await world.entry("second")
    await serve(watch, entry, WRONG)
    world.now += 1.0
    await serve(watch, second, WRONG, "s")
    await serve(watch, entry, RIGHT, "t")
    expected = [
        Quarantined("k", "m", 1000.0, 1060.0, 1000.0, 1),
        Quarantined("second", "m", 1000.0, 1060.0, 1001.0, 1),
    ]
    assert await watch.quarantine() == await other.quarantine() == expected
    assert await other.lift("k")
    assert not await other.lift("k")
    assert not await other.lift("never seen")
    for seen_by in (watch, other):
        assert await seen_by.holds(entry, 0.99) is None
        assert await seen_by.holds(second, 0.99) == "quarantine"
        assert await seen_by.quarantine() == expected[1:]
    await serve(watch, entry, WRONG, "u")
    assert await other.holds(entry, 0.99) == "quarantine", "what is found after that counts"
    journal.close()


async def test_a_raised_threshold_and_the_labels_outlive_the_process(tmp_path: Path) -> None:
    world = World()
    journal = FileJournal(tmp_path)
    watch = world.watch(journal=journal)
    await watch.resume("rule", MODEL)
    number = await breach(watch, world)
    journal.close()
    journal = FileJournal(tmp_path)
    later = world.watch(journal=journal)
    await later.resume("rule", MODEL)
    assert (later.threshold, len(later.log)) == (0.8, number)
    assert await later.holds(await world.entry("new"), 0.75) == "audit"
    assert later.quarantined == number
    other = world.watch(journal=journal)
    await other.resume("another rule", MODEL)
    assert other.threshold == 0.7, "it was another rule that proved bad"
    # Taken back, and gateways that run hear of it.
    assert await later.lower()
    assert not await later.lower()
    await watch.sync(await journal.values())
    assert watch.threshold == later.threshold == 0.7
    assert await later.holds(await world.entry("newer"), 0.75) is None
    journal.close()


async def test_gateways_count_each_others_hits_and_find_out_together(tmp_path: Path) -> None:
    world = World()
    journal = FileJournal(tmp_path)
    watches = [world.watch((0.7, 0.8), journal) for _ in range(3)]
    for watch in watches:
        await watch.resume("rule", MODEL)
    alone = world.watch((0.7, 0.8))
    await alone.resume("rule", MODEL)
    number = 0
    while not alone.breaches:
        number += 1
        for taker in (alone, watches[number % 3]):
            await serve(taker, await world.entry(str(number)), WRONG if number % 7 == 0 else RIGHT, str(number))
    assert [watch.breaches for watch in watches] == [0, 0, 0], "by itself none has seen enough"
    for _ in range(2):
        for watch in watches:
            await watch.sync(await journal.values())
    assert [watch.threshold for watch in watches] == [0.8, 0.8, 0.8]
    assert sum(watch.breaches for watch in watches) == 1
    assert [watch.interval().hits for watch in watches] == [0, 0, 0]
    # And on from there.
    for watch in watches:
        await serve(watch, await world.entry("right"), RIGHT, "right")
    for _ in range(2):
        for watch in watches:
            await watch.sync(await journal.values())
    assert [(w.interval().hits, w.interval().labels) for w in watches] == [(3, 3)] * 3
    later = world.watch((0.7, 0.8), journal)
    await later.resume("rule", MODEL)
    assert later.interval().hits == 3
    journal.close()


async def test_a_journal_that_was_lost_hears_of_the_threshold_again(tmp_path: Path) -> None:
    world = World()
    lost = FileJournal(tmp_path)
    watch = world.watch(journal=lost)
    await watch.resume("rule", MODEL)
    await breach(watch, world)
    await serve(watch, await world.entry("right"), RIGHT, "right")
    await watch.sync(await lost.values())
    await watch.sync({})
    lost.close()
    journal = FileJournal(tmp_path)
    assert watch.threshold == 0.8
    later = world.watch(journal=journal)
    await later.resume("rule", MODEL)
    assert later.threshold == 0.8
    journal.close()


async def test_a_journal_that_is_away_loses_nothing_that_matters(tmp_path: Path) -> None:
    class Away(FileJournal):
        away = True

        async def append(self, record: bytes) -> None:
            if self.away:
                raise StoreDownError("away")
            await super().append(record)

        async def set(self, name: str, value: bytes) -> None:
            if self.away:
                raise StoreDownError("away")
            await super().set(name, value)

    world = World()
    journal = Away(tmp_path)
    watch = world.watch(journal=journal)
    await watch.resume("rule", MODEL)
    number = await breach(watch, world)
    assert watch.threshold == 0.8
    journal.away = False
    await watch.sync(await journal.values())
    assert len(await journal.records()) == number
    later = world.watch(journal=journal)
    await later.resume("rule", MODEL)
    assert (later.threshold, len(later.log)) == (0.8, number)
    journal.close()
