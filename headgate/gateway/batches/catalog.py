"""Batches in the catalog: a row each, whole, so that what was saved last is what a restart goes on with."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from headgate.gateway.storage.database import Database
from headgate.gateway.wire.batches import ACTIVE, BatchBody
from headgate.gateway.wire.errors import ApiError, conflict, invalid, not_found


class Batch(Struct):
    """A batch as it is kept: what clients see, whose it is, and how long its results are to be kept."""

    team: str
    key_id: str | None
    body: BatchBody
    output_expires_s: int | None = None

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return self.body.status in ACTIVE


logger = logging.getLogger("headgate.gateway")

_DECODER = msgspec.json.Decoder(Batch)


class Catalog:
    """The batches of all teams. `sqlite3.Error` where the disk fails."""

    def __init__(self, database: Database, max_active: int) -> None:
        """`max_active`: most batches of a team that have not ended."""
        self._database = database
        self._max_active = max_active

    async def add(self, batch: Batch) -> None:
        """Keep a new one.

        ApiError 400 where its input file is none of the team's, 429 where too many batches have not ended.
        """

        def add(db: sqlite3.Connection) -> None:
            _check_input(db, batch)
            query = "SELECT COUNT(*) FROM batches WHERE active AND team = ?"
            if db.execute(query, (batch.team,)).fetchone()[0] >= self._max_active:
                message = (
                    f"The team '{batch.team}' has {self._max_active} batches that have not ended; no more may wait."
                )
                raise ApiError(429, message, type="rate_limit_error", code="too_many_batches",
                               headers={"Retry-After": "60"})  # fmt: skip
            columns = "id, team, active, input_file, output_file, error_file, record"
            values = (batch.body.id, batch.team, *_changing(batch))
            db.execute(f"INSERT INTO batches ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)

        await self._database.run(add)

    async def save(self, batch: Batch) -> None:
        """Keep what it has become."""
        query = (
            "UPDATE batches SET active = ?, input_file = ?, output_file = ?, error_file = ?, record = ? WHERE id = ?"
        )
        values = (*_changing(batch), batch.body.id)
        await self._database.run(lambda db: db.execute(query, values))

    async def get(self, batch_id: str, team: str) -> Batch:
        """One of the team; ApiError 404 where there is none."""
        query = "SELECT record FROM batches WHERE id = ? AND team = ?"
        row = await self._database.run(lambda db: db.execute(query, (batch_id, team)).fetchone())
        if row is None:
            raise not_found("Batch", batch_id)
        if (batch := _read(batch_id, row[0])) is None:
            message = f"The batch '{batch_id}' was stored by another version of the server, and only that can read it."
            raise conflict(message, "batch_id", "unreadable_batch")
        return batch

    async def page(self, team: str, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        """The team's that can be read, the newest first, and whether more follow; ApiError 400 for a wrong `after`."""

        def read(db: sqlite3.Connection) -> list[Any]:
            seq = 2**62
            if after is not None:
                found = db.execute("SELECT seq FROM batches WHERE id = ? AND team = ?", (after, team)).fetchone()
                if found is None:
                    raise invalid(f"Invalid 'after': there is no batch '{after[:80]}'.", "after", "invalid_value")
                seq = found[0]
            query = "SELECT id, record FROM batches WHERE team = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
            return db.execute(query, (team, seq, limit + 1)).fetchall()

        rows = await self._database.run(read)
        return _readable(rows[:limit]), len(rows) > limit

    async def active(self) -> list[Batch]:
        """All that have not ended and can be read, the oldest first."""
        query = "SELECT id, record FROM batches WHERE active ORDER BY seq"
        return _readable(await self._database.run(lambda db: db.execute(query).fetchall()))


def _readable(rows: Iterable[tuple[str, bytes]]) -> list[Batch]:
    return [batch for row in rows if (batch := _read(*row)) is not None]


def _read(batch_id: str, record: bytes) -> Batch | None:
    """A batch as it was stored; None for one of a later version, from which somebody went back to this."""
    try:
        return _DECODER.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.error("the batch %s cannot be read and is left as it is: %s", batch_id, error)
        return None


def _changing(batch: Batch) -> tuple[Any, ...]:
    body = batch.body
    encoded = msgspec.json.encode(batch)
    return int(batch.active), body.input_file_id, body.output_file_id, body.error_file_id, encoded


def _check_input(db: sqlite3.Connection, batch: Batch) -> None:
    name = batch.body.input_file_id
    query = "SELECT purpose FROM files WHERE id = ? AND team = ? AND (expires_at IS NULL OR expires_at > ?)"
    row = db.execute(query, (name, batch.team, batch.body.created_at)).fetchone()
    if row is None:
        message = f"Invalid 'input_file_id': there is no file '{name[:80]}'."
        raise invalid(message, "input_file_id", "file_not_found")
    if row[0] != "batch":
        message = f"Invalid 'input_file_id': the file '{name}' has the purpose '{row[0]}'. Expected 'batch'."
        raise invalid(message, "input_file_id", "invalid_purpose")
