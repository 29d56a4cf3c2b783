"""What outlives the process beside the answers: the latest labels, and a few values that all gateways agree on."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import msgspec

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEEP = 10_000
"""Records that a journal keeps; the oldest goes first."""
_FRAME = struct.Struct("<II")
"""Before each record: its length and its CRC-32."""


class Journal(Protocol):
    """Records in the order of their coming, named values and named counts.

    Methods may raise `OSError`. What was written before a method returned is there after a crash.
    """

    async def append(self, record: bytes) -> None:
        """Keep a record. At least the last `KEEP` are kept."""
        ...

    async def records(self) -> list[bytes]:
        """The records, the oldest first."""
        ...

    async def values(self) -> dict[str, bytes]:
        """All values; counts are among them as decimal digits."""
        ...

    async def set(self, name: str, value: bytes) -> None:
        """Give a value a name, in place of an older one."""
        ...

    async def add(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add to counts, which begin at 0; gives what they are now, others' additions included."""
        ...


class FileJournal:
    """A journal in a folder, for one process at a time. Every method ends after the disk has it."""

    def __init__(self, folder: Path, keep: int = KEEP) -> None:
        """Open the journal of a folder, which is made if it is not there. What a crash left half written is dropped.

        Raises:
            OSError: the folder cannot be used, or another process uses it.
            ValueError: the file of values was not written by this class.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._keep = folder, keep
        self._lock = _locked(folder)
        self._turn = asyncio.Lock()
        self._values = self._read_values()
        self._records, whole = _read_records(self._path("labels"))
        # Without a buffer: what a full disk did not take is not tried again behind the back of who tries again.
        self._file = self._path("labels").open("ab", buffering=0)
        self._file.truncate(whole)

    async def append(self, record: bytes) -> None:
        """Keep a record."""
        await self._in_turn(lambda: self._append(record))

    async def records(self) -> list[bytes]:
        """The records, the oldest first."""
        return list(self._records)

    async def values(self) -> dict[str, bytes]:
        """All values and counts."""
        return dict(self._values)

    async def set(self, name: str, value: bytes) -> None:
        """Give a value a name."""
        await self._in_turn(lambda: self._write_values({**self._values, name: value}))

    async def add(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add to counts."""

        def add() -> dict[str, int]:
            sums = {name: int(self._values.get(name, b"0")) + amount for name, amount in amounts.items()}
            self._write_values({**self._values, **{name: str(count).encode() for name, count in sums.items()}})
            return sums

        return await self._in_turn(add)

    def close(self) -> None:
        """Leave the folder to others."""
        self._file.close()
        self._lock.close()

    async def _in_turn(self, work: Callable[[], T]) -> T:
        # Disks may be slow: nobody's answer waits for them.
        async with self._turn:
            writing = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(writing)
            except asyncio.CancelledError:
                # The thread goes on, and the next turn is not to write into what it writes.
                await asyncio.wait([writing])
                raise

    def _hold(self) -> None:
        """Make the folder anew, with all that is known, where somebody has taken it or a file of it away."""
        if all(_is(file, self._path(name)) for file, name in ((self._lock, "lock"), (self._file, "labels"))):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        if not _is(self._lock, self._path("lock")):
            mine, self._lock = self._lock, _locked(self._folder)
            mine.close()
        labels = self._replace("labels", b"".join(map(_framed, self._records)))
        old, self._file = self._file, labels
        old.close()
        self._replace("values", msgspec.msgpack.encode(self._values)).close()
        self._sync_folder()
        logger.warning("%s was taken away, and is made anew", self._folder)

    def _append(self, record: bytes) -> None:
        self._hold()
        whole = os.fstat(self._file.fileno()).st_size
        try:
            _write(self._file, _framed(record))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(whole)
            raise
        self._records.append(record)
        if len(self._records) >= 2 * self._keep:
            del self._records[: -self._keep]
            try:
                self._shorten()
            except OSError as error:
                # The record is kept. It is tried again after as many more.
                logger.warning("%s could not be made shorter: %s", self._path("labels"), error)

    def _shorten(self) -> None:
        shorter = self._replace("labels", b"".join(map(_framed, self._records)))
        # From here on the old file has no name, whatever else may fail.
        old, self._file = self._file, shorter
        old.close()
        self._sync_folder()

    def _read_values(self) -> dict[str, bytes]:
        try:
            return msgspec.msgpack.decode(self._path("values").read_bytes(), type=dict[str, bytes])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            raise ValueError(f"{self._path('values')} is no journal: {error}") from error

    def _write_values(self, values: dict[str, bytes]) -> None:
        self._hold()
        self._replace("values", msgspec.msgpack.encode(values)).close()
        self._sync_folder()
        self._values = values

    def _replace(self, name: str, content: bytes) -> FileIO:
        """The file as it was or as it shall be, whenever the machine stops; gives it, open to be added to."""
        new = self._path(f"{name}.new")
        file = new.open("ab", buffering=0)
        try:
            file.truncate(0)
            _write(file, content)
            os.fsync(file.fileno())
            new.replace(self._path(name))
        except OSError:
            file.close()
            raise
        return file

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, name: str) -> Path:
        return self._folder / name


def _locked(folder: Path) -> IO[str]:
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise OSError(f"{folder} is used by another process; one folder for each is accepted") from None
    return lock


def _is(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write(file: FileIO, content: bytes) -> None:
    """All of it: a disk that fills up takes a part before it refuses the rest."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _framed(record: bytes) -> bytes:
    return _FRAME.pack(len(record), zlib.crc32(record)) + record


def _read_records(path: Path) -> tuple[list[bytes], int]:
    """The records before the first that is not whole, and how many bytes they take."""
    content = path.read_bytes() if path.exists() else b""
    records: list[bytes] = []
    at = 0
    while at + _FRAME.size <= len(content):
        length, checksum = _FRAME.unpack_from(content, at)
        record = content[at + _FRAME.size : at + _FRAME.size + length]
        if len(record) < length or zlib.crc32(record) != checksum:
            break
        records.append(record)
        at += _FRAME.size + length
    return records, at
