"""Batches over answers that say what they are told to, on a real folder."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from headgate.gateway.batches.catalog import Batch
from headgate.gateway.batches.service import Batches
from headgate.gateway.storage.folder import Storage
from headgate.gateway.storage.sections import BatchesSection, StorageSection
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.batches import WINDOW, BatchBody, BatchRequest, LineResponse, refused
from headgate.gateway.wire.errors import invalid

CHAT = "/v1/chat/completions"
RED = Principal("red")
_CHANGES = [(table, change) for table in ("batches", "files") for change in ("INSERT", "UPDATE", "DELETE")]
USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 1},
}


def line(name: str, url: str = CHAT, **body: Any) -> bytes:
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}).encode() + b"\n"


class Oracle:
    """Answers lines with their own body; a line's `fail` is refused."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now = 0
        self.most = 0
        self.gate: asyncio.Event | None = None
        self.after = 0
        """How many lines are answered before the gate holds the others."""

    async def __call__(self, _endpoint: str, body: bytes, _batch: Batch) -> LineResponse:
        said = json.loads(body)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self.gate is not None and len(self.asked) >= self.after:
                await self.gate.wait()
            await asyncio.sleep(0)
            self.asked.append(said.get("q", ""))
            if said.get("fail"):
                return refused(invalid("not so", "q"), "req_bad")
            return LineResponse(200, "req_good", msgspec.Raw(json.dumps({"echo": said, "usage": USAGE}).encode()))
        finally:
            self.now -= 1


class BatchSite:
    """A folder and the batches on it."""

    def __init__(self, folder: Path, answer: Any, **section: Any) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.storage = Storage(folder, StorageSection(max_file_bytes=10**8, team_bytes=10**9), lambda: self.now)
        self.batches = Batches(
            self.storage,
            BatchesSection(**section),
            answer,
            line_bytes=10_000,
            line_values=1000,
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        self.sleep_hook: Callable[[], Awaitable[None]] | None = None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.sleep_hook is not None:
            await self.sleep_hook()
        await asyncio.sleep(0)

    async def put(self, data: bytes, team: str = "red") -> str:
        async with self.storage.files.upload(team) as upload:
            await upload.write(data)
            return (await upload.keep("in.jsonl", "batch", None)).id

    async def begin(self, data: bytes, endpoint: str = CHAT, **more: Any) -> BatchBody:
        request = BatchRequest(input_file_id=await self.put(data), endpoint=endpoint, completion_window=WINDOW, **more)
        return await self.batches.create(request, RED)

    async def until(self, batch_id: str, *states: str) -> BatchBody:
        """The batch in one of these states, or with so many lines done."""
        while True:
            body = await self.batches.get(batch_id, "red")
            if body.status in states:
                return body
            assert body.status in ("validating", "in_progress", "finalizing", "cancelling"), body

    async def once(self, so: Callable[[], bool]) -> None:
        """Return when it is so."""
        while not so():  # noqa: ASYNC110  nothing tells of it but looking
            await asyncio.sleep(0)

    async def done(self, batch_id: str, count: int) -> BatchBody:
        """The batch with so many lines done."""
        while True:
            body = await self.batches.get(batch_id, "red")
            if body.request_counts.completed + body.request_counts.failed >= count:
                return body

    async def results(self, file_id: str | None) -> list[dict[str, Any]]:
        """The lines of a result file, as a client would read them by now."""
        if file_id is None:
            return []
        stored = await self.storage.files.get(file_id, "red")
        text = self.storage.files.path(file_id).read_bytes()[: stored.bytes]
        return [json.loads(one) for one in text.splitlines()]

    async def fill(self) -> None:
        """Have a disk that takes no change of the catalog."""

        def refuse(db: sqlite3.Connection) -> None:
            for table, change in _CHANGES:
                what = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
                db.execute(f"CREATE TEMP TRIGGER full_{table}_{change} BEFORE {change} ON main.{table} {what}")

        await self.storage.database.run(refuse)

    async def make_room(self) -> None:
        """Have a disk that takes them again."""

        def take(db: sqlite3.Connection) -> None:
            for table, change in _CHANGES:
                db.execute(f"DROP TRIGGER full_{table}_{change}")

        await self.storage.database.run(take)

    async def close(self) -> None:
        await self.batches.close()
        self.storage.close()


@asynccontextmanager
async def batch_site(folder: Path, answer: Any, **section: Any) -> AsyncIterator[BatchSite]:
    """A site that has started, and stops at the end."""
    made = BatchSite(folder, answer, **section)
    try:
        await made.storage.files.remove_strays()
        await made.batches.start()
        yield made
    finally:
        await made.close()
