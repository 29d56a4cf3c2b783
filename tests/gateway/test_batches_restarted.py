"""What a restart finds of batches: it goes on from every state, and from whatever a crash left of the results."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import msgspec
import pytest
from batch_site import Oracle, batch_site, line
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.gateway.batches.results import ResultFile, number_in, result_of
from headgate.gateway.wire.batches import LineResponse
from headgate.gateway.wire.errors import ApiError

_RAW = msgspec.Raw(b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}')
TEN = b"".join(line(f"line-{n}", q=f"q{n}") for n in range(10))


async def test_a_batch_goes_on_after_a_restart_and_does_no_line_twice(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate, oracle.after = asyncio.Event(), 4
    async with batch_site(tmp_path, oracle, in_flight=2) as site:
        begun = await site.begin(TEN)
        body = await site.done(begun.id, 4)
    output = tmp_path / "files" / (body.output_file_id or "")
    with output.open("ab") as file:
        file.write(b'{"id":"batch_req_half')  # as a crash leaves it
    again = Oracle()
    async with batch_site(tmp_path, again) as site:
        body = await site.until(begun.id, "completed")
        results = await site.results(body.output_file_id)
    assert sorted(r["custom_id"] for r in results) == [f"line-{n}" for n in range(10)]
    assert sorted(oracle.asked + again.asked) == [f"q{n}" for n in range(10)]
    assert (body.request_counts.completed, body.usage.total_tokens) == (10, 50)


async def test_a_restart_goes_on_from_every_state(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        batches = [await site.begin(TEN) for _ in range(3)]
        for begun in batches:
            await site.until(begun.id, "in_progress")
    for begun, status in zip(batches, ("validating", "finalizing", "cancelling"), strict=True):
        _rewrite(tmp_path, begun.id, status)
    async with batch_site(tmp_path, Oracle()) as site:
        ended = [await site.until(begun.id, "completed", "cancelled") for begun in batches]
    assert [body.status for body in ended] == ["completed", "completed", "cancelled"]
    assert [body.request_counts.completed for body in ended] == [10, 0, 0]


async def test_a_batch_of_a_later_version_is_left_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    oracle = Oracle()
    oracle.gate = asyncio.Event()
    async with batch_site(tmp_path, oracle) as site:
        later, own = [await site.begin(TEN) for _ in range(2)]
        for begun in (later, own):
            await site.until(begun.id, "in_progress")
    _rewrite(tmp_path, later.id, "paused")
    async with batch_site(tmp_path, Oracle()) as site:
        await site.until(own.id, "completed")
        assert [body.id for body in (await site.batches.page("red", None, 10)).data] == [own.id]
        with pytest.raises(ApiError) as caught:
            await site.batches.get(later.id, "red")
        assert (caught.value.status, caught.value.code) == (409, "unreadable_batch")
    assert f"the batch {later.id} cannot be read" in caplog.text
    _rewrite(tmp_path, later.id, "in_progress")
    async with batch_site(tmp_path, Oracle()) as site:
        await site.until(later.id, "completed")


def _rewrite(folder: Path, batch_id: str, status: str) -> None:
    with sqlite3.connect(folder / "catalog.sqlite3") as db:
        (record,) = db.execute("SELECT record FROM batches WHERE id = ?", (batch_id,)).fetchone()
        changed = json.loads(record)
        changed["body"]["status"] = status
        db.execute("UPDATE batches SET record = ? WHERE id = ?", (json.dumps(changed).encode(), batch_id))


@given(st.data())
@settings(max_examples=40)
def test_whatever_a_crash_cuts_off_whole_lines_stay(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("results") / "output"
    path.touch()
    file = ResultFile(path, number_in("batch_a"))
    ends = [0]
    for number in range(1, 6):
        name = data.draw(st.text(min_size=1, max_size=5))
        file.append(number, result_of("batch_a", number, name, LineResponse(200, "r", _RAW)))
        ends.append(file.size)
    file.close()
    cut = data.draw(st.integers(0, file.size))
    path.write_bytes(path.read_bytes()[:cut] + data.draw(st.binary(max_size=8).filter(lambda b: b"\n" not in b)))
    again = ResultFile(path, number_in("batch_a"))
    whole = max(end for end in ends if end <= cut)
    assert again.numbers == set(range(1, ends.index(whole) + 1))
    assert path.stat().st_size == again.size == whole
    again.close()
