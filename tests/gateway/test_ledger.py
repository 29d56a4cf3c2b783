"""The usage ledger: on disk when it says so, whole after a kill, served without while the disk is full."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.teams.budgets import Budgets
from headgate.gateway.teams.costs import Cost
from headgate.gateway.teams.ledger import FILE, PART, Ledger, open_ledger
from headgate.gateway.teams.ledger_file import Entry, Intent, LedgerFile, Settled, read_spent, read_usage
from headgate.gateway.teams.sections import BudgetsSection

ENTRY = Entry(
    "2026-11-22", 0, "red", "laptop", "small", "generated", "", "", "r1",
    prompt_tokens=10, completion_tokens=5, device_us=7, nano_usd=100, drafted_tokens=4,
)  # fmt: skip
SPENT = replace(ENTRY, completion_tokens=2, device_us=3, nano_usd=40, drafted_tokens=1)

KILLED = """
import os, signal, sys, time
from pathlib import Path
from headgate.gateway.teams.ledger_file import Entry, Intent, LedgerFile, Settled
file = LedgerFile(Path(sys.argv[1]))
entry = Entry("2026-11-22", 0, "red", "k", "small", "generated", "", "", "r", prompt_tokens=10, completion_tokens=5,
              device_us=7, nano_usd=100)
for number in range(1, 101):
    file.write([Intent(number, entry)])
    if number % 2:
        file.write([Settled(number, entry)])
    print(number, flush=True)
