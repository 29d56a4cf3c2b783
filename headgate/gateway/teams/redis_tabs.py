"""Tabs that several gateways keep together in one Redis: a script there gives each to one of them."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headgate.gateway.teams.retries import Key
from headgate.gateway.teams.tabs import Tab

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore

_MOST = 64
"""Tabs that are kept of one request."""

# Of each request a list of tabs, the latest last: until when it is open in the server's milliseconds, whose body it is
# of, and what was billed on it.
_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# ARGV: the body. Gives nothing where no tab is open, 1 where one of another body is, else for how many milliseconds it
# is open, and what was billed.
_TAKE = (
    _NOW
    + """
while true do
  local last = redis.call('LINDEX', KEYS[1], -1)
  if not last then return false end
  local open, body, prompt, completion, device, usd = string.match(last, '^(%d+) (%x+) (%d+) (%d+) (%d+) (%d+)$')
  if open and tonumber(open) > now then
    if body ~= ARGV[1] then return 1 end
    redis.call('RPOP', KEYS[1])
    return {open - now, prompt, completion, device, usd}
  end
  redis.call('RPOP', KEYS[1])
end
"""
)

# ARGV: how many milliseconds it is open, the body and what was billed as they are kept, and how many are kept beside
# it. The first write is one that a full server takes: it lets a script go on that has written.
_PUT = (
    _NOW
    + """
redis.call('LTRIM', KEYS[1], -ARGV[3], -1)
redis.call('RPUSH', KEYS[1], string.format('%.0f', now + ARGV[1]) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[1]))
"""
)


class RedisTabs:
    """Implements `TabPool`."""

    def __init__(self, store: RedisStore) -> None:
        """Keep them in the Redis of a store: its connection, its deadline for answers and its prefix are used."""
        self._store = store
        self._take = store.client.register_script(_TAKE)
        self._put = store.client.register_script(_PUT)

    async def take(self, key: Key, body: bytes) -> tuple[Tab, float] | bool:
        """See `TabPool`."""
        found: Any = await self._store.ask(partial(self._take, keys=[self._name(key)], args=[body.hex()]))
        if not isinstance(found, list):
            return found is not None
        open_ms, *billed = (int(value) for value in found)
        tab = Tab()
        tab.used = True
        tab.billed.add(*billed)
        return tab, open_ms / 1e3

    async def put(self, key: Key, body: bytes, tab: Tab, seconds: float) -> None:
        """See `TabPool`."""
        if (open_ms := round(seconds * 1e3)) <= 0:
            return
        kept = " ".join([body.hex(), *(str(count) for count in tab.billed)])
        await self._store.ask(partial(self._put, keys=[self._name(key)], args=[open_ms, kept, _MOST - 1]))

    def _name(self, key: Key) -> str:
        team, key_id, name, part = key
        digest = blake2b(repr((team, key_id, name, part)).encode("utf-8", "replace"), digest_size=16).hexdigest()
        return f"{self._store.prefix}tab:{digest}"
