"""Batches: states, results and faults, over a fake road and a real folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from batch_site import CHAT, Oracle, batch_site, line

from headgate.gateway.batches.catalog import Batch
from headgate.gateway.batches.slots import Slots
from headgate.gateway.wire.batches import ExpiresAfter, LineResponse
from headgate.gateway.wire.errors import ApiError, overloaded

TEN = b"".join(line(f"line-{n}", q=f"q{n}") for n in range(10))


async def test_every_line_is_answered_and_found_by_its_name(tmp_path: Path) -> None:
    data = line("a", q="one") + line("b", q="two", fail=True) + b"\n" + line("c", q="three").rstrip(b"\n")
    async with batch_site(tmp_path, Oracle()) as site:
        begun = await site.begin(data, metadata={"for": "test"})
        assert (begun.status, begun.object, begun.expires_at - begun.created_at) == ("validating", "batch", 86_400)
        body = await site.until(begun.id, "completed")
        counts = body.request_counts
        assert (counts.total, counts.completed, counts.failed) == (3, 2, 1)
        assert (body.usage.input_tokens, body.usage.output_tokens, body.usage.total_tokens) == (6, 4, 10)
        assert body.usage.input_tokens_details.cached_tokens == 2
        assert body.metadata == {"for": "test"}
        assert None not in (body.in_progress_at, body.finalizing_at, body.completed_at)
        good = {result["custom_id"]: result for result in await site.results(body.output_file_id)}
        assert good.keys() == {"a", "c"}
        assert good["a"]["response"]["body"]["echo"] == {"q": "one"}
        assert (good["a"]["response"]["status_code"], good["a"]["error"]) == (200, None)
        (bad,) = await site.results(body.error_file_id)
        assert (bad["custom_id"], bad["response"]["status_code"]) == ("b", 400)
        assert bad["response"]["body"]["error"]["message"] == "not so"
        assert len({result["id"] for result in (*good.values(), bad)}) == 3
        stored = await site.storage.files.get(body.output_file_id or "", "red")
        assert (stored.purpose, stored.bytes > 0) == ("batch_output", True)


async def test_partial_results_are_readable_while_it_runs(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate, oracle.after = asyncio.Event(), 4
    async with batch_site(tmp_path, oracle, in_flight=1) as site:
        begun = await site.begin(TEN)
        body = await site.done(begun.id, 4)
        assert (body.status, body.request_counts.total, body.request_counts.completed) == ("in_progress", 10, 4)
        assert [r["custom_id"] for r in await site.results(body.output_file_id)] == [f"line-{n}" for n in range(4)]
        oracle.gate.set()
        await site.until(begun.id, "completed")


async def test_no_more_lines_are_on_their_way_than_configured(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle, in_flight=3) as site:
        begun = [await site.begin(TEN) for _ in range(3)]
        for batch in begun:
            await site.until(batch.id, "in_progress")
        await site.once(lambda: site.batches.in_flight == 3)
        latest = list(site.batches.latest)
        assert [batch.body.id for batch, _ in latest] == [batch.id for batch in reversed(begun)]
        assert sum(running for _, running in latest) == 3
        oracle.gate.set()
        for batch in begun:
            await site.until(batch.id, "completed")
        told = [(batch.body.request_counts.completed, running) for batch, running in site.batches.latest]
        assert told == [(10, 0)] * 3, "those that ended are told of too"
    assert (oracle.most, len(oracle.asked)) == (3, 30)


@pytest.mark.parametrize(
    ("data", "line_number", "code", "param"),
    [
        (b"", None, "empty_file", None),
        (b"\n \n", None, "empty_file", None),
        (line("a") + b"{\n", 2, "invalid_json", None),
        (line("a") + b"[]\n", 2, "invalid_json", None),
        (line("a") + b'{"custom_id":"b","url":"' + CHAT.encode() + b'"}\n', 2, "missing_required_parameter", "body"),
        (line("a") + line("b") + line("a"), 3, "duplicate_custom_id", "custom_id"),
        (line("a", "/v1/completions"), 1, "mismatched_url", "url"),
        (line("a").replace(b"POST", b"GET"), 1, "invalid_value", "method"),
        (line("a").replace(b"body", b"bodi"), 1, "unknown_parameter", "bodi"),
        (line("a").replace(b"{}", b"[]"), 1, "invalid_type", "body"),
        (line(""), 1, "empty_string", "custom_id"),
        (line("a", q="x" * 10_000), 1, "request_too_large", None),
        (line("a", q=[[]] * 1500), 1, "request_too_complex", None),
        (b"\xff\xfe\n", 1, "invalid_json", None),
    ],
)
async def test_what_is_wrong_with_a_file_is_told_by_line(
    tmp_path: Path, data: bytes, line_number: int | None, code: str, param: str | None
) -> None:
    oracle = Oracle()
    async with batch_site(tmp_path, oracle) as site:
        body = await site.until((await site.begin(data)).id, "failed")
        assert body.errors is not None
        found = body.errors.data[0]
        assert (found.line, found.code, found.param) == (line_number, code, param)
        assert (body.output_file_id, body.in_progress_at) == (None, None)
    assert oracle.asked == []


async def test_too_many_lines_and_too_many_batches(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle, max_requests=9, max_active=2) as site:
        body = await site.until((await site.begin(TEN)).id, "failed")
        assert body.errors is not None
        assert (body.errors.data[0].code, body.errors.data[0].line) == ("too_many_requests", 10)
        for _ in range(2):
            await site.begin(line("a"))
        with pytest.raises(ApiError) as caught:
            await site.begin(line("a"))
        assert (caught.value.status, caught.value.code) == (429, "too_many_batches")


async def test_only_the_teams_own_batch_files_are_taken(tmp_path: Path) -> None:
    async with batch_site(tmp_path, Oracle()) as site:
        done = await site.until((await site.begin(TEN)).id, "completed")
        site.put = lambda *_: _given("file-none")  # type: ignore[method-assign,assignment]
        with pytest.raises(ApiError) as caught:
            await site.begin(b"")
        assert (caught.value.param, caught.value.code) == ("input_file_id", "file_not_found")
        site.put = lambda *_: _given(done.output_file_id or "")  # type: ignore[method-assign,assignment]
        with pytest.raises(ApiError) as caught:
            await site.begin(b"")
        assert caught.value.code == "invalid_purpose"
        for team in ("blue", "red"):
            listed = await site.batches.page(team, None, 10)
            assert [b.id for b in listed.data] == ([] if team == "blue" else [done.id])
        with pytest.raises(ApiError) as caught:
            await site.batches.get(done.id, "blue")
        assert caught.value.status == 404


async def _given(name: str) -> str:
    return name


async def test_a_cancelled_batch_keeps_what_was_answered(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate, oracle.after = asyncio.Event(), 4
    async with batch_site(tmp_path, oracle, in_flight=2) as site:
        begun = await site.begin(TEN)
        await site.done(begun.id, 4)
        assert (await site.batches.cancel(begun.id, "red")).status in ("cancelling", "cancelled")
        body = await site.until(begun.id, "cancelled")
        assert (body.request_counts.total, body.request_counts.completed) == (10, 4)
        assert len(await site.results(body.output_file_id)) == 4
        assert None not in (body.cancelling_at, body.cancelled_at)
        with pytest.raises(ApiError) as caught:
            await site.batches.cancel(begun.id, "red")
        assert (caught.value.status, caught.value.code) == (409, "batch_ended")
    assert len(oracle.asked) == 4


async def test_what_was_not_answered_in_time_is_told(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate, oracle.after = asyncio.Event(), 4
    async with batch_site(tmp_path, oracle, in_flight=1) as site:
        begun = await site.begin(TEN)
        await site.done(begun.id, 4)
        await site.once(lambda: oracle.now == 1)
        site.now += 86_400
        oracle.gate.set()
        body = await site.until(begun.id, "expired")
        good, bad = await site.results(body.output_file_id), await site.results(body.error_file_id)
        assert {r["custom_id"] for r in (*good, *bad)} == {f"line-{n}" for n in range(10)}
        assert len(good) + len(bad) == 10, "each line is told once"
        assert {(r["response"], r["error"]["code"]) for r in bad} == {(None, "batch_expired")}
        assert len(good) == 5, "what was on its way is finished"
        assert (body.request_counts.completed, body.request_counts.failed) == (5, 5)


async def test_lines_are_asked_again_where_it_was_the_moment(tmp_path: Path) -> None:
    refusals: dict[str, int] = {}

    async def busy(_endpoint: str, body: bytes, _batch: Batch) -> LineResponse:
        name = json.loads(body)["q"]
        refusals[name] = refusals.get(name, 0) + 1
        if refusals[name] < 4:
            raise overloaded("busy", 3)
        return await Oracle()(_endpoint, body, _batch)

    async with batch_site(tmp_path, busy, in_flight=2) as site:
        body = await site.until((await site.begin(line("a", q="a") + line("b", q="b"))).id, "completed")
        assert body.request_counts.completed == 2
        assert sorted(site.slept) == [3.0, 3.0, 3.0, 3.0, 4.0, 4.0], "what is asked for, and more each time"


async def test_a_line_that_is_refused_for_ever_ends_with_the_window(tmp_path: Path) -> None:
    async def never(*_: Any) -> LineResponse:
        raise overloaded("busy")

    async with batch_site(tmp_path, never) as site:
        begun = await site.begin(line("a"))

        async def later() -> None:
            site.now += 3600

        site.sleep_hook = later
        body = await site.until(begun.id, "expired")
        assert body.output_file_id is None, "nothing is in it"
        assert len(await site.results(body.error_file_id)) == 1


async def test_the_input_of_a_running_batch_cannot_be_deleted(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN)
        body = await site.until(begun.id, "in_progress")
        for name in (body.input_file_id, body.output_file_id or ""):
            with pytest.raises(ApiError) as caught:
                await site.storage.files.delete(name, "red")
            assert (caught.value.status, caught.value.code) == (409, "file_in_use")
        oracle.gate.set()
        await site.until(begun.id, "completed")
        await site.storage.files.delete(body.input_file_id, "red")


async def test_a_file_that_is_gone_from_the_disk_fails_the_batch_with_the_reason(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN)
        body = await site.until(begun.id, "in_progress")
    (tmp_path / "files" / body.input_file_id).unlink()
    async with batch_site(tmp_path, Oracle()) as site:
        body = await site.until(begun.id, "failed")
        assert body.errors is not None
        assert body.errors.data[0].code == "file_not_found"
        other = await site.until((await site.begin(TEN)).id, "completed")
        assert other.request_counts.completed == 10, "others go on"


async def test_a_file_that_changes_under_a_batch_fails_it(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN)
        body = await site.until(begun.id, "in_progress")
    (tmp_path / "files" / body.input_file_id).write_bytes(b"no JSON\n")
    async with batch_site(tmp_path, Oracle()) as site:
        body = await site.until(begun.id, "failed")
        assert body.errors is not None
        assert body.errors.data[0].code == "invalid_file"


async def test_an_error_of_ours_fails_the_batch_and_not_the_server(tmp_path: Path) -> None:
    async def broken(*_: Any) -> LineResponse:
        raise LookupError("ours")

    async with batch_site(tmp_path, broken) as site:
        body = await site.until((await site.begin(TEN)).id, "failed")
        assert body.errors is not None
        assert body.errors.data[0].code == "internal_error"


async def test_the_time_of_results_runs_from_when_they_are_there(tmp_path: Path) -> None:
    after, oracle = ExpiresAfter("created_at", 3600), Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN + line("bad", fail=True), output_expires_after=after)
        await site.until(begun.id, "in_progress")
        site.now += 5000
        oracle.gate.set()
        body = await site.until(begun.id, "completed")
        for file_id in (body.output_file_id, body.error_file_id):
            assert (await site.storage.files.get(file_id or "", "red")).expires_at == (body.completed_at or 0) + 3600
        site.now += 3600
        await site.storage.files.sweep()
        assert await site.storage.files.find(body.output_file_id or "", "red") is None


async def test_what_was_answered_of_a_batch_that_failed_has_its_time_too(tmp_path: Path) -> None:
    after, oracle = ExpiresAfter("created_at", 3600), Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        begun = await site.begin(TEN, output_expires_after=after)
        body = await site.until(begun.id, "in_progress")
    (tmp_path / "files" / body.input_file_id).unlink()
    async with batch_site(tmp_path, Oracle()) as site:
        body = await site.until(begun.id, "failed")
        stored = await site.storage.files.get(body.output_file_id or "", "red")
        assert stored.expires_at == (body.failed_at or 0) + 3600


async def test_slots_go_to_the_team_that_holds_fewest() -> None:
    slots, order, release = Slots(4), list[str](), asyncio.Event()

    async def want(team: str) -> None:
        async with slots.hold(team):
            order.append(team)
            await release.wait()

    many = [asyncio.create_task(want("many")) for _ in range(8)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(want("few")) for _ in range(2)]
    await asyncio.sleep(0)
    assert (order, slots.held) == (["many"] * 4, 4)
    many[4].cancel()
    for task in many[:2]:
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order[4:] == ["few", "few"], "though others have waited for longer"
    release.set()
    await asyncio.gather(*many, *few, return_exceptions=True)
    assert (len(order), slots.held) == (9, 0)
