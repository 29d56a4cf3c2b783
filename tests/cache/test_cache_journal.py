"""Journals: in a folder that may be cut off anywhere, and in a Redis that may be full or away."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis
from redis_process import RedisProcess

from headgate.cache.store.base import StoreDownError
from headgate.cache.store.journal import FileJournal, Journal
from headgate.cache.store.redis import RedisStore
from headgate.cache.store.redis_journal import RedisJournal

OpenStore = Callable[..., RedisStore]
Reopen = Callable[[], Awaitable[Journal]]


@pytest.fixture(params=["file", "redis"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Gives the journal as a later process finds it; it keeps three records."""
    files: list[FileJournal] = []
    if request.param == "redis":
        open_store: OpenStore = request.getfixturevalue("open_store")

    async def reopen() -> Journal:
        if request.param == "redis":
            return RedisJournal(open_store(), "n", keep=3)
        if files:
            files.pop().close()
        files.append(FileJournal(tmp_path, keep=3))
        return files[0]

    return reopen


async def test_what_was_kept_is_there_for_the_next_process(reopen: Reopen) -> None:
    journal = await reopen()
    assert (await journal.records(), await journal.values()) == ([], {})
    for record in (b"", b"\x00\xff", b"one", b"two", b"three"):
        await journal.append(record)
        assert (await (await reopen()).records())[-1] == record
        journal = await reopen()
    assert (await journal.records())[-3:] == [b"one", b"two", b"three"]
    await journal.set("name", b"\x00")
    await journal.set("name", b"\x01")
    assert await journal.add({"a": 2, "b": 1}) == {"a": 2, "b": 1}
    assert await journal.add({"a": 3}) == {"a": 5}
    assert await (await reopen()).values() == {"name": b"\x01", "a": b"5", "b": b"1"}


async def test_the_oldest_records_go_first(reopen: Reopen) -> None:
    journal = await reopen()
    for number in range(40):
        await journal.append(str(number).encode())
        assert len(await journal.records()) <= 6
    journal = await reopen()
    assert (await journal.records())[-3:] == [b"37", b"38", b"39"]
    await journal.append(b"40")
    assert (await (await reopen()).records())[-2:] == [b"39", b"40"]


