"""A store in a Redis server: shared by processes, outlives them, and may go away at any moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError, ResponseError

from headgate.cache.index import Place
from headgate.cache.store import redis_scripts
from headgate.cache.store.base import NOTES, PASSING_NOTES, PURGE_MEMORY_S, Forget
from headgate.cache.store.redis_calls import RedisCalls
from headgate.cache.store.vector_record import VectorRecord
from headgate.cache.verdict import Entry

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_ENTRY_BYTES = 4 * 1024 * 1024
_PURGE_S = 5.0
_ON_ITS_WAY_S = 0.5
"""That a call may take to the server, at most."""
_MAX_TTL_S = 10 * 365 * 86400

FEED_RECORDS = 10_000
"""Records the stream of changes keeps, about; a vector of 384 dimensions takes one kilobyte."""

_PURGE_KEYS = 500
"""Keys that one script drops: others' commands wait for it, about a millisecond."""


class RedisStore:
    """Implements `Store`. All calls come from one event loop.

    Calls go as `RedisCalls` has it: each has `timeout_s`, and a server that failed is left alone for a moment. Failing
    means `StoreDownError`, never None: a store that cannot be asked has not lost its entries, so nobody should forget
    them.

    What the server expires or evicts it tells nobody. Keys put here are forgotten when they have expired; others leave
    an index when it asks for them. Putting a key again with other tags leaves it under the older tags as well, so a
    purge may drop more than it must, never less.

    What is put with a place in an index keeps its vector on the server too, for as long. In the same script each such
    vector, and each that goes, is written to a stream that other processes' indexes follow: see `IndexFeed`.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float],
        *,
        prefix: str = "headgate:",
        timeout_s: float = 0.1,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        feed_records: int = FEED_RECORDS,
        monotonic: Callable[[], float] = time.monotonic,
        changed: Callable[[str | None], None] | None = None,
    ) -> None:
        """A store that connects when it is first asked.

        Args:
            url: `redis://[user[:password]@]host[:port][/db]`, or `rediss://` for TLS.
            clock: seconds since the epoch, on the same scale as `Entry.expires`.
            prefix: what every key on the server begins with.
            timeout_s: seconds the server has to answer a call, connecting included.
            max_entry_bytes: larger encoded entries are not kept.
            feed_records: about how many records the stream of changes keeps. Who falls further behind starts anew.
            monotonic: seconds on any scale that never goes back; times the pause after a failure.
            changed: called with the reason when the server stops answering, and with None when it answers again.
        """
        # Older clients check the name in the server's certificate only where they are told to.
        tls = {"ssl_check_hostname": True} if url.startswith("rediss:") else {}
        pool = ConnectionPool.from_url(
            url,
            # One deadline covers connecting and the command; see `_within`.
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **tls,
        )
        self.client: Redis = Redis(connection_pool=pool)
        """The connections, for `IndexFeed`: commands given here wait as long as they like."""
        self._put_script = self.client.register_script(redis_scripts.PUT)
        self._delete_script = self.client.register_script(redis_scripts.DELETE)
        self._delete_tagged_script = self.client.register_script(redis_scripts.DELETE_TAGGED)
        self._note_script = self.client.register_script(redis_scripts.NOTE)
        host = str(pool.connection_kwargs.get("host", "localhost"))
        port, db = pool.connection_kwargs.get("port", 6379), pool.connection_kwargs.get("db", 0)
        scheme = url.split("://", 1)[0]
        self.address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{f'/{db}' if db else ''}"
        """The server's URL without user and password."""
        self._clock = clock
        self.prefix = prefix
        """What the names of everything kept there begin with."""
        self._entry_prefix = f"{prefix}answer:"
        self._tag_prefix = f"{prefix}tag:"
        self.vector_prefix = f"{prefix}vector:"
        """What the names of vectors begin with; the entry's key follows."""
        self._notes_prefix = f"{prefix}notes:"
        self.stream = f"{prefix}changes"
        """Name of the stream of changes. A record has `put`, a `VectorRecord`, or `gone`, a list of keys."""
        self._feed_records = feed_records
        self._timeout_s = timeout_s
        self._max_entry_bytes = max_entry_bytes
        self._calls = RedisCalls(self.client, self.address, timeout_s, monotonic, changed)
        self._full = False
        self._forget: list[Forget] = []
        # Expiry of the keys put here, the oldest put first. One lifetime for all makes that the order they expire in.
        self._expires: dict[str, float] = {}
        self._decoder = msgspec.msgpack.Decoder(Entry)
        self._followed: tuple[int, int] | None = None

    def followed(self, record: bytes) -> None:
        """Note that the indexes have every change up to a record of the stream: what is older they need not hear."""
        self._followed = _record_id(record)

    async def ping(self) -> str | None:
        """None where the server answers, else why not. Neither the log nor `changed` hears of it."""
        return await self._calls.ping()

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()
        await self.client.connection_pool.disconnect()

    def on_forget(self, forget: Forget) -> None:
        """Have `forget` called for entries deleted here, and for those put here once they have expired."""
        self._forget.append(forget)

    async def get(self, key: str) -> Entry | None:
        """The entry, or None where there is none, it has expired, or what is there is no entry.

        Raises:
            StoreDownError: the server does not answer.
        """
        packed = await self.ask(partial(self._read, self._entry_prefix + key))
        if packed is None:
            return None
        try:
            entry = self._decoder.decode(packed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Another version's, or another program's.
            return None
        return entry if entry.key == key and entry.expires > self._clock() else None

    async def put(
        self, entry: Entry, tags: frozenset[str], place: Place | None = None, *, asked: float | None = None
    ) -> bool:
        """Keep an entry under its key in place of an older one. False where it was not kept.

        With a place, the indexes of other processes learn of it; without one, they forget the key. False is where it
        is too large, has expired, holds text that is not Unicode, was `asked` for before a purge of one of its tags, by
        whichever process, or the server is full. Which came first is told by the server's clock and by how long ago it
        was asked for; an answer that was asked for while a call may take after a purge is taken for one of before.

        Raises:
            StoreDownError: the server does not answer.
        """
        now = self._clock()
        self._forget_expired(now)
        ttl_s = min(entry.expires - now, _MAX_TTL_S)
        packed = _encode(entry) if ttl_s > 0 else None
        if packed is None or len(packed) > self._max_entry_bytes:
            # The older answer goes all the same: a newer one exists.
            await self.delete(entry.key)
            return False
        record = b"" if place is None else VectorRecord.of(entry, place)
        names = [*self._names(entry.key), *(self._tag_prefix + tag for tag in sorted(tags))]
        milliseconds = max(1, int(ttl_s * 1000))
        arguments: list[bytes | int | str] = [packed, milliseconds, entry.key, record, self._feed_records]

        async def write() -> object:
            # Here, where it is no longer waited for a connection.
            ago = "" if asked is None else repr(self._clock() - asked + min(self._timeout_s, _ON_ITS_WAY_S))
            return await self._put_script(keys=names, args=[*arguments, ago])

        if not await self.ask(partial(self._keep, write)):
            return False
        self._expires.pop(entry.key, None)
        self._expires[entry.key] = entry.expires
        return True

    async def delete(self, key: str) -> bool:
        """Drop an entry. False where there was none.

        Raises:
            StoreDownError: the server does not answer, so nothing is known to be gone.
        """
        script = partial(self._delete_script, keys=self._names(key), args=[key, self._feed_records])
        deleted, last = await self.ask(script)
        self._drop([key], last)
        return bool(deleted)

    async def delete_tagged(self, tag: str) -> int:
        """Drop every entry that was put with this tag, or will be for a request of before, by whichever process.

        Gives how many there were.

        Raises:
            StoreDownError: the server does not answer, so nothing is known to be gone.
        """
        names = [self._tag_prefix + tag, self.stream]
        arguments: list[str | int] = [self._entry_prefix, self.vector_prefix, self._notes_prefix]
        arguments += [self._feed_records, _PURGE_KEYS, round(PURGE_MEMORY_S * 1000)]
        script = partial(self._delete_tagged_script, keys=names, args=arguments)
        # Nobody's answer waits for a purge, and it may be large.
        deadline_s, dropped, more = max(_PURGE_S, self._timeout_s), 0, 1
        while more:
            keys, more, last = await self.ask(script, deadline_s)
            self._drop([key.decode() for key in keys], last)
            dropped += len(keys)
        return dropped

    async def count_tagged(self, tag: str) -> int:
        """How many entries that any process put with this tag have not expired, those that Redis evicted included.

        Raises:
            StoreDownError: the server does not answer.
        """
        milliseconds = round(self._clock() * 1000)
        count = await self.ask(partial(self.client.zcount, self._tag_prefix + tag, milliseconds, "+inf"))
        return int(count)

    async def note(self, key: str, note: bytes, *, passing: bool = False) -> bool:
        """Put a note beside an entry. False where there is none, or the server is full.

        Raises:
            StoreDownError: the server does not answer.
        """
        names = [self._entry_prefix + key, self._notes_prefix + key]
        marked = (redis_scripts.PASSING if passing else redis_scripts.LASTING) + note
        script = partial(self._note_script, keys=names, args=[marked, NOTES, PASSING_NOTES])
        return await self.ask(partial(self._keep, script))

    async def notes(self, key: str) -> tuple[bytes, ...]:
        """An entry's notes, the oldest first.

        Raises:
            StoreDownError: the server does not answer.
        """
        found = await self.ask(partial(self.client.lrange, self._notes_prefix + key, 0, -1))
        return tuple(note[1:] for note in found if isinstance(note, bytes))

    def _names(self, key: str) -> list[str]:
        return [self._entry_prefix + key, self.vector_prefix + key, self._notes_prefix + key, self.stream]

    async def _read(self, name: str) -> bytes | None:
        try:
            found = await self.client.get(name)
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                return None
            raise
        return found if isinstance(found, bytes) else None

    async def _keep(self, write: Callable[[], Awaitable[object]]) -> bool:
        try:
            kept = bool(await write())
        except OutOfMemoryError:
            if not self._full:
                self._full = True
                logger.warning("%s is full and keeps no new answers: raise maxmemory or let it evict", self.address)
            return False
        if self._full and kept:
            self._full = False
            logger.warning("%s keeps new answers again", self.address)
        return kept

    async def ask(self, command: Callable[[], Awaitable[T]], timeout_s: float | None = None, *, carries: int = 0) -> T:
        """As `RedisCalls.ask`."""
        return await self._calls.ask(command, timeout_s, carries=carries)

    def _forget_expired(self, now: float) -> None:
        while self._expires:
            key, expires = next(iter(self._expires.items()))
            if expires > now:
                return
            del self._expires[key]
            # Who follows the stream knows better: another process may have put the key again, to live longer.
            if self._followed is None:
                self._tell(key)

    def _drop(self, keys: list[str], last: list[tuple[bytes, object]]) -> None:
        """Forget keys that were deleted when `last` was the stream's last record.

        Indexes that have followed the stream that far need not hear of it, and must not: they may know by now that
        another process has put a key again.
        """
        overtaken = bool(last) and self._followed is not None and _record_id(last[0][0]) <= self._followed
        for key in keys:
            self._expires.pop(key, None)
            if not overtaken:
                self._tell(key)

    def _tell(self, key: str) -> None:
        for forget in self._forget:
            forget(key)


def _record_id(record: bytes) -> tuple[int, int]:
    milliseconds, _, number = record.partition(b"-")
    return int(milliseconds), int(number)


def _encode(entry: Entry) -> bytes | None:
    try:
        return msgspec.msgpack.encode(entry)
    except UnicodeEncodeError:
        return None
