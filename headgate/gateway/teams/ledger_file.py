"""The usage ledger on disk: SQLite in its write-ahead mode, one transaction for each batch of entries.

What was committed survives the process, killed or not; a power cut may take the last moments. Before a model is asked,
an entry says what that may cost. It goes when the answer's account replaces it; those that a new start finds were cut
off by the end of the process, and count as what was set aside for them.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import astuple

from headgate.gateway.storage.database import is_at, transaction
from headgate.gateway.teams.costs import Cost

logger = logging.getLogger("headgate.gateway")

Cause = Literal["generated", "cancelled", "rejected", "cut", "retried", "exact", "semantic", "shadow"]
"""Why it was counted: an answer of a model, whole, left by its client, not given to him, or cut off by the end of the
server; the part of an answer made anew that was billed before; an answer from the cache, to the same request or to one
that means the same; or one that was made to be compared with another, which no budget is charged for."""


class Entry(msgspec.Struct, frozen=True):
    """What one generation came to, or some hits of the cache that are alike."""

    day: str
    """As the team's time zone has it; the budgets of that day are charged."""
    at: int
    """Seconds since the epoch; of hits, the begin of their minute."""
    team: str
    key: str
    model: str
    cause: Cause
    user: str
    tags: str
    """The request's metadata as a JSON object, or nothing."""
    request: str
    """Its id; nothing where there are many."""
    requests: int = 1
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompt's that the prefix cache had."""
    completion_tokens: int = 0
    device_us: int = 0
    nano_usd: int = 0
    drafted_tokens: int = 0
    """Those of the answer's that a draft proposed. The last: older files have it added at the end of their rows."""

    @property
    def cost(self) -> Cost:
        """Money and device time."""
        return Cost(self.nano_usd, self.device_us)


@dataclass(frozen=True, slots=True)
class Intent:
    """A generation begins, which may cost so much."""

    id: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Settled:
    """It has ended: with an account, or for nothing."""

    id: int
    entry: Entry | None
    retried: Entry | None = None
    """What of it was billed before."""


Op = Intent | Settled | Entry
"""An entry by itself is of what no budget is charged for, and is added to those with the same labels."""

