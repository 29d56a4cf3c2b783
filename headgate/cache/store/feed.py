"""What keeps the index of one process in step with a store in Redis that several processes write to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import msgspec
import numpy as np

from headgate.cache.index import VectorIndex
from headgate.cache.store.redis import RedisStore
from headgate.cache.store.vector_record import VectorRecord

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 64
_SWEEP_S = 60.0


class IndexFeed:
    """Follows the changes that `RedisStore` writes, and applies them to an index.

    Redis is the truth and the index a view of it. The view starts as a copy of all vectors that Redis holds, and goes
    on with the stream of changes. After each reading the last record read before must still be in the stream: where it
    is not, because the stream was cut, emptied or lost in a restart, records may have been missed and the copy is made
    again. While Redis is away the index stays as it is. A key covers the text, so its vector never changes: what the
    index holds already is not added again, whoever wrote it.

    What expires leaves the index within a minute. What Redis evicts stays until a look-up finds that it is gone.
    """

    def __init__(
        self,
        store: RedisStore,
        index: VectorIndex,
        embedder: str,
        clock: Callable[[], float],
        *,
        block_s: float = 0.25,
        pause_s: float = 1.0,
        answer_s: float = 2.0,
        monotonic: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """A feed that is not started yet.

        Args:
            store: whose changes are followed.
            index: what they are applied to, on the event loop.
            embedder: `Embedder.name` of the index's vectors; those of others are passed over.
            clock: seconds since the epoch, on the same scale as `Entry.expires`.
            block_s: seconds the server holds a question for changes when there are none.
            pause_s: seconds between attempts while the server is away.
            answer_s: seconds the server has to answer, `block_s` aside.
            monotonic: seconds on any scale that never goes back.
            progress: called with the number of vectors copied so far, while a copy is made.
        """
        for name, value in (("block_s", block_s), ("pause_s", pause_s), ("answer_s", answer_s)):
            if not value >= 0.001:
                raise ValueError(f"{name} is {value}; 0.001 or more is accepted")
        self._store = store
        self._index = index
        self._embedder = embedder
        self._clock = clock
        self._block_s = block_s
        self._pause_s = pause_s
        self._answer_s = answer_s
        self._monotonic = monotonic
        self._progress = progress or (lambda _: None)
        self._expires: dict[str, float] = {}
        self._position: bytes | None = None
        self._known_at = monotonic()
        self._swept_at = monotonic()
        self._task: asyncio.Task[None] | None = None
        self._read = asyncio.Condition()
        self.lag_s = 0.0
        """Seconds from the writing of the latest record to its being in the index, by the server's clock."""
        self.applied = 0
        """Vectors and deletions taken over, copies included."""
        self.skipped = 0
        """Records that could not be read or that hold no vector of the index's kind."""
        self.foreign = 0
        """Vectors passed over because another embedding model made them."""
        self.rebuilt = 0
        """Copies made of all that Redis holds, that at the start included."""
        self.copying: int | None = None
        """Vectors that the copy under way has taken so far; None where none is under way."""
        self._decoder = msgspec.msgpack.Decoder(VectorRecord)
        self._keys_decoder = msgspec.msgpack.Decoder(list[str])

    @property
    def staleness_s(self) -> float:
        """A bound: whatever was written more than so many seconds ago is in the index. Grows while Redis is away."""
        return self._monotonic() - self._known_at

    async def start(self) -> None:
        """Begin to follow; returns at once. Redis may be away."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="index feed")

    async def synced(self) -> None:
        """Wait until everything written before this call is in the index: for as long as Redis is away, too."""
        asked = self._monotonic()
        async with self._read:
            await self._read.wait_for(lambda: self._known_at >= asked)

    async def close(self) -> None:
        """Stop following. The store stays open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _follow(self) -> None:
        lost = False
        while True:
            try:
                if self._position is None:
                    self.copying = 0
                    self._position = await self._copy()
                    self.copying = None
                self._position = await self._read_on(self._position)
            except Exception as error:
                # Redis away, still loading, full, or a record that no version of ours wrote: what helps is time.
                log = logger.debug if lost else logger.info
                log("the index follows %s no more: %s: %s", self._store.address, type(error).__name__, error)
                lost = True
                await asyncio.sleep(self._pause_s)
                continue
            if lost:
                logger.info("the index follows %s again", self._store.address)
                lost = False
            if self._monotonic() - self._swept_at >= _SWEEP_S:
                self._swept_at = self._monotonic()
                await self._sweep()

    async def _read_on(self, position: bytes) -> bytes | None:
        """Apply what follows; gives the new position, or None where something in between may be missing."""
        client, stream = self._store.client, self._store.stream
        asked = self._monotonic()
        reply = await self._within(
            client.xread({stream: position}, count=_BATCH, block=max(1, round(self._block_s * 1000))), self._block_s
        )
        records = reply[0][1] if reply else []
        for _, fields in records:
            self._apply(fields)
        last = records[-1][0] if records else position
        self._store.followed(last)
        # Asked after the reading: nothing between the two was cut off if the older one is still there.
        before, now = await self._within(self._anchor(position))
        if not before:
            logger.info("the stream of changes at %s was cut; the index is made anew", self._store.address)
            return None
        if records:
            written_ms = int(last.split(b"-")[0])
            self.lag_s = max(0.0, now[0] + now[1] / 1e6 - written_ms / 1000)
        if len(records) < _BATCH:
            await self._is_known(asked)
        return bytes(last)

    async def _anchor(self, position: bytes) -> list[Any]:
        pipe = self._store.client.pipeline(transaction=False)
        pipe.xrange(self._store.stream, position, position, 1)
        pipe.time()
        return await pipe.execute()

    def _apply(self, fields: dict[bytes, bytes]) -> None:
        try:
            if b"gone" in fields:
                for key in self._keys_decoder.decode(fields[b"gone"]):
                    self._drop(key)
            elif b"put" in fields:
                self._take(fields[b"put"])
            elif b"start" not in fields:
                self.skipped += 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
            self.skipped += 1

    def _take(self, packed: bytes) -> str:
        """Have the vector of a record in the index; gives its key.

        Raises:
            ValueError: the record cannot be read, or its vector has another length than the index's or no direction.
        """
        record = self._decoder.decode(packed)
        if record.embedder != self._embedder:
            self.foreign += 1
        elif record.expires > self._clock():
            if record.key not in self._index:
                vector = np.frombuffer(record.vector, dtype="<f2").astype(np.float32)
                # Rounded to 16 bits it is a little longer or shorter than one.
                self._index.add(record.key, record.bucket, vector / max(float(np.linalg.norm(vector)), 1e-6))
            self._expires[record.key] = record.expires
            self.applied += 1
        return record.key

    def _drop(self, key: str) -> None:
        self._index.remove(key)
        self._expires.pop(key, None)
        self.applied += 1

    async def _copy(self) -> bytes:
        """Have all vectors in the index that Redis holds, and no other that came from there.

        Gives the position from which to go on: what changed meanwhile comes after it.
        """
        client, stream = self._store.client, self._store.stream
        began = self._monotonic()
        newest = await self._within(client.xrevrange(stream, "+", "-", 1))
        # There has to be a record that tells later whether the stream is still the same.
        position = newest[0][0] if newest else await self._within(client.xadd(stream, {"start": b""}))
        gone = set(self._expires)
        cursor, copied = 0, 0
        prefix = self._store.vector_prefix
        while True:
            cursor, names = await self._within(client.scan(cursor, match=f"{_literal(prefix)}*", count=4 * _BATCH))
            for batch in _batches(names):
                for name, packed in zip(batch, await self._within(client.mget(batch)), strict=True):
                    gone.discard(name[len(prefix.encode()) :].decode(errors="replace"))
                    if packed is not None:
                        self._apply({b"put": packed})
                        copied += 1
            self.copying = copied
            self._progress(copied)
            if not int(cursor):
                break
        for batch in _batches(gone):
            for key in batch:
                self._drop(key)
            await asyncio.sleep(0)
        self._store.followed(position)
        self.rebuilt += 1
        logger.info(
            "the index has %d vectors from %s, after %.1f s", copied, self._store.address, self._monotonic() - began
        )
        return bytes(position)

    async def _sweep(self) -> None:
        """Drop what has expired: Redis tells nobody."""
        for batch in _batches(list(self._expires)):
            now = self._clock()
            for key in batch:
                if self._expires.get(key, now + 1) <= now:
                    self._drop(key)
            await asyncio.sleep(0)

    async def _is_known(self, moment: float) -> None:
        async with self._read:
            self._known_at = moment
            self._read.notify_all()

    async def _within(self, command: Any, longer_s: float = 0.0) -> Any:
        async with asyncio.timeout(self._answer_s + longer_s):
            return await command


def _batches(names: Iterable[T]) -> Iterable[list[T]]:
    rest = iter(names)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _literal(prefix: str) -> str:
    """The prefix as a pattern that matches itself only."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in prefix)
