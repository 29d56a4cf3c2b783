"""The files of teams: bytes in a folder under ids made here, everything else about them in the catalog.

A file is in the catalog or it does not exist: bytes come before their row and go after it, and what a crash leaves
without a row is removed at the next start. Names that clients give are never part of a path.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from headgate.gateway.storage.database import Database
from headgate.gateway.storage.sections import StorageSection
from headgate.gateway.wire.errors import ApiError, conflict, disk_failed, invalid, not_found, too_large

Purpose = Literal["batch", "batch_output"]
Order = Literal["asc", "desc"]

_COLUMNS = "id, team, filename, purpose, bytes, created_at, expires_at"
_ALIVE = "(expires_at IS NULL OR expires_at > :now)"
_IN_USE = "EXISTS (SELECT 1 FROM batches WHERE active AND files.id IN (input_file, output_file, error_file))"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a team. Times are whole seconds since the epoch."""

    id: str
    team: str
    filename: str
    purpose: Purpose
    bytes: int
    created_at: int
    expires_at: int | None = None


class Upload:
    """A file on its way in. Not in the catalog, and gone with the context it came from, until it is kept."""

    def __init__(self, files: Files, team: str, stored: int, path: Path, file: FileIO) -> None:
        self._files = files
        self._team = team
        self._stored = stored
        self._path = path
        self._file = file
        self._bytes = 0

    async def write(self, data: bytes) -> None:
        """Take the next bytes; ApiError 413 where they are too many, 507 where the disk does not take them."""
        limits = self._files.limits
        self._bytes += len(data)
        if self._bytes > limits.max_file_bytes:
            raise too_large(limits.max_file_bytes)
        if self._stored + self._bytes > limits.bytes_of(self._team):
            raise _over_quota(self._team, limits.bytes_of(self._team), self._stored)
        try:
            await asyncio.to_thread(_write, self._file, data)
        except OSError as error:
            raise disk_failed("The file cannot be stored", error) from None

    async def keep(self, filename: str, purpose: Purpose, expires_s: int | None) -> StoredFile:
        """Make it a file of the team. ApiError as of `write`."""
        return await self._files.keep(self._path, self._file, self._team, filename, purpose, expires_s)


