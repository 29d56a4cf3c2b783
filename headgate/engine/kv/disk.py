"""The tier on disk: records as files of a folder, found again after a restart.

A file is named after its record and the one before it, and has a header and a sum beside the record: what is damaged,
cut off or of another version is never used. It is written under another name and renamed, so it is whole or not there;
after a crash of the machine it may be neither, which the sum tells. One process has the folder at a time. No failure
here fails a request.

`<folder>/key` is the secret of all identities. Who can read the folder can read what prompts said: keys and values give
that away. Folder and files are their owner's alone.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from headgate.cache.prefix import DIGEST_BYTES
from headgate.engine.errors import EngineError
from headgate.engine.kv.order import Order

logger = logging.getLogger(__name__)

_HEADER = struct.Struct("<8sQ16sI28x")
"""What wrote it, bytes and identity of the record, crc32 of both."""
_MAGIC = b"hgate-k1"
_KEY_BYTES = 32
_NAME = 4 * DIGEST_BYTES  # hexadecimal digits of two identities
_PAGE = 4096
_PAUSE_S = 30.0
"""How long nothing is written after that failed: where a disk is full, each attempt costs a copy."""


class KVFolderError(EngineError):
    """The folder for keys and values cannot be used: the message names the setting."""


class DiskFolder:
    """All records of an engine, of up to `most` bytes together. Any thread may call it."""

    def __init__(self, folder: Path, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the folder, which is made where it is missing, and find what is in it.

        Raises:
            KVFolderError: it cannot be made, read or written, or another process has it.
        """
        self.most = most
        """Less than it was where the disk turned out to have less."""
        self._folder = folder
        self._clock = clock
        self._guard, self._renewing = threading.Lock(), threading.Lock()
        self._order = Order()
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._sizes: dict[str, list[int]] = {}
        self._taken = 0
        self._paused_until = -float("inf")
        self._told: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = self._locked(folder / "lock")
            try:
                folder.chmod(0o700)
                self.key = _key(folder / "key")
                self._scan()
            except OSError:
                self.close()
                raise
        except OSError as error:
            raise KVFolderError(f"kv_disk_path: {folder} cannot be used: {error.strerror or error}") from error

    def close(self) -> None:
        """Another process may have the folder."""
        os.close(self._lock)

    def tier(self, name: str, nbytes: int) -> DiskTier:
        """The records of one model, of `nbytes` each, in a folder of that name.

        Raises:
            KVFolderError: there is no room for one.
        """
        if _space(nbytes) > self.most:
            raise KVFolderError(f"kv_disk_bytes {self.most} holds no block; {_space(nbytes)} is the least")
        return DiskTier(self, name, nbytes)

    def holds(self, identity: bytes) -> bool:
        """Whether there is a file for it. It may turn out to be damaged."""
        return identity in self._places

    @property
    def writable(self) -> bool:
        """Whether it is worth trying to write."""
        return self._clock() >= self._paused_until

    def sizes(self, name: str) -> tuple[int, int]:
        """Records and bytes of a model's folder; may be a little behind."""
        count, nbytes = self._sizes.get(name, (0, 0))
        return count, nbytes

    def touch(self, identities: Iterable[bytes]) -> None:
        """They were used, the first of them last: also for a process to come."""
        for identity in reversed(list(identities)):
            with self._guard:
                place = self._places.get(identity)
                if place is not None:
                    self._order.touch(identity)
            if place is not None:
                with suppress(OSError):
                    os.utime(place[0])

    def read(self, identity: bytes, record: NDArray[np.uint8]) -> bool:
        """Read a record; False, and forgotten, where it is not there or not as it was written."""
        place = self._places.get(identity)
        if place is None:
            return False
        header = bytearray(_HEADER.size)
        try:
            descriptor = os.open(place[0], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                found = os.fstat(descriptor).st_size
                if found == len(header) + record.nbytes:
                    found = _read(descriptor, header, record)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._tell("read", "keys and values cannot be read from %s: %s", place[0], error)
            self._drop(identity)  # the file stays: it may be this process that has too many
            return False
        magic, nbytes, name, total = _HEADER.unpack(header)
        whole = (magic, nbytes, name) == (_MAGIC, record.nbytes, identity) and found == len(header) + record.nbytes
        if whole and total == _sum(identity, record):
            return True
        self._tell("damaged", "keys and values in %s are damaged or of another version; they are computed", place[0])
        self.forget(identity)
        return False

    def write(self, name: str, identity: bytes, parent: bytes, record: NDArray[np.uint8]) -> bool:
        """Write a record, in place of those that go first where there is no room; False where that failed."""
        space = _space(record.nbytes)
        with self._guard:
            if identity in self._places:
                return True
            gone = []
            while self._taken + space > self.most and (first := self._order.pop()) is not None:
                gone.append(self._forget(first))
        _unlink(gone)
        path = self._folder / name / f"{identity.hex()}{parent.hex()}"
        header = _HEADER.pack(_MAGIC, record.nbytes, identity, _sum(identity, record))
        try:
            self._hold()
            _write(path, header, record)
        except (OSError, KVFolderError) as error:
            self._paused_until = self._clock() + _PAUSE_S
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                with self._guard:  # from now on what is newer takes the place of what is older
                    self.most = max(self._taken, space)
            self._tell("write", "keys and values cannot be written to %s: %s", path.parent, error)
            return False
        self._told.discard("write")
        with self._guard:
            self._add(path, space)
        return True

    def forget(self, identity: bytes) -> None:
        """The record is not to be found any more."""
        _unlink(self._drop(identity))

    def _hold(self) -> None:
        """Make the folder anew where somebody has taken it away. OSError or KVFolderError where it cannot be had."""
        with self._renewing:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), (self._folder / "lock").stat(follow_symlinks=False)):
                    return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = self._locked(self._folder / "lock")
            try:
                # What was kept is gone; what is to come has the same identities.
                _write_key(self._folder / "key", self.key)
            except OSError:
                os.close(lock)
                raise
            os.close(self._lock)
            self._lock = lock
            with self._guard:
                self._order, self._places, self._sizes, self._taken = Order(), {}, {}, 0
            logger.warning("kv_disk_path: %s was taken away, and is made anew", self._folder)

    def _drop(self, identity: bytes) -> list[Path]:
        with self._guard:
            if identity not in self._places:
                return []
            self._order.remove(identity)
            return [self._forget(identity)]

    def _tell(self, kind: str, message: str, *parts: object) -> None:
        """Once; what cannot be written again after it could be."""
        if kind not in self._told:
            self._told.add(kind)
            logger.warning(message, *parts)

    def _add(self, path: Path, space: int) -> None:
        identity, parent = (bytes.fromhex(path.name[at : at + _NAME // 2]) for at in (0, _NAME // 2))
        self._places[identity] = path, space
        self._order.add(identity, parent)
        self._taken += space
        sizes = self._sizes.setdefault(path.parent.name, [0, 0])
        sizes[0] += 1
        sizes[1] += space

    def _forget(self, identity: bytes) -> Path:
        path, space = self._places.pop(identity)
        self._taken -= space
        sizes = self._sizes[path.parent.name]
        sizes[0] -= 1
        sizes[1] -= space
        return path

    def _scan(self) -> None:
        """Find the files, those first that were used longest ago. What was not finished goes."""
        found: list[tuple[int, Path, int]] = []
        for models in self._folder.iterdir():
            if not models.is_dir() or models.is_symlink():
                continue
            for entry in os.scandir(models):
                path = Path(entry.path)
                if not entry.is_file(follow_symlinks=False):
                    continue
                if len(entry.name) != _NAME or set(entry.name) - set("0123456789abcdef"):
                    if entry.name.endswith(".part"):
                        path.unlink()
                    continue
                stat = entry.stat(follow_symlinks=False)
                found.append((stat.st_mtime_ns, path, _space(stat.st_size - _HEADER.size)))
        for _, path, space in sorted(found):
            if bytes.fromhex(path.name[: _NAME // 2]) not in self._places:
                self._add(path, space)
        gone = []
        while self._taken > self.most and (first := self._order.pop()) is not None:
            gone.append(self._forget(first))
        _unlink(gone)
        if found:
            logger.info("%d blocks of keys and values are in %s", len(self._places), self._folder)

    def _locked(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise KVFolderError(
                f"kv_disk_path: {self._folder} is used by another process; each needs a folder of its own"
            ) from None
        return descriptor


class DiskTier:
    """The records of one model in a DiskFolder."""

    def __init__(self, folder: DiskFolder, name: str, nbytes: int) -> None:
        self.nbytes = nbytes
        """Of a record."""
        self._folder = folder
        self._name = name

    @property
    def writable(self) -> bool:
        """See DiskFolder."""
        return self._folder.writable

    @property
    def sizes(self) -> tuple[int, int]:
        """Records and bytes."""
        return self._folder.sizes(self._name)

    def holds(self, identity: bytes) -> bool:
        """See DiskFolder."""
        return self._folder.holds(identity)

    def touch(self, identities: Iterable[bytes]) -> None:
        """See DiskFolder."""
        self._folder.touch(identities)

    def read(self, identity: bytes, record: NDArray[np.uint8]) -> bool:
        """See DiskFolder."""
        return self._folder.read(identity, record)

    def write(self, identity: bytes, parent: bytes, record: NDArray[np.uint8]) -> bool:
        """See DiskFolder."""
        return self._folder.write(self._name, identity, parent, record)

    def forget(self, identity: bytes) -> None:
        """See DiskFolder."""
        self._folder.forget(identity)


def _space(nbytes: int) -> int:
    """What a record takes of a disk, roughly."""
    return -(-(_HEADER.size + nbytes) // _PAGE) * _PAGE


def _sum(identity: bytes, record: NDArray[np.uint8]) -> int:
    return crc32(record.data, crc32(identity))


def _read(descriptor: int, header: bytearray, record: NDArray[np.uint8]) -> int:
    """How many bytes there were."""
    whole, done = len(header) + record.nbytes, 0
    content = record.data.cast("B")
    while done < whole:
        at = done - len(header)
        into = [memoryview(header)[done:], content] if at < 0 else [content[at:]]
        count = os.preadv(descriptor, into, done)
        if not count:
            break
        done += count
    return done


def _write(path: Path, header: bytes, record: NDArray[np.uint8]) -> None:
    unfinished = path.with_suffix(".part")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for part in (memoryview(header), record.data.cast("B")):
                done = 0
                while done < len(part):
                    done += file.write(part[done:])
        unfinished.rename(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _key(path: Path) -> bytes:
    """The secret in a file, which is made where there is none; one that cannot be a secret is replaced."""
    with suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            path.chmod(0o600)
            return key
        logger.warning("%s is damaged; what is kept beside it is not found again", path)
    key = secrets.token_bytes(_KEY_BYTES)
    _write_key(path, key)
    return key


def _write_key(path: Path, key: bytes) -> None:
    unfinished = path.with_suffix(".part")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