RECORDS = [b"first", b"", b"third" * 50]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of three records."""
    folder = tmp_path_factory.mktemp("whole")

    async def write() -> None:
        journal = FileJournal(folder)
        for record in RECORDS:
            await journal.append(record)
        journal.close()

    asyncio.run(write())
    return (folder / "labels").read_bytes()


@given(cut=st.integers(0, 500), damage=st.none() | st.integers(0, 400))
def test_a_crash_costs_what_was_half_written_and_nothing_before(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, cut: int, damage: int | None
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    content = bytearray(whole[:cut])
    if damage is not None and damage < len(content):
        content[damage] ^= 0x55
    (folder / "labels").write_bytes(content)

    async def check() -> None:
        journal = FileJournal(folder)
        found = await journal.records()
        assert found == RECORDS[: len(found)]
        ends = [8 + 5, 8 + 5 + 8, len(whole)]
        untouched = min(cut, len(whole) if damage is None else damage)
        assert len(found) >= sum(end <= untouched for end in ends)
        await journal.append(b"next")
        journal.close()
        again = FileJournal(folder)
        assert await again.records() == [*found, b"next"]
        again.close()

    asyncio.run(check())


async def test_a_disk_that_is_full_for_a_while_costs_nothing_that_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = FileJournal(tmp_path, keep=3)
    # Where the shorter file would be written is no room for it.
    (tmp_path / "labels.new").mkdir()
    for number in range(8):
        await journal.append(b"%d" % number)
    assert "could not be made shorter" in caplog.text
    assert (await journal.records())[-3:] == [b"5", b"6", b"7"]
    (tmp_path / "labels.new").rmdir()
    for number in range(8, 14):
        await journal.append(b"%d" % number)
    journal.close()
    again = FileJournal(tmp_path, keep=3)
    assert [int(record) for record in await again.records()] == [9, 10, 11, 12, 13]
    again.close()


async def test_a_record_that_the_disk_refused_is_kept_once_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path)
    await journal.append(b"one")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        with pytest.raises(OSError, match="no space"):
            await journal.append(b"two")
    await journal.append(b"two")
    journal.close()
    again = FileJournal(tmp_path)
    assert await again.records() == [b"one", b"two"]
    again.close()


async def test_who_leaves_while_the_disk_writes_lets_nobody_write_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, sync = FileJournal(tmp_path), os.fsync
    begun, done, at_once = threading.Event(), threading.Event(), []

    def slow(file: int) -> None:
        at_once.append(file)
        begun.set()
        assert done.wait(20)
        sync(file)

    monkeypatch.setattr(os, "fsync", slow)
    leaving = asyncio.create_task(journal.set("a", b"1"))
    assert await asyncio.to_thread(begun.wait, 20)
    leaving.cancel()
    staying = asyncio.create_task(journal.set("b", b"2"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (leaving.done(), len(at_once)) == (False, 1)
    done.set()
    await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await journal.values() == {"a": b"1", "b": b"2"}
    journal.close()


async def test_a_folder_that_is_taken_away_is_made_anew_with_all_that_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "of" / "journal"
    journal = FileJournal(folder)
    await journal.append(b"one")
    await journal.set("name", b"value")
    shutil.rmtree(tmp_path / "of")
    await journal.append(b"two")
    assert await journal.add({"count": 2}) == {"count": 2}
    (folder / "labels").unlink()
    await journal.append(b"three")
    with pytest.raises(OSError, match="used by another process"):
        FileJournal(folder)
    journal.close()
    assert sum("taken away" in message for message in caplog.messages) == 2
    again = FileJournal(folder)
    assert await again.records() == [b"one", b"two", b"three"]
    assert await again.values() == {"name": b"value", "count": b"2"}
    again.close()


async def test_a_folder_serves_one_process_at_a_time(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "made" / "for it")
    with pytest.raises(OSError, match="used by another process"):
        FileJournal(tmp_path / "made" / "for it")
    journal.close()
    FileJournal(tmp_path / "made" / "for it").close()
    (tmp_path / "values").write_bytes(b"\xc1")
    with pytest.raises(ValueError, match="no journal"):
        FileJournal(tmp_path)


async def test_journals_of_other_secrets_are_others(open_store: OpenStore) -> None:
    one, other = (RedisJournal(open_store(), name) for name in ("one", "other"))
    await one.append(b"x")
    await one.set("a", b"1")
    assert (await other.records(), await other.values()) == ([], {})


async def test_a_journal_nobody_looks_at_goes_in_the_end(open_store: OpenStore, server: Redis) -> None:
    journal = RedisJournal(open_store(), "n")
    await journal.append(b"x")
    await journal.set("a", b"1")
    names = server.keys("*journal*")
    assert len(names) == 2
    for name in names:
        server.persist(name)
    await journal.values()
    assert all(0 < server.ttl(name) <= 30 * 86400 for name in names)


async def test_a_full_server_keeps_no_journal_and_still_gives_answers(
    open_store: OpenStore, server: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    journal = RedisJournal(store, "n")
    server.config_set("maxmemory", 1)
    with pytest.raises(OSError, match="does not keep the journal"):
        await journal.append(b"x")
    with caplog.at_level(logging.WARNING):
        assert await store.get("nothing") is None, "it is not taken for down"
    assert caplog.records == []


async def test_a_server_that_is_away_says_so(open_store: OpenStore, mortal: RedisProcess) -> None:
    journal = RedisJournal(open_store(mortal.url), "n")
    mortal.kill()
    with pytest.raises(StoreDownError):
        await journal.values()
