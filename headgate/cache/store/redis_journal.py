"""The journal of gateways that share a Redis server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.exceptions import ResponseError

from headgate.cache.store.journal import KEEP
from headgate.cache.store.redis import RedisStore

_TTL_S = 30 * 86400
"""How long a journal is kept that nobody looks at: a gateway without `cache.secret` starts another each time."""

_ANSWER_S = 5.0
"""Seconds the server has to answer: nobody's answer waits for it, and all records are some megabytes."""


class RedisJournal:
    """Implements `Journal` for all gateways of one namespace; `StoreDownError` where the server does not answer."""

    def __init__(self, store: RedisStore, namespace: str, keep: int = KEEP) -> None:
        """The journal of a namespace, such as `Fingerprinter.all_tag`: other secrets, other journals."""
        self._store = store
        self._keep = keep
        self._records_name = f"{store.prefix}journal:{namespace}:labels"
        self._values_name = f"{store.prefix}journal:{namespace}:values"

    async def append(self, record: bytes) -> None:
        """Keep a record."""
        await self._run(("RPUSH", self._records_name, record), ("LTRIM", self._records_name, -self._keep, -1))

    async def records(self) -> list[bytes]:
        """The records, the oldest first."""
        found = await self._run(("LRANGE", self._records_name, 0, -1))
        return list(found[0])

    async def values(self) -> dict[str, bytes]:
        """All values and counts."""
        flat = (await self._run(("HGETALL", self._values_name)))[0]
        return {name.decode(): value for name, value in flat.items()}

    async def set(self, name: str, value: bytes) -> None:
        """Give a value a name."""
        await self._run(("HSET", self._values_name, name, value))

    async def add(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add to counts."""
        commands = [("HINCRBY", self._values_name, name, amount) for name, amount in amounts.items()]
        found = await self._run(*commands)
        return dict(zip(amounts, map(int, found), strict=False))

    async def _run(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Replies to the commands, in one transaction that also keeps the journal from expiring."""

        async def run() -> list[Any] | ResponseError:
            pipe = self._store.client.pipeline(transaction=True)
            for command in commands:
                pipe.execute_command(*command)
            for name in (self._records_name, self._values_name):
                pipe.expire(name, _TTL_S)
            try:
                replies: list[Any] = await pipe.execute()
            except ResponseError as error:
                # The server is there, so that answers go on; it is full, or the name is somebody else's.
                return error
            return replies

        found = await self._store.ask(run, _ANSWER_S)
        if isinstance(found, ResponseError):
            raise OSError(f"{self._store.address} does not keep the journal: {found}")
        return found
