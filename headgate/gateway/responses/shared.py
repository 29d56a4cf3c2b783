"""Stored responses that all gateways find which share a Redis; without one, each has its own."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from headgate.cache.store.base import StoreDownError
from headgate.gateway.responses.stored import StoredResponse, StoredResponses

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore

logger = logging.getLogger("headgate.gateway")

# KEYS: the response, its mark. ARGV: the response, milliseconds to live, and 1 where it is not kept once it was ended.
# One that was deleted never is: who made it may learn late that it was not kept before.
_KEEP = """
local mark = redis.call('GET', KEYS[2])
if mark == 'deleted' or (mark and ARGV[3] == '1') then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# KEYS: the mark. ARGV: what it says, milliseconds to live. The first write is one that a full server takes: it lets a
# script go on that has written.
_END = """
local mark = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], mark == 'deleted' and mark or ARGV[1], 'PX', ARGV[2])
"""

_Key = tuple[str, str]
"""A team and a response of it."""


class SharedResponses:
    """What is kept is found here at once; by others, when Redis has it.

    While Redis is away or full, it is kept here, and Redis is told of it later.

    All calls come from one event loop.
    """

    def __init__(self, own: StoredResponses, ttl_s: float, max_bytes: int) -> None:
        """Keep them in `own` until there is a Redis; there each for `ttl_s` seconds, if it has at most `max_bytes`."""
        self._own = own
        self._ttl_ms = int(ttl_s * 1000)
        self._max_bytes = max_bytes
        self._redis: RedisStore | None = None
        self._writes: dict[_Key, asyncio.Task[None]] = {}
        self._untold: dict[_Key, bool] = {}
        """What Redis does not have as it is kept here, and whether it is to stay so if another process ended it."""
        self._decoder = msgspec.msgpack.Decoder(StoredResponse)

    @property
    def enabled(self) -> bool:
        """Whether responses are kept."""
        return self._own.enabled

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`: what is in this process."""
        return self._own.remembered

    @property
    def shared(self) -> bool:
        """Whether other processes may have a hand in them."""
        return self._redis is not None

    @property
    def kept_ms(self) -> int:
        """For how many milliseconds Redis keeps one."""
        return self._ttl_ms

    def share(self, redis: RedisStore | None) -> None:
        """From now on keep them in Redis, if there is one."""
        self._redis = redis

    def keep(self, team: str, response_id: str, response: StoredResponse, *, unless_ended: bool = False) -> None:
        """Keep a team's response in place of what was kept of it; `unless_ended`: not if another process ended it."""
        self._own.keep(team, response_id, response)
        if self._redis is not None and self.enabled and response.size <= self._max_bytes:
            self._share(self._redis, (team, response_id), response, unless_ended)

    async def get(self, team: str, response_id: str) -> StoredResponse | None:
        """A team's response, if it is still there.

        Raises:
            StoreDownError: it is not kept here, and Redis cannot be asked.
        """
        key = team, response_id
        if self._redis is None or key in self._writes:
            return self._own.get(team, response_id)
        # Redis may have an older state of it.
        if key in self._untold and not await self._told(self._redis, key):
            return self._own.get(team, response_id)
        try:
            name = self._name(team, response_id)
            size = await self._redis.ask(partial(self._redis.client.strlen, name))
            found, left_ms = await self._redis.ask(partial(self._read, name), carries=size) if size else (None, 0)
        except StoreDownError:
            if (own := self._own.get(team, response_id)) is not None:
                return own
            raise
        if not isinstance(found, bytes):
            return self._own.get(team, response_id)
        try:
            response = self._decoder.decode(found)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # another version's
        if not response.kept_ms:
            return response
        # What Redis has left of its time tells its age. Clocks of gateways may differ by minutes.
        return replace(response, silent_s=max(0, response.kept_ms - left_ms) / 1e3)

    async def _read(self, name: str) -> tuple[bytes | None, int]:
        """What is kept under a name, and for how many milliseconds it still is."""
        assert self._redis is not None, "it is shared"
        pipe = self._redis.client.pipeline(transaction=False)
        pipe.get(name)
        pipe.pttl(name)
        found, left_ms = await pipe.execute()
        return found, int(left_ms)

    async def delete(self, team: str, response_id: str) -> bool:
        """Forget it; False where it was not there.

        Raises:
            StoreDownError: Redis cannot be told.
        """
        await self.written(team, response_id)
        deleted = self._own.delete(team, response_id)
        if self._redis is None:
            return deleted
        gone = await self._redis.ask(partial(self._redis.client.delete, self._name(team, response_id)))
        return bool(gone) or deleted

    async def end(self, team: str, response_id: str, *, deleted: bool = False) -> None:
        """From now on nothing is kept of it by the process that makes it; `deleted`: nor by any other.

        Raises:
            StoreDownError: Redis cannot be told.
        """
        if self._redis is not None:
            end = self._redis.client.register_script(_END)
            mark = "deleted" if deleted else "ended"
            await self._redis.ask(partial(end, keys=[self._mark(team, response_id)], args=[mark, self._ttl_ms]))

    async def ended(self, team: str, response_id: str) -> bool:
        """Whether a process ended it.

        Raises:
            StoreDownError: Redis cannot be asked.
        """
        if self._redis is None:
            return False
        return bool(await self._redis.ask(partial(self._redis.client.exists, self._mark(team, response_id))))

    async def tell(self) -> None:
        """Have Redis keep what it could not be told of before, while it takes it."""
        for key in list(self._untold):
            if self._redis is None or not await self._told(self._redis, key):
                return

    async def written(self, team: str, response_id: str) -> None:
        """Wait until Redis has what was kept of a response by now, or has failed to take it."""
        if (write := self._writes.get((team, response_id))) is not None:
            await asyncio.wait([write])

    async def close(self) -> None:
        """Wait for what is on its way to Redis."""
        if self._writes:
            await asyncio.wait(self._writes.values())

    def _share(self, redis: RedisStore, key: _Key, response: StoredResponse, unless_ended: bool) -> None:
        write = self._write(redis, key, response, unless_ended, self._writes.get(key))
        self._writes[key] = asyncio.create_task(write, name="share response")

    async def _told(self, redis: RedisStore, key: _Key) -> bool:
        """Whether Redis now has what it could not be told of before."""
        if key not in self._writes and key in self._untold:
            response = self._own.get(*key)
            if response is None:
                del self._untold[key]
            else:
                self._share(redis, key, response, self._untold[key])
        await self.written(*key)
        return key not in self._untold

    async def _write(
        self,
        redis: RedisStore,
        key: _Key,
        response: StoredResponse,
        unless_ended: bool,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        from redis.exceptions import OutOfMemoryError

        async def put() -> bool:
            keep = redis.client.register_script(_KEEP)
            value = msgspec.msgpack.encode(response)
            try:
                await keep(
                    keys=[self._name(*key), self._mark(*key)], args=[value, self._ttl_ms, "1" if unless_ended else "0"]
                )
            except OutOfMemoryError:
                return False  # a server that is full is not down
            return True

        has = False
        try:
            has = await redis.ask(put, carries=response.size)
        except StoreDownError as error:
            logger.debug("the response %s is only kept here: %s", key[1], error)
        finally:
            if self._latest(key):
                del self._writes[key]
                if has:
                    self._untold.pop(key, None)
                    self._own.delete(*key)
                else:
                    self._untold[key] = unless_ended

    def _latest(self, key: _Key) -> bool:
        return self._writes.get(key) is asyncio.current_task()

    def _name(self, team: str, response_id: str) -> str:
        assert self._redis is not None, "it is shared"
        return f"{self._redis.prefix}response:{len(team)}:{team}:{response_id}"

    def _mark(self, team: str, response_id: str) -> str:
        """The key that is there once somebody ended the response."""
        return self._name(team, response_id) + ":ended"