class Files:
    """Everything that is stored, team by team: nobody finds another's files."""

    def __init__(self, folder: Path, database: Database, limits: StorageSection, clock: Callable[[], float]) -> None:
        """Files in a folder of this process alone. `clock`: seconds since the epoch."""
        self.limits = limits
        self._database = database
        self._clock = clock
        self._kept, self._incoming = folder / "files", folder / "incoming"
        self._growing: dict[str, Callable[[], int]] = {}
        self._make_folders()
        for left in self._incoming.iterdir():
            left.unlink()

    def _make_folders(self) -> None:
        """At the start, and where somebody has taken them away."""
        for folder in (self._kept, self._incoming):
            folder.mkdir(exist_ok=True)

    def path(self, file_id: str) -> Path:
        """Where the bytes of a file are. `file_id` must come from the catalog."""
        return self._kept / file_id

    @asynccontextmanager
    async def upload(self, team: str) -> AsyncIterator[Upload]:
        """Take a file; nothing of it stays unless it is kept before the context ends."""
        stored = await self._database.run(lambda db: _stored(db, team))
        path = self._incoming / secrets.token_hex(16)
        try:
            self._make_folders()
            file = path.open("wb", buffering=0)
        except OSError as error:
            raise disk_failed("The file cannot be stored", error) from None
        try:
            with file:
                yield Upload(self, team, stored, path, file)
        finally:
            path.unlink(missing_ok=True)

    async def keep(
        self, path: Path, file: FileIO, team: str, filename: str, purpose: Purpose, expires_s: int | None
    ) -> StoredFile:
        """Take over the bytes of an upload."""

        def settle() -> int:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

        try:
            size = await asyncio.to_thread(settle)
            stored = self._new(team, filename, purpose, size, expires_s)
            os.replace(path, self.path(stored.id))
            await self._add(stored, self.limits.bytes_of(team))
        except (OSError, sqlite3.Error) as error:
            raise disk_failed("The file cannot be stored", error) from None
        return stored

    async def create(self, team: str, filename: str, purpose: Purpose) -> StoredFile:
        """An empty file that the server will write. OSError or sqlite3.Error where the disk does not take it.

        What the server writes counts against the team's bytes, but is not refused.
        """
        stored = self._new(team, filename, purpose, 0, None)
        self._make_folders()
        self.path(stored.id).touch()
        await self._add(stored, None)
        return stored

    def growing(self, file_id: str, size: Callable[[], int]) -> None:
        """The server adds to a file, of which only so many bytes are shown."""
        self._growing[file_id] = size

    async def finished(self, file_id: str, size: int | None, expires_s: int | None) -> None:
        """Nothing is added to it any more: it has so many bytes, None: as many as before, and is kept for so long."""
        expires = None if expires_s is None else int(self._clock()) + expires_s
        query = "UPDATE files SET bytes = COALESCE(?, bytes), expires_at = ? WHERE id = ?"
        await self._database.run(lambda db: db.execute(query, (size, expires, file_id)))
        self._growing.pop(file_id, None)

    async def get(self, file_id: str, team: str) -> StoredFile:
        """A file of the team; ApiError 404 where there is none."""
        found = await self.find(file_id, team)
        if found is None:
            raise not_found("File", file_id)
        return found

    async def find(self, file_id: str, team: str) -> StoredFile | None:
        """A file of the team, if there is one."""
        query = f"SELECT {_COLUMNS} FROM files WHERE id = :id AND team = :team AND {_ALIVE}"
        values = {"id": file_id, "team": team, "now": self._clock()}
        row = await self._database.run(lambda db: db.execute(query, values).fetchone())
        return None if row is None else self._now(StoredFile(*row))

    async def page(
        self, team: str, after: str | None, limit: int, order: Order, purpose: str | None
    ) -> tuple[list[StoredFile], bool]:
        """Files of the team, by time of creation, from the one behind `after` on, and whether more follow.

        ApiError 400 where `after` is none of them.
        """
        values: dict[str, Any] = {"team": team, "now": self._clock(), "limit": limit + 1, "purpose": purpose}
        where = f"team = :team AND {_ALIVE}" + ("" if purpose is None else " AND purpose = :purpose")

        def read(db: sqlite3.Connection) -> list[Any]:
            beyond = ""
            if after is not None:
                found = db.execute("SELECT seq FROM files WHERE id = ? AND team = ?", (after, team)).fetchone()
                if found is None:
                    raise invalid(f"Invalid 'after': there is no file '{after[:80]}'.", "after", "invalid_value")
                values["seq"] = found[0]
                beyond = f" AND seq {'>' if order == 'asc' else '<'} :seq"
            query = f"SELECT {_COLUMNS} FROM files WHERE {where}{beyond} ORDER BY seq {order} LIMIT :limit"
            return db.execute(query, values).fetchall()

        rows = await self._database.run(read)
        return [self._now(StoredFile(*row)) for row in rows[:limit]], len(rows) > limit

    async def delete(self, file_id: str, team: str) -> None:
        """Forget a file.

        ApiError 404 where there is none, 409 while a batch reads or writes it, 507 where the disk does not take that.
        """

        def remove(db: sqlite3.Connection) -> None:
            row = db.execute(f"SELECT {_IN_USE} FROM files WHERE id = ? AND team = ?", (file_id, team)).fetchone()
            if row is None:
                raise not_found("File", file_id)
            if row[0]:
                message = f"The file '{file_id}' belongs to a batch that has not ended. Cancel the batch first."
                raise conflict(message, "file_id", "file_in_use")
            db.execute("DELETE FROM files WHERE id = ?", (file_id,))

        try:
            await self._database.run(remove)
        except sqlite3.Error as error:
            raise disk_failed(f"The file '{file_id}' cannot be deleted", error) from None
        self.path(file_id).unlink(missing_ok=True)

    async def discard(self, file_id: str) -> None:
        """Forget a file that the server made and nobody needs."""
        self._growing.pop(file_id, None)
        await self._database.run(lambda db: db.execute("DELETE FROM files WHERE id = ?", (file_id,)))
        self.path(file_id).unlink(missing_ok=True)

    async def sweep(self) -> None:
        """Remove files whose time is over and that no batch uses."""
        query = f"DELETE FROM files WHERE NOT {_ALIVE} AND NOT {_IN_USE} RETURNING id"
        now = self._clock()
        for (file_id,) in await self._database.run(lambda db: db.execute(query, {"now": now}).fetchall()):
            self.path(file_id).unlink(missing_ok=True)

    async def remove_strays(self) -> None:
        """Remove bytes of no file, and results that no batch came to know. Only before the first is added."""

        def known_ids(db: sqlite3.Connection) -> set[str]:
            db.execute(
                "DELETE FROM files WHERE purpose = 'batch_output' AND bytes = 0 AND NOT EXISTS "
                "(SELECT 1 FROM batches WHERE files.id IN (output_file, error_file))"
            )
            return {row[0] for row in db.execute("SELECT id FROM files")}

        known = await self._database.run(known_ids)
        for path in self._kept.iterdir():
            if path.name not in known:
                path.unlink()

    def _now(self, file: StoredFile) -> StoredFile:
        size = self._growing.get(file.id)
        return file if size is None else replace(file, bytes=size())

    def _new(self, team: str, filename: str, purpose: Purpose, size: int, expires_s: int | None) -> StoredFile:
        now = int(self._clock())
        expires = None if expires_s is None else now + expires_s
        return StoredFile(f"file-{secrets.token_hex(12)}", team, filename, purpose, size, now, expires)

    async def _add(self, stored: StoredFile, most: int | None) -> None:
        """Put a file whose bytes are there into the catalog; ApiError 413 beyond the team's bytes."""

        def add(db: sqlite3.Connection) -> None:
            held = _stored(db, stored.team)
            if most is not None and held + stored.bytes > most:
                raise _over_quota(stored.team, most, held)
            values = (stored.id, stored.team, stored.filename, stored.purpose, stored.bytes, stored.created_at)
            marks = ", ".join("?" * 7)
            db.execute(f"INSERT INTO files ({_COLUMNS}) VALUES ({marks})", (*values, stored.expires_at))

        try:
            await self._database.run(add)
        except (ApiError, sqlite3.Error):
            self.path(stored.id).unlink(missing_ok=True)
            raise


def _stored(db: sqlite3.Connection, team: str) -> int:
    return int(db.execute("SELECT COALESCE(SUM(bytes), 0) FROM files WHERE team = ?", (team,)).fetchone()[0])


def _over_quota(team: str, most: int, held: int) -> ApiError:
    message = (
        f"The files of team '{team}' may have {most} bytes together and have {held}: this one does not fit. Delete "
        "some with DELETE /v1/files/ID."
    )
    return ApiError(413, message, param="file", code="storage_quota_exceeded")


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
