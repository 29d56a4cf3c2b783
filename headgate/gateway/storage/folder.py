"""The data folder: which one, held by one server at a time, with its catalog and its files."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.storage.database import Database, is_at
from headgate.gateway.storage.files import Files
from headgate.gateway.storage.sections import StorageSection

logger = logging.getLogger("headgate.gateway")

PART = "storage"
_TIDY_S = 600.0


class Storage:
    """An open data folder."""

    def __init__(self, folder: Path, limits: StorageSection, clock: Callable[[], float] = time.time) -> None:
        """Open a folder, which is made if it is not there, and remove what a crash left of unfinished uploads.

        Raises:
            OSError: it cannot be used, or another server uses it.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._lock = _held(folder)
        try:
            self.database = Database(folder / "catalog.sqlite3", self._hold)
            self.files = Files(folder, self.database, limits, clock)
        except sqlite3.Error as error:
            self._lock.close()
            raise OSError(f"{folder / 'catalog.sqlite3'}: {error}") from None
        except OSError:
            self._lock.close()
            raise

    def _hold(self) -> None:
        """Make the folder anew where somebody has taken it away. OSError where it cannot be had."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_at(self.folder / "lock", os.fstat(self._lock.fileno())):
            mine, self._lock = self._lock, _held(self.folder)
            mine.close()
        logger.error("the catalog in %s was taken away: files and batches begin anew", self.folder)

    async def tidy(self) -> None:
        """Remove files whose time is over, every so often, until cancelled."""
        while True:
            try:
                await self.files.sweep()
            except (OSError, sqlite3.Error) as error:
                logger.warning("files whose time is over could not be removed: %s", error)
            await asyncio.sleep(_TIDY_S)

    def close(self) -> None:
        """Leave the folder to others."""
        self.database.close()
        self._lock.close()


def default_folder(environ: Mapping[str, str]) -> Path:
    """`headgate` in the user's data folder, by the XDG rules.

    Raises:
        OSError: the user has no home, as one in a container who is a number only.
    """
    if base := environ.get("XDG_DATA_HOME"):
        return Path(base) / "headgate"
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        raise OSError("this user has no home; name a folder with storage.folder") from None
    return home / ".local/share/headgate"


def open_storage(section: StorageSection, lifecycle: Lifecycle, environ: Mapping[str, str]) -> Storage | None:
    """The data folder, or None. The lifecycle learns which, and why none.

    Raises:
        OSError: the configuration names a folder that cannot be used.
    """
    if section.folder is None:
        lifecycle.set(PART, "off", "switched off by storage.folder", required=False)
        return None
    auto = section.folder == "auto"
    try:
        folder = default_folder(environ) if auto else Path(section.folder)
        storage = Storage(folder, section)
    except OSError as error:
        if not auto:
            raise
        lifecycle.set(PART, "failed", str(error), required=False)
        return None
    lifecycle.set(PART, "ready", str(folder), required=False)
    return storage


def _held(folder: Path) -> IO[str]:
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise OSError(f"{folder} is used by another server; give each its own with storage.folder") from None
    return lock