time.sleep(60)
"""


def rows(path: Path, *by: str) -> dict[tuple[object, ...], tuple[object, ...]]:
    return {row[: len(by)]: row[len(by) :] for row in read_usage(path, by, None, None)}


def test_an_intent_becomes_an_account_or_nothing(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "l")
    file.write([Intent(1, ENTRY), Intent(2, ENTRY), Intent(3, ENTRY)])
    file.write([Settled(1, SPENT), Settled(2, None)])
    assert list(file.sums("2026-11-01")) == [("red", "2026-11-22", Cost(40, 3))]
    assert file.recover() == 1
    assert file.recover() == 0
    assert rows(tmp_path / "l", "cause") == {
        ("cut",): (1, 10, 0, 5, 7, 100, 4),
        ("generated",): (1, 10, 0, 2, 3, 40, 1),
    }
    file.close()


def test_what_was_spent_before_a_clock_that_is_ahead_is_known_when_it_is_set_right(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "l")
    file.gateway()
    for number, day in enumerate(("2026-01-05", "2026-10-25", "2026-11-22", "2028-11-20"), 1):
        file.write([Intent(number, ENTRY), Settled(number, replace(SPENT, day=day))])
    days = ["2026-10-25", "2026-11-22", "2028-11-20"]
    assert [day for _, day, _ in file.sums("2028-10-21")] == days
    assert [day for _, day, _ in read_spent(tmp_path / "l", "2028-10-21")[1]] == days
    assert [day for _, day, _ in file.sums("2025-12-01")] == ["2026-01-05", *days]
    file.close()


def test_a_ledger_of_before_a_column_was_added_can_be_read(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "l")
    file.write([Intent(1, ENTRY), Settled(1, SPENT)])
    file.close()
    with sqlite3.connect(tmp_path / "l") as connection:
        connection.execute("DROP VIEW usage")
        for table in ("generations", "hits", "intents"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN drafted_tokens")
        connection.execute("CREATE VIEW usage AS SELECT * FROM generations UNION ALL SELECT * FROM hits")
    connection.close()
    assert rows(tmp_path / "l", "cause") == {("generated",): (1, 10, 0, 2, 3, 40, 0)}


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "l")
    with pytest.raises(sqlite3.Error):
        file.write([Intent(1, ENTRY), Settled(1, SPENT), Intent(2, ENTRY), Intent(2, ENTRY)])
    assert rows(tmp_path / "l", "cause") == {}
    assert file.recover() == 0
    file.close()


def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "l"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = 0
    for line in process.stdout:
        said = int(line)
        if said == 61:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    file = LedgerFile(path)
    cut = file.recover()
    sums = {cause: counts[0] for (cause,), counts in rows(path, "cause").items()}
    assert sums["cut"] == cut
    assert 30 <= cut <= 51
    assert 31 <= int(str(sums["generated"])) <= 51
    file.close()


async def test_hits_of_a_minute_are_one_row(tmp_path: Path) -> None:
    ledger = Ledger(LedgerFile(tmp_path / "l"))
    for _ in range(1000):
        ledger.hit(("2026-11-22", 60, "red", "", "small", "exact", "", ""), 10, 2)
    await ledger.close()
    connection = sqlite3.connect(tmp_path / "l")
    assert connection.execute("SELECT COUNT(*), SUM(requests), SUM(prompt_tokens) FROM hits").fetchone() == (
        1, 1000, 10_000,
    )  # fmt: skip
    connection.close()


async def test_budgets_go_on_from_the_ledger_and_what_was_cut_counts_as_set_aside(tmp_path: Path) -> None:
    lifecycle, limits = Lifecycle(), BudgetsSection(daily_usd=1, daily_device_s=1)
    first = Budgets(lambda: 1795348800.0)  # 2026-11-22
    ledger = await open_ledger(tmp_path, first, lifecycle)
    assert ledger is not None
    entry = replace(ENTRY, day=first.day(limits))
    await ledger.settled(await ledger.begin(entry), replace(SPENT, day=entry.day))
    await ledger.begin(entry)
    await ledger.close()

    second = Budgets(lambda: 1795348800.0)
    ledger = await open_ledger(tmp_path, second, lifecycle)
    assert ledger is not None
    usd, device = second.shares("red", limits)
    assert (usd.spent, device.spent) == (140 / 1e9, 10 / 1e6)
    assert lifecycle.parts[PART][0] == "ready"
    await ledger.close()


async def test_a_full_disk_holds_nobody_up_and_loses_nothing_that_may_wait(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / FILE, max_pages=12)
    told: list[str | None] = []
    written = asyncio.Event()

    def changed(reason: str | None) -> None:
        told.append(reason)
        if reason is None:
            written.set()

    ledger = Ledger(file, most_waiting=400, retry_s=0.01, changed=changed)
    numbers = []
    while ledger.failing is None:
        numbers.append(await ledger.begin(replace(ENTRY, request="x" * 1000)))
    assert told == ["database or disk is full"]
    for number in numbers:
        await asyncio.wait_for(ledger.settled(number, SPENT), 0.2)
    for _ in range(500):
        ledger.settle(0, SPENT)
    assert ledger.lost > 0
    waiting = ledger.waiting
    assert waiting == 400
    file.resize(None)
    await asyncio.wait_for(written.wait(), 5)
    await ledger.close()
    assert told == ["database or disk is full", None]
    counts: Any = rows(tmp_path / FILE, "team")[("red",)]
    assert counts[0] == len(numbers) + 500 - ledger.lost


async def test_a_generation_whose_client_left_before_it_began_is_not_billed_at_the_next_start(tmp_path: Path) -> None:
    ledger = Ledger(LedgerFile(tmp_path / FILE))
    for _ in range(3):
        beginning = asyncio.create_task(ledger.begin(ENTRY))
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait([beginning])
        assert beginning.cancelled()
    await ledger.close()
    file = LedgerFile(tmp_path / FILE)
    assert file.recover() == 0
    file.close()


async def test_an_entry_that_no_file_can_hold_is_lost_and_no_other_waits_for_it(tmp_path: Path) -> None:
    ledger = Ledger(LedgerFile(tmp_path / "l"))
    numbers = await asyncio.gather(*(ledger.begin(ENTRY) for _ in range(3)))
    entries = [SPENT, replace(SPENT, prompt_tokens=2**64), SPENT]
    await asyncio.gather(*(ledger.settled(number, entry) for number, entry in zip(numbers, entries, strict=True)))
    await ledger.settled(await ledger.begin(ENTRY), SPENT)
    await ledger.close()
    assert (ledger.lost, ledger.waiting, ledger.failing) == (1, 0, None)
    assert rows(tmp_path / "l", "cause") == {("generated",): (3, 30, 0, 6, 9, 120, 3)}


async def test_a_ledger_that_is_none_is_said_and_requests_are_served(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("this is no database, and long enough to be told from an empty one" * 20)
    lifecycle = Lifecycle()
    ledger = await open_ledger(tmp_path, Budgets(), lifecycle)
    assert ledger is not None
    await ledger.settled(await ledger.begin(ENTRY), SPENT)
    state, detail = lifecycle.parts[PART]
    assert state == "failed"
    assert "not a database" in detail
    assert ledger.failing is not None
    await ledger.close()
    assert await open_ledger(None, Budgets(), lifecycle) is None
    assert lifecycle.parts[PART][0] == "off"


async def test_a_start_with_a_disk_that_takes_nothing_keeps_budgets_and_writes_later(tmp_path: Path) -> None:
    limits, lifecycle = BudgetsSection(daily_usd=1), Lifecycle()
    budgets = Budgets(lambda: 1795348800.0)  # 2026-11-22
    file = LedgerFile(tmp_path / FILE)
    name = file.gateway()
    file.write([Intent(1, ENTRY), Intent(2, ENTRY), Settled(1, SPENT)])
    file.close()
    beside = tmp_path / f"{FILE}-wal"  # so that SQLite cannot make it
    beside.mkdir()
    ledger = await open_ledger(tmp_path, budgets, lifecycle)
    assert ledger is not None
    assert ledger.gateway == name
    assert ledger.failing is not None
    assert lifecycle.parts[PART][0] == "failed"
    (usd,) = budgets.shares("red", limits)
    assert usd.spent == 140 / 1e9, "what was left open counts as it was set aside"
    await ledger.settled(await ledger.begin(ENTRY), SPENT)
    beside.rmdir()
    async with asyncio.timeout(10):
        while lifecycle.parts[PART][0] != "ready":  # noqa: ASYNC110  a part tells nobody
            await asyncio.sleep(0.01)
    await ledger.close()
    assert rows(tmp_path / FILE, "cause") == {
        ("cut",): (1, 10, 0, 5, 7, 100, 4),
        ("generated",): (2, 20, 0, 4, 6, 80, 2),
    }


@pytest.mark.parametrize("begun", [False, True])
async def test_a_gateway_keeps_its_name_that_could_not_write_it_at_its_first_start(
    tmp_path: Path, *, begun: bool
) -> None:
    path, beside = tmp_path / FILE, tmp_path / f"{FILE}-wal"
    if begun:  # the disk was full before the name was in it
        LedgerFile(path).close()
    beside.mkdir()
    names = []
    for there in (False, True):
        lifecycle = Lifecycle()
        ledger = await open_ledger(tmp_path, Budgets(), lifecycle)
        assert ledger is not None
        names.append(ledger.gateway)
        if not there:
            beside.rmdir()
        async with asyncio.timeout(10):
            while lifecycle.parts[PART][0] != "ready":  # noqa: ASYNC110  a part tells nobody
                await asyncio.sleep(0.01)
        await ledger.close()
    assert names[0] == names[1], "others that count in the same Redis would add its sums twice"
    assert len(names[0]) == 16


def test_usage_is_summed_by_known_columns(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "l")
    blue = replace(SPENT, team="blue", day="2026-11-20")
    file.write([Intent(1, ENTRY), Settled(1, SPENT), Intent(2, ENTRY), Settled(2, blue)])
    assert rows(tmp_path / "l", "team", "day") == {
        ("blue", "2026-11-20"): (1, 10, 0, 2, 3, 40, 1), ("red", "2026-11-22"): (1, 10, 0, 2, 3, 40, 1),
    }  # fmt: skip
    assert len(read_usage(tmp_path / "l", ("model",), "red", "2026-11-21")) == 1
    assert read_usage(tmp_path / "l", ("model",), "blue", "2026-11-21") == []
    with pytest.raises(ValueError, match="'colour' is no column"):
        read_usage(tmp_path / "l", ("colour",), None, None)
    file.close()


def test_a_file_of_before_there_were_drafts_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "l"
    LedgerFile(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    (view,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'usage'").fetchone()
    connection.execute("DROP VIEW usage")
    for table in ("generations", "hits", "intents"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN drafted_tokens")
    connection.execute(
        "INSERT INTO generations VALUES ('d', 0, 't', 'k', 'm', 'generated', '', '', 'r', 1, 2, 3, 4, 5, 6)"
    )
    connection.execute(view)
    connection.close()
    for _ in range(2):
        file = LedgerFile(path)
        file.write([Intent(1, ENTRY), Settled(1, replace(SPENT, day="d", team="t"), replace(SPENT, cause="retried"))])
        file.close()
    assert rows(path, "cause") == {("generated",): (3, 22, 3, 8, 11, 86, 2), ("retried",): (2, 20, 0, 4, 6, 80, 2)}
