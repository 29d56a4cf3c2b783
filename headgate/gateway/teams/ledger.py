"""The way to the ledger: a thread of its own writes, in batches, and nobody's loop waits for the disk.

Where the disk is full or gone, requests are served all the same and their entries wait, up to a bound; budgets go on
from what this process knows. The log, `/ready` and a metric say so, and whatever waits is written once it can be.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue

from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.teams.budgets import Budgets
from headgate.gateway.teams.costs import Cost
from headgate.gateway.teams.ledger_file import (
    Cause,
    Entry,
    Intent,
    LateLedgerFile,
    LedgerFile,
    Op,
    Settled,
    read_spent,
)

logger = logging.getLogger("headgate.gateway")

PART = "usage ledger"
FILE = "usage.sqlite3"
HITS_S = 1.0
"""Hits are written this often; a process that is killed may lose so many seconds of them. They cost nothing."""
RETRY_S = 1.0
MOST_WAITING = 10_000
WAIT_S = 0.5
"""How long a request waits for its entry to be on disk."""

_Waiting = tuple[Op, asyncio.Future[bool] | None]
HitLabels = tuple[str, int, str, str, str, Cause, str, str]
"""Of an entry of hits: day, minute, team, key, model, cause, user and tags."""


async def open_ledger(folder: Path | None, budgets: Budgets, lifecycle: Lifecycle) -> Ledger | None:
    """The ledger of a data folder, or None without one. Budgets go on from it; the lifecycle learns how it stands.

    One that cannot be opened, as on a full disk, is tried again as one that cannot be written.
    """
    if folder is None:
        why = "there is no data folder (storage.folder), so budgets begin anew with each start"
        lifecycle.set(PART, "off", why, required=False)
        return None
    path = folder / FILE

    def changed(reason: str | None) -> None:
        detail = str(path) if reason is None else f"{path}: {reason}"
        lifecycle.set(PART, "ready" if reason is None else "failed", detail, required=False)

    # All days of this month, wherever on earth it is.
    since = (datetime.now(UTC) - timedelta(days=32)).strftime("%Y-%m-%d")
    file: LedgerFile | LateLedgerFile
    try:
        file, gateway, sums, cut = await asyncio.to_thread(_opened, path, since)
        failing = None
        if cut:
            what = "%d answers were cut off when the server ended last; they count as was set aside for them"
            logger.warning(what, cut)
    except sqlite3.Error as error:
        failing = str(error)
        try:
            gateway, sums = await asyncio.to_thread(read_spent, path, since)
            logger.error("the usage ledger %s cannot be written, and requests are served without: %s", path, error)
        except sqlite3.Error:
            gateway, sums = secrets.token_hex(8), []
            logger.error("the usage ledger %s cannot be used, and budgets begin anew: %s", path, error)
        file = LateLedgerFile(path, gateway)
    budgets.load(sums)
    changed(failing)
    return Ledger(file, gateway, changed=changed, failing=failing)


def _opened(path: Path, since: str) -> tuple[LedgerFile, str, list[tuple[str, str, Cost]], int]:
    file = LedgerFile(path)
    try:
        cut = file.recover()
        return file, file.gateway(), list(file.sums(since)), cut
    except sqlite3.Error:
        file.close()
        raise


class Ledger:
    """Writes entries. Everything but the thread belongs to one event loop."""

    def __init__(
        self,
        file: LedgerFile | LateLedgerFile,
        gateway: str = "",
        *,
        most_waiting: int = MOST_WAITING,
        retry_s: float = RETRY_S,
        changed: Callable[[str | None], None] | None = None,
        failing: str | None = None,
    ) -> None:
        """A ledger that writes at once.

        Args:
            file: where to.
            gateway: whose it is, among several that share budgets.
            most_waiting: entries that may wait while nothing can be written; more are lost, and counted.
            retry_s: seconds between trials then.
            changed: called on the loop with the reason when nothing can be written, and with None when it can again.
            failing: why nothing can be written from the start.
        """
        self._file = file
        self.gateway = gateway
        self._most = most_waiting
        self._retry_s = retry_s
        self._changed = changed or (lambda _: None)
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._fresh: list[_Waiting] = []
        self._awaited: deque[tuple[float, asyncio.Future[bool]]] = deque()
        self._late: asyncio.TimerHandle | None = None
        self._handed: SimpleQueue[list[_Waiting] | None] = SimpleQueue()
        self._reason = failing
        self._hits: dict[HitLabels, list[int]] = {}
        self._flush: asyncio.TimerHandle | None = None
        self.waiting = 0
        """Entries that are not written yet."""
        self.lost = 0
        """Entries that found no room to wait, or that no file can hold."""
        self._thread = threading.Thread(target=self._write, name="usage ledger", daemon=True)
        self._thread.start()
        if failing is not None:
            # Nothing is settled by it, but it is tried until it is written.
            self._put(Settled(0, None), None)

    @property
    def failing(self) -> str | None:
        """Why nothing can be written now, or None."""
        return self._reason

    async def begin(self, entry: Entry) -> int:
        """Have it on disk that a generation may cost so much; gives the id to settle it by."""
        number = next(self._ids)
        try:
            await self._written(Intent(number, entry))
        except BaseException:
            # Nothing will begin: it is not to be found by the next start.
            self._put(Settled(number, None), None)
            raise
        return number

    def settle(self, number: int, entry: Entry | None, retried: Entry | None = None) -> None:
        """A generation has ended, with an account or for nothing. It is written soon.

        `retried` is what of it was billed before.
        """
        self._put(Settled(number, entry, retried), None)

    async def settled(self, number: int, entry: Entry, retried: Entry | None = None) -> None:
        """The same, on disk when this returns: who has seen the end of an answer finds it in the ledger."""
        await self._written(Settled(number, entry, retried))

    def hit(self, labels: HitLabels, prompt_tokens: int, completion_tokens: int) -> None:
        """An answer from the cache was served, which took so many tokens when it was made."""
        counts = self._hits.get(labels)
        if counts is None:
            counts = self._hits[labels] = [0, 0, 0]
        counts[0] += 1
        counts[1] += prompt_tokens
        counts[2] += completion_tokens
        if self._flush is None:
            self._flush = self._loop.call_later(HITS_S, self._flush_hits)

    def note(self, entry: Entry) -> None:
        """Something that no budget is charged for. It is written soon."""
        self._put(entry, None)

    async def close(self) -> None:
        """Write what waits, if it can be written, and close the file."""
        self._flush_hits()
        self._hand_over()
        self._handed.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._late is not None:
            self._late.cancel()
        self._file.close()

    def _flush_hits(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        hits, self._hits = self._hits, {}
        for labels, (requests, prompt, completion) in hits.items():
            entry = Entry(*labels, "", requests, prompt_tokens=prompt, completion_tokens=completion)
            self._put(entry, None)

    async def _written(self, op: Op) -> None:
        if self._reason is not None:
            self._put(op, None)
            return
        done: asyncio.Future[bool] = self._loop.create_future()
        self._put(op, done)
        # Nobody waits longer than those before him, so that one timer does for all.
        self._awaited.append((self._loop.time() + WAIT_S, done))
        if self._late is None:
            self._late = self._loop.call_later(WAIT_S, self._give_up)
        await done

    def _put(self, op: Op, done: asyncio.Future[bool] | None) -> None:
        if self.waiting >= self._most:
            self.lost += 1
            if done is not None:
                done.set_result(False)
            return
        self.waiting += 1
        self._fresh.append((op, done))
        if len(self._fresh) == 1:
            # When all that can run now has run: a thread that is woken before only takes turns with this one.
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._handed.put(fresh)

    def _write(self) -> None:
        batch: list[_Waiting] = []
        closing = False
        while not closing:
            # What could not be written goes together with what came since.
            while not closing and not (batch and self._handed.empty()):
                handed = self._handed.get()
                closing = handed is None
                batch += handed or ()
            if not batch:
                return
            try:
                self._file.write([op for op, _ in batch])
            except sqlite3.Error as error:
                self._tell(batch, str(error))
                if not closing:
                    time.sleep(self._retry_s)
            except Exception:
                # One of them is at fault, and the others are not to wait for it.
                batch = self._write_each(batch)
            else:
                self._tell(batch, None)
                batch = []

    def _write_each(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Write one by one, without those that cannot be; gives what the disk does not take now."""
        for at, waiting in enumerate(batch):
            try:
                self._file.write([waiting[0]])
            except sqlite3.Error:
                return batch[at:]
            except Exception:
                logger.exception("an entry cannot be written to the usage ledger, and is lost")
                self._tell([waiting], None, lost=True)
            else:
                self._tell([waiting], None)
        return []

    def _tell(self, batch: list[_Waiting], reason: str | None, *, lost: bool = False) -> None:
        told = [done for _, done in batch if done is not None]
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._told, told, 0 if reason else len(batch), reason, lost)

    def _give_up(self) -> None:
        """Wait no more for what is not on disk by now, and look again when the next should be."""
        now, awaited = self._loop.time(), self._awaited
        while awaited and (awaited[0][0] <= now or awaited[0][1].done()):
            done = awaited.popleft()[1]
            if not done.done():
                done.set_result(False)
        self._late = self._loop.call_at(awaited[0][0], self._give_up) if awaited else None

    def _told(self, told: list[asyncio.Future[bool]], gone: int, reason: str | None, lost: bool) -> None:
        self.waiting -= gone
        self.lost += lost
        for done in told:
            if not done.done():
                done.set_result(reason is None and not lost)
        while self._awaited and self._awaited[0][1].done():
            self._awaited.popleft()
        if (reason is None) == (self._reason is None):
            return
        self._reason = reason
        if reason is None:
            logger.warning("the usage ledger is written again")
        else:
            logger.error("the usage ledger cannot be written, and requests are served without: %s", reason)
        self._changed(reason)