NAMES = Entry.__struct_fields__
COUNTS = NAMES[NAMES.index("requests") :]
_LABELS = NAMES[: NAMES.index("requests")]
_COLUMNS = ", ".join(f"{name} {'INTEGER' if name in COUNTS or name == 'at' else 'TEXT'} NOT NULL" for name in NAMES)
_MARKS = ", ".join("?" * len(NAMES))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS generations ({_COLUMNS});
CREATE INDEX IF NOT EXISTS generations_day ON generations (day);
CREATE TABLE IF NOT EXISTS hits ({_COLUMNS}, PRIMARY KEY ({", ".join(_LABELS)})) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS intents (id INTEGER PRIMARY KEY, {_COLUMNS});
CREATE TABLE IF NOT EXISTS gateway (id TEXT NOT NULL);
CREATE VIEW IF NOT EXISTS usage AS SELECT * FROM generations UNION ALL SELECT * FROM hits;
"""
_ADD = f"""
INSERT INTO hits VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET {", ".join(f"{c} = {c} + excluded.{c}" for c in COUNTS)}
"""


# Of a day that may not be today: the month before what is older. A clock that is months ahead is set right in the end.
_SINCE = "(SELECT COALESCE(date(MAX(day), '-32 days'), :since) FROM generations WHERE day < :since)"


class LedgerFile:
    """One connection to the ledger. Use it from one thread at a time."""

    def __init__(self, path: Path, max_pages: int | None = None) -> None:
        """Open the ledger, or make one.

        Args:
            path: the file. Its folder must be this process's own.
            max_pages: how large it may get; None: as large as the disk lets it.

        Raises:
            sqlite3.Error: it cannot be used.
        """
        self._path = path
        self._max_pages = max_pages
        self._gateway: str | None = None
        self._open()

    def _open(self) -> None:
        self._connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            self._prepare()
        except sqlite3.Error:
            self.close()
            raise
        self.resize(self._max_pages)
        self._opened = self._path.stat()

    def _begin_anew(self) -> None:
        """SQLite would go on with a file that nobody can find any more."""
        # It unlinks what is beside its file by name: not beside another.
        self.close()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._open()
        except OSError as error:
            raise sqlite3.OperationalError(f"it was taken away, and cannot be made anew: {error}") from None
        self.gateway(self._gateway)
        logger.error("the usage ledger %s was taken away, and begins anew; budgets hold in memory", self._path)

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(_SCHEMA)
        for table in ("generations", "hits", "intents"):
            had = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
            if "drafted_tokens" not in had:
                self._connection.execute(f"ALTER TABLE {table} ADD COLUMN drafted_tokens INTEGER NOT NULL DEFAULT 0")

    def resize(self, max_pages: int | None) -> None:
        """Let the file get so large."""
        self._max_pages = max_pages
        self._connection.execute(f"PRAGMA max_page_count = {2**32 - 2 if max_pages is None else max_pages}")

    def recover(self) -> int:
        """Have what a process before left open count as it was set aside; gives how many there were."""
        columns = ", ".join("'cut'" if name == "cause" else name for name in NAMES)
        with transaction(self._connection):
            count = self._connection.execute(f"INSERT INTO generations SELECT {columns} FROM intents").rowcount
            self._connection.execute("DELETE FROM intents")
        return count

    def write(self, batch: Sequence[Op]) -> None:
        """Commit all of it, or nothing. `sqlite3.Error` where it cannot be, as on a full disk."""
        if not is_at(self._path, self._opened):
            self._begin_anew()
        execute = self._connection.execute
        with transaction(self._connection):
            for op in batch:
                if isinstance(op, Intent):
                    execute(f"INSERT INTO intents VALUES (?, {_MARKS})", (op.id, *astuple(op.entry)))
                elif isinstance(op, Entry):
                    execute(_ADD, astuple(op))
                else:
                    execute("DELETE FROM intents WHERE id = ?", (op.id,))
                    if op.entry is not None:
                        execute(f"INSERT INTO generations VALUES ({_MARKS})", astuple(op.entry))
                    if op.retried is not None:
                        execute(_ADD, astuple(op.retried))

    def sums(self, since: str) -> Iterator[tuple[str, str, Cost]]:
        """Team, day and what it spent, from a day on, and in the last 32 days before it that have something."""
        query = (
            f"SELECT team, day, SUM(nano_usd), SUM(device_us) FROM generations WHERE day >= {_SINCE} GROUP BY team, day"
        )
        for team, day, nano_usd, device_us in self._connection.execute(query, {"since": since}):
            yield team, day, Cost(nano_usd, device_us)

    def gateway(self, fresh: str | None = None) -> str:
        """The name of the gateway whose file it is, the same for as long as the file is there.

        `fresh`: what a file without one gets; None: a name of its own.
        """
        with transaction(self._connection):
            if (row := self._connection.execute("SELECT id FROM gateway").fetchone()) is None:
                row = (fresh or secrets.token_hex(8),)
                self._connection.execute("INSERT INTO gateway VALUES (?)", row)
        self._gateway = str(row[0])
        return self._gateway

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class LateLedgerFile:
    """A ledger that could not be opened, as on a full disk: each write tries it again. Use it from one thread."""

    def __init__(self, path: Path, gateway: str) -> None:
        """`path`: as of `LedgerFile`; `gateway`: the name that others know its sums by until it can be opened."""
        self._path = path
        self._gateway = gateway
        self._file: LedgerFile | None = None

    def write(self, batch: Sequence[Op]) -> None:
        """As of `LedgerFile`; what a process before left open counts as it was set aside first."""
        if self._file is None:
            file = LedgerFile(self._path)
            try:
                file.recover()
                # The next start tells the others the same sums: under another name they would count twice.
                file.gateway(self._gateway)
            except sqlite3.Error:
                file.close()
                raise
            self._file = file
        self._file.write(batch)

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            self._file.close()


def read_spent(path: Path, since: str) -> tuple[str, list[tuple[str, str, Cost]]]:
    """Of a ledger that cannot be written: its gateway, and what teams spent, as `sums`, what was left open included.

    One that no gateway got to name gets a name, which `LateLedgerFile` writes.

    Raises:
        sqlite3.Error: it cannot be read, or was never begun.
    """
    spent = "SELECT team, day, nano_usd, device_us FROM"
    query = (
        f"SELECT team, day, SUM(nano_usd), SUM(device_us) FROM ({spent} generations UNION ALL {spent} intents) "
        f"WHERE day >= {_SINCE} GROUP BY team, day"
    )

    def read(how: str) -> tuple[str, list[tuple[str, str, Cost]]]:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)
        try:
            (gateway,) = connection.execute("SELECT MAX(id) FROM gateway").fetchone()
            rows = connection.execute(query, {"since": since})
            gateway = gateway or secrets.token_hex(8)
            return str(gateway), [(team, day, Cost(nano_usd, device_us)) for team, day, nano_usd, device_us in rows]
        finally:
            connection.close()

    try:
        return read("mode=ro")
    except sqlite3.Error:
        # Files beside it, without which SQLite reads no ledger that others may write, cannot be made either.
        return read("immutable=1")


def _reader(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing. `path` may be a copy where nothing can be written."""
    # As a URI: a name may have ?, # and % in it.
    uri = path.absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        # The write-ahead mode wants files beside it. Without what they hold it can be read as it is.
        ahead = path.with_name(f"{path.name}-wal")
        if not path.is_file() or (ahead.exists() and ahead.stat().st_size):
            raise
        connection = sqlite3.connect(f"{uri}?immutable=1", uri=True)
    return connection


def read_usage(path: Path, by: Sequence[str], team: str | None, since: str | None) -> list[tuple[object, ...]]:
    """Sums of the counts by columns, from a ledger that a server may be writing. `sqlite3.Error` where it is none."""
    allowed = ("team", "key", "model", "cause", "day", "user")
    if wrong := [name for name in by if name not in allowed]:
        raise ValueError(f"'{wrong[0]}' is no column to sum by; expected some of {', '.join(allowed)}")
    columns = ", ".join(f'"{name}"' for name in by)
    conditions: Iterable[tuple[str, str | None]] = (("team = ?", team), ("day >= ?", since))
    given = [(text, value) for text, value in conditions if value is not None]
    connection = _reader(path)
    try:
        # A copy of before a column was added has none of it until a server writes there.
        had = {row[1] for row in connection.execute("PRAGMA table_info(usage)")}
        counts = ", ".join(f"SUM({name})" if name in had or not had else "0" for name in COUNTS)
        query = f"SELECT {columns}, {counts} FROM usage"
        if given:
            query += " WHERE " + " AND ".join(text for text, _ in given)
        rows = connection.execute(f"{query} GROUP BY {columns} ORDER BY {columns}", [value for _, value in given])
        return [tuple(row) for row in rows]
    finally:
        connection.close()
