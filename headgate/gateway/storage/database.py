"""The catalog of the data folder: SQLite in a thread of its own, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    team TEXT NOT NULL,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
);
CREATE INDEX IF NOT EXISTS files_of_team ON files (team, seq);
CREATE TABLE IF NOT EXISTS batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    team TEXT NOT NULL,
    active INTEGER NOT NULL,
    input_file TEXT NOT NULL,
    output_file TEXT,
    error_file TEXT,
    record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS batches_of_team ON batches (team, seq);
CREATE INDEX IF NOT EXISTS batches_active ON batches (active) WHERE active;
"""


class Database:
    """One connection; pieces of work run one after the other, each as a transaction."""

    def __init__(self, path: Path, hold: Callable[[], None] = lambda: None) -> None:
        """Open the file, or make it. `sqlite3.Error` where it cannot be used.

        `hold` has its folder again where somebody has taken that away; OSError where it cannot be had.
        """
        self._path = path
        self._hold = hold
        self._made: list[Callable[[sqlite3.Connection], None]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="catalog")
        self._connection = self._thread.submit(_connect, path).result()
        self._opened = path.stat()

    async def make(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Have `work` make tables where they are not there: now, and in a file that is made anew."""
        self._made.append(work)
        await self.run(work)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` makes of the connection, on the disk when this returns; nothing of it where it raises.

        It is done also where its caller is cancelled meanwhile.
        """
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work))

    def close(self) -> None:
        """Wait for the work that was given, and close the file."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if not is_at(self._path, self._opened):
            self._begin_anew()
        with transaction(self._connection):
            return work(self._connection)

    def _begin_anew(self) -> None:
        """SQLite would go on with a file that nobody can find any more."""
        # It unlinks what is beside its file by name: not beside another.
        self._connection.close()
        try:
            self._hold()
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from None
        self._connection = _connect(self._path)
        self._opened = self._path.stat()
        for make in self._made:
            with transaction(self._connection):
                make(self._connection)


def is_at(path: Path, opened: os.stat_result) -> bool:
    """Whether a file that was opened is still the one of that name."""
    try:
        return os.path.samestat(opened, path.stat())
    except OSError:
        return False


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits at the end of what is done inside; leaves nothing of it behind where that or this fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has done it itself where the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(_SCHEMA)
    # One that cannot be written is found here, and not by the first who writes.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("PRAGMA user_version = 0")
    connection.execute("ROLLBACK")
    return connection
