"""Where blocks go that the pool overwrites, and from where they come back: host memory, then disk.

What the pool gives to a new owner is copied to a row of the shelf before the step that overwrites it, and from there to
disk. A prompt whose prefix goes on in a tier waits in the queue until these blocks are filled; nobody waits behind it.
All that takes long is done by one thread beside the step thread, loads before writes. It is a cache: where there is no
room, where something fails or takes too long, tokens are computed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from headgate.engine.kv.beside import Beside, Task
from headgate.engine.kv.block_table import BlockTable
from headgate.engine.kv.disk import DiskTier
from headgate.engine.kv.leaving import Full, Leaving
from headgate.engine.kv.loading import Load
from headgate.engine.kv.records import BlockRecords
from headgate.engine.kv.shelf import Shelf
from headgate.engine.kv.tables import KVTables
from headgate.engine.request import Delta

logger = logging.getLogger(__name__)

Call = Callable[[Callable[[], list[Delta]]], None]
"""Has the step thread do something between two steps."""

_GROUP = 8
"""Blocks that are read before they are copied together."""
_IDLE = 2
"""Blocks that are copied at a time while nobody asks: whoever comes meanwhile waits for that."""
_MUCH = 64
"""Tokens of a step that tells how fast prompts are computed."""
_PATIENCE, _LEAST_WAIT_S, _UNKNOWN_WAIT_S = 2.0, 0.1, 10.0
"""A load may take so many times as long as computing would, or the first time; or the second while nobody knows."""
_FADING = 0.98
"""What is left of a tier's measured time each time that it was found too slow: it is tried again some day."""
_CLOSING_S = 5.0
"""How long an engine that stops writes what is not on disk yet."""


@dataclass(frozen=True, slots=True)
class TierStats:
    """Of one model. Counters are since its start."""

    host_blocks: int = 0
    host_bytes: int = 0
    """Reserved."""
    disk_blocks: int = 0
    disk_bytes: int = 0
    """Of the files."""
    host_tokens: int = 0
    """Tokens whose keys and values came back from host memory."""
    disk_tokens: int = 0
    loads: int = 0
    short_loads: int = 0
    """That failed, or took too long, before all was loaded."""
    load_seconds: float = 0.0
    written_blocks: int = 0
    """To disk."""
    dropped_blocks: int = 0
    """That a tier was to have and did not get: copies came too fast, or could not be written."""


