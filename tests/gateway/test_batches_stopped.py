"""Batches that are cancelled, or stopped by a full disk, over a fake road and a real folder."""

from __future__ import annotations

import asyncio
import errno
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from batch_site import CHAT, RED, Oracle, batch_site, line

from headgate.gateway.batches.catalog import Batch, Catalog
from headgate.gateway.batches.lines import check
from headgate.gateway.wire.batches import WINDOW, BatchRequest, LineResponse
from headgate.gateway.wire.errors import ApiError

TEN = b"".join(line(f"line-{n}", q=f"q{n}") for n in range(10))


async def test_a_batch_that_is_cancelled_while_its_file_is_checked_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        checking.set()
        may_end.wait()
        try:
            return check(*given)
        finally:
            ended.set()

    async def save(catalog: Catalog, batch: Batch) -> None:
        if batch.body.status == "cancelling":
            may_end.set()
            await site.once(ended.is_set)
            for _ in range(3):  # whatever the end of the check leads to
                await site.storage.database.run(lambda _: None)
        await real(catalog, batch)

    real = Catalog.save
    monkeypatch.setattr("headgate.gateway.batches.run.check", slow)
    monkeypatch.setattr(Catalog, "save", save)
    oracle = Oracle()
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN)
        await site.once(checking.is_set)
        assert (await site.batches.cancel(begun.id, "red")).status == "cancelling"
        await site.until(begun.id, "cancelled")
    assert oracle.asked == []


async def test_who_leaves_or_asks_twice_cancels_a_batch_all_the_same(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate, oracle.after = asyncio.Event(), 4
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN)
        await site.done(begun.id, 4)
        asking = [asyncio.create_task(site.batches.cancel(begun.id, "red")) for _ in range(3)]
        await site.once(lambda: oracle.now == 0)  # the lines have been stopped
        asking[0].cancel()
        told = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(told[0], asyncio.CancelledError)
        assert [getattr(body, "status", body) for body in told[1:]] == ["cancelling"] * 2
        await site.until(begun.id, "cancelled")
    assert len(oracle.asked) == 4


async def test_a_batch_goes_on_where_a_full_disk_did_not_take_that_it_is_cancelled(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate, oracle.after = asyncio.Event(), 4
    async with batch_site(tmp_path, oracle, in_flight=2) as site:
        begun = await site.begin(TEN)
        await site.done(begun.id, 4)
        await site.fill()
        with pytest.raises(ApiError) as caught:
            await site.batches.cancel(begun.id, "red")
        assert (caught.value.status, caught.value.code) == (507, "storage_failed")
        body = await site.batches.get(begun.id, "red")
        assert (body.status, body.cancelling_at) == ("in_progress", None)
        await site.once(lambda: oracle.now == 2)
        await site.make_room()
        assert (await site.batches.cancel(begun.id, "red")).status == "cancelling"
        assert (await site.until(begun.id, "cancelled")).request_counts.completed == 4
    assert len(oracle.asked) == 4


async def test_what_a_full_disk_does_not_take_is_told(tmp_path: Path) -> None:
    async with batch_site(tmp_path, Oracle()) as site:
        name = await site.put(TEN)
        await site.fill()
        request = BatchRequest(input_file_id=name, endpoint=CHAT, completion_window=WINDOW)
        for work in (lambda: site.batches.create(request, RED), lambda: site.storage.files.delete(name, "red")):
            with pytest.raises(ApiError) as caught:
                await work()
            assert (caught.value.status, caught.value.code) == (507, "storage_failed")
            assert "database or disk is full" in caught.value.message
        assert list(site.batches.active) == []
        await site.make_room()
        await site.storage.files.delete(name, "red")


async def test_a_batch_that_is_failing_on_a_full_disk_can_be_stopped(tmp_path: Path) -> None:
    """Its lines end one after the other meanwhile, and take a cancellation for their own."""
    asked: list[Any] = []
    go, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def never() -> None:
        await asyncio.Event().wait()

    async def answer(*given: Any) -> LineResponse:
        asked.append(given)
        if len(asked) == 1:
            await go.wait()
            raise OSError(errno.ENOSPC, "No space left on device")
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean.wait()
        raise AssertionError

    async with batch_site(tmp_path, answer, in_flight=3) as site:
        begun = await site.begin(TEN)
        await site.once(lambda: len(asked) == 3)
        await site.fill()
        site.sleep_hook = never  # room on the disk there will not be
        go.set()
        await cleaning.wait()
        stopping = asyncio.create_task(site.batches.close())
        for _ in range(3):
            await asyncio.sleep(0)  # it has cancelled what runs
        clean.set()
        await stopping
        assert (await site.batches.get(begun.id, "red")).status in ("in_progress", "failed")
        await site.make_room()


async def test_that_a_batch_failed_is_stored_once_the_disk_has_room(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()

    async def broken(*given: Any) -> LineResponse:
        await oracle(*given)
        raise OSError(errno.ENOSPC, "No space left on device")

    async with batch_site(tmp_path, broken) as site:
        begun = await site.begin(TEN)
        await site.until(begun.id, "in_progress")
        await site.once(lambda: oracle.now > 0)
        await site.fill()
        full, waited = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            if len(site.slept) == 3:
                full.set()
                await waited.wait()

        site.sleep_hook = wait
        oracle.gate.set()
        await full.wait()
        body = await site.until(begun.id, "failed")
        assert body.errors is not None
        assert (body.errors.data[0].code, len(list(site.batches.active))) == ("storage_full", 0)
        with pytest.raises(ApiError) as caught:
            await site.storage.files.delete(body.input_file_id, "red")
        assert caught.value.code == "file_in_use"
        await site.make_room()
        waited.set()
        while (await site.storage.files.find(body.input_file_id, "red")) is not None:
            with suppress(ApiError):
                await site.storage.files.delete(body.input_file_id, "red")
    async with batch_site(tmp_path, Oracle()) as site:
        assert (await site.batches.get(begun.id, "red")).status == "failed", "and not begun again"


async def test_a_batch_goes_on_when_files_can_be_opened_again(tmp_path: Path) -> None:
    oracle, failures = Oracle(), 3

    async def answer(*given: Any) -> LineResponse:
        nonlocal failures
        if len(oracle.asked) > 3 and failures:
            failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return await oracle(*given)

    async with batch_site(tmp_path, answer, in_flight=1) as site:
        begun = await site.begin(TEN)
        body = await site.until(begun.id, "completed", "failed")
        assert (body.status, body.request_counts.completed) == ("completed", 10)
        results = await site.results(body.output_file_id)
        assert len({result["custom_id"] for result in results}) == len(results) == 10
        assert site.slept == [2.0] * 3