class Tiers:
    """The tiers of one model. `fetch`, `save`, `save_idle` and `attach` belong to the step thread."""

    def __init__(
        self,
        tables: KVTables,
        shelf: Shelf,
        disk: DiskTier | None,
        *,
        call: Call,
        beside: Beside,
        keeps: bool = True,
        most_queued: int = 64,
        least_blocks: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What is noted of `tables` from now on is kept.

        Args:
            tables: of the model.
            shelf: in host memory.
            disk: on disk.
            call: the step loop's.
            beside: does what takes long.
            keeps: whether host memory is a tier; otherwise records only pass through it on their way.
            most_queued: blocks that are copied before one step, and blocks that wait to be written.
            least_blocks: a load of fewer is not worth it.
            clock: in seconds.
        """
        self._leaving = tables.leaving = Leaving()
        self._tables, self._shelf, self._disk = tables, shelf, disk
        self._call, self._beside, self._clock = call, beside, clock
        self._keeps, self._most_queued, self._least = keeps, most_queued, least_blocks
        self._records: BlockRecords | None = None
        self._queued = 0
        """Rows whose records wait to be written; only the step thread adds, under the lock of their counting."""
        self._counting = threading.Lock()
        self._wrote = threading.Event()
        self._hungry = False
        self._loads: dict[bytes, Load] = {}
        self._overdue = 0
        self._waited_for: dict[Load, Task] = {}
        """And what keeps each from being given up."""
        self._token_s: float | None = None
        self._block_s: dict[bool, float] = {}
        """Seconds of a block, by whether it is on disk."""
        self.ended = 0
        """Loads that nobody waits for any more."""
        self._host_tokens = self._disk_tokens = self._started = self._short = 0
        self._dropped = 0
        self._written = self._unwritten = 0  # counted by the beside thread
        self._load_seconds = 0.0

    @property
    def stats(self) -> TierStats:
        """Figures now; may be read from another thread."""
        disk_blocks, disk_bytes = (0, 0) if self._disk is None else self._disk.sizes
        return TierStats(
            len(self._shelf) if self._keeps else 0,
            self._shelf.nbytes if self._keeps else 0,
            disk_blocks,
            disk_bytes,
            self._host_tokens,
            self._disk_tokens,
            self._started,
            self._short,
            self._load_seconds,
            self._written,
            self._dropped + self._unwritten,
        )

    @property
    def loading(self) -> int:
        """Loads under way, those included that nobody waits for any more."""
        return len(self._loads)

    @property
    def tables(self) -> list[BlockTable]:
        """Of the loads under way."""
        return [load.table for load in self._loads.values()]

    def attach(self, records: BlockRecords | None) -> None:
        """What is copied from and to now; None while the model sleeps. No load is under way."""
        self._records = records

    def computed(self, tokens: int, seconds: float) -> None:
        """A step took so long."""
        if tokens >= _MUCH:
            self._token_s = seconds / tokens

    def join(self, table: BlockTable, tokens: Sequence[int]) -> Load | None:
        """The load under way, if there is one, of what follows in these tokens what a table has of them."""
        following = next(self._tables.beyond(table, tokens), None) if self._loads else None
        load = None if following is None else self._loads.get(following[0])
        return None if load is None or load.done else load

    def fetch(self, table: BlockTable, tokens: Sequence[int]) -> Load | None:
        """Take over a table that has what is resident of these tokens, and load what follows if that is worth it.

        None, with nothing changed, where it is not. The pool has blocks for all of the tokens, and there is nothing to
        `join`. Who waits for the load finds all of it in the pool when it is done.
        """
        if self._records is None or self._overdue:
            return None
        self.save()  # what is not to be trusted is not found
        chain = list(takewhile(lambda each: self._holds(each[0]), self._tables.beyond(table, tokens)))
        return self._start(table, chain) if len(chain) >= self._least else None

    def save(self) -> None:
        """Before a step: copy what it overwrites, and give up what is not to be trusted."""
        for identity in self._leaving.distrusted():
            self._shelf.forget(identity)
            if self._disk is not None:
                self._disk.forget(identity)
        taken = self._leaving.taken()
        if taken:
            self._copy(taken)

    def save_idle(self) -> bool:
        """While nobody wants anything: copy some of what is not on disk yet. False where there is nothing to do now."""
        self.save()
        if self._disk is None or self._records is None or not self._disk.writable:
            return False
        self._hungry = True  # before the look, so that a write that ends after it is heard of
        if self._queued > self._most_queued // 2:
            return False
        fresh = self._leaving.fresh(_IDLE)
        if fresh:
            self._copy(fresh)
        else:
            self._hungry = False
        return bool(fresh)

    def close(self) -> None:
        """Write what can be written in a few seconds, once there are no more steps. The thread ends."""
        until = self._clock() + _CLOSING_S
        while self._clock() < until and (self.save_idle() or self._queued):
            if self._queued > self._most_queued // 2 or not self._hungry:
                self._wrote.wait(0.05)
                self._wrote.clear()
        for wait_on in self._waited_for.values():
            wait_on()
        self._beside.close(max(1.0, until - self._clock()))

    def check(self) -> None:
        """Raise AssertionError where what is noted of loads disagrees."""
        for load in self._loads.values():
            assert load.blocks == list(load.table.blocks[len(load.table.identities) :]), "a load's blocks are not its"
            assert load.loaded <= len(load.blocks) == len(load.chain)

    def _holds(self, identity: bytes) -> bool:
        return self._shelf.holds(identity) or (self._disk is not None and self._disk.holds(identity))

    def _start(self, table: BlockTable, chain: list[tuple[bytes, bytes]]) -> Load | None:
        size = self._tables.block_size
        computing = None if self._token_s is None else self._token_s * size * len(chain)
        kinds = [not self._shelf.holds(identity) for identity, _ in chain]
        loading = sum(self._block_s.get(on_disk, 0.0) for on_disk in kinds)
        if computing is not None and loading > computing:
            self._block_s = {on_disk: seconds * _FADING for on_disk, seconds in self._block_s.items()}
            return None
        records = self._records
        assert records is not None
        first = len(table.identities)
        self._tables.extend(table, (first + len(chain)) * size)
        self.save()
        load = Load(table, chain, list(table.blocks[first:]))
        patience = _UNKNOWN_WAIT_S if computing is None else max(_PATIENCE * computing, _LEAST_WAIT_S)
        try:
            self._waited_for[load] = self._beside.later(patience, lambda: self._call(partial(self._late, load)))
        except RuntimeError:  # nobody would see that it takes too long
            self._tables.trim(table, first * size)
            return None
        self._loads[chain[0][0]] = load
        self._started += 1
        self._beside.put(partial(self._load, load, records, records.open(load.blocks)), urgent=True)
        return load

    def _late(self, load: Load) -> list[Delta]:
        """It takes too long: who waits for it computes. Its blocks are its own until it ends."""
        if self._waited_for.pop(load, None) is not None:
            logger.warning("loading %d blocks of keys and values takes too long; they are computed", len(load.blocks))
            load.done = True
            self._overdue += 1
            self.ended += 1
        return []

    def _loaded(self, load: Load) -> list[Delta]:
        """It ends, on the step thread: what is loaded is found from now on."""
        wait_on = self._waited_for.pop(load, None)
        if wait_on is None:
            self._overdue -= 1
        else:
            wait_on()
        del self._loads[load.chain[0][0]]
        self._tables.adopt(load.table, load.chain[: load.loaded])
        self._tables.release(load.table)
        load.done = True
        self.ended += 1
        self._short += load.loaded < len(load.blocks) or wait_on is None
        from_disk = load.from_disk if self._keeps else load.loaded  # also what was still on its way there
        self._disk_tokens += from_disk * self._tables.block_size
        self._host_tokens += (load.loaded - from_disk) * self._tables.block_size
        self._load_seconds += load.seconds
        return []

    def _load(self, load: Load, records: BlockRecords, begin: Callable[[], None]) -> None:
        """On the beside thread."""
        started = self._clock()
        try:
            begin()
            while load.loaded < len(load.blocks) and not load.done:
                if not self._load_group(load, records, range(load.loaded, len(load.blocks))[:_GROUP]):
                    break
        except Exception:
            logger.exception("keys and values of %d blocks cannot be loaded", len(load.blocks))
        if self._disk is not None:
            self._disk.touch(identity for identity, _ in load.chain[: load.loaded])
        load.seconds = self._clock() - started
        self._call(partial(self._loaded, load))

    def _load_group(self, load: Load, records: BlockRecords, numbers: range) -> bool:
        """Whether all of them are loaded; those before the first that is not are."""
        rows: list[int] = []
        started, read = self._clock(), 0
        try:
            for number in numbers:
                row = self._shelf.use(load.chain[number][0])
                if row is None:
                    row = self._read(*load.chain[number])
                    read += 1
                if row is None:
                    break
                rows.append(row)
            records.load(self._shelf, rows, load.blocks[numbers.start : numbers.start + len(rows)])
        finally:
            for row in rows:
                self._shelf.done(row)
        load.loaded += len(rows)
        load.from_disk += read - (len(rows) < len(numbers))
        if len(rows) == len(numbers) and read in (0, len(rows)):
            self._block_s[read > 0] = (self._clock() - started) / len(rows)
        return len(rows) == len(numbers)

    def _read(self, identity: bytes, parent: bytes) -> int | None:
        """A row in use with the record, from disk."""
        row = None if self._disk is None else self._shelf.take()
        if self._disk is None or row is None:
            return None
        if not self._disk.read(identity, self._shelf.rows[row]):
            self._shelf.done(row)
            return None
        if self._keeps:
            self._shelf.name(row, identity, parent)
        return row

    def _copy(self, blocks: Sequence[Full]) -> None:
        """Records of blocks whose owner does not write to them, as far as there is room for them."""
        records, disk = self._records, self._disk
        if records is None:
            return
        copied: list[tuple[Full, int, bool]] = []
        there: list[tuple[Full, int, bool]] = []
        for full in blocks:
            on_disk = disk is not None and disk.holds(full.identity)
            write = disk is not None and not on_disk and disk.writable and self._queued < self._most_queued
            row = self._shelf.use(full.identity)
            if row is not None and not write:
                self._shelf.done(row)
            elif row is not None:
                there.append((full, row, write))
            elif not (on_disk and not self._keeps):
                row = self._shelf.take() if len(copied) < self._most_queued and (write or self._keeps) else None
                if row is None:
                    self._dropped += 1
                    continue
                copied.append((full, row, write))
            with self._counting:
                self._queued += write
        wait = records.save([full.block for full, _, _ in copied], self._shelf, [row for _, row, _ in copied])
        for full, row, _ in copied:
            self._shelf.name(row, full.identity, full.parent)
        if copied or there:
            self._beside.put(partial(self._write, wait, [*copied, *there]), urgent=False)

    def _write(self, wait: Callable[[], None], chosen: Sequence[tuple[Full, int, bool]]) -> None:
        """On the beside thread."""
        try:
            wait()
        except Exception:
            logger.exception("%d blocks of keys and values were not copied", len(chosen))
            for full, _, _ in chosen:
                self._shelf.forget(full.identity)
        for full, row, write in chosen:
            disk = self._disk
            if write and disk is not None and self._shelf.named(row) == full.identity:
                written = disk.writable and disk.write(full.identity, full.parent, self._shelf.rows[row])
                self._written += written
                self._unwritten += not written
                if self._shelf.named(row) != full.identity:
                    disk.forget(full.identity)  # it has turned out meanwhile that it is not to be trusted
            if not self._keeps:
                self._shelf.forget(full.identity)  # its row is the next to be used, and in the processor's caches
            self._shelf.done(row)
            with self._counting:
                self._queued -= write
        self._wrote.set()
        if self._hungry:
            self._hungry = False
            self._call(list)
