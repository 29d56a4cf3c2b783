"""Limits that several gateways count together in one Redis: each step is one script there, which takes all or nothing.

While Redis does not answer, every gateway lets its share of each limit pass, the limit over the number of replicas,
by what it has let pass itself. So an outage refuses nobody who is within that share, and all together stay within the
limit. What a gateway that was killed had set aside is free after `LEASE_S`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.cache.store.base import StoreDownError
from headgate.gateway.teams.limits import Counters, Level, Rates, Refusal, Scope, Standing, What
from headgate.gateway.teams.windows import GRAIN_S, SPAN_S

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore

LEASE_S = 600.0
_KNOWN = 4096

# Of each scope: a list of slots `first:last:amount` in milliseconds with their sum, for requests (r) and tokens (t),
# and sorted sets of what is set aside (h, `id:tokens`) and of who runs (c), by when their lease ends. The server's
# clock may be set back; the scope's own goes on from where it was, and is ahead of it from then on.
_HEAD = """
local span, grain, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = clock
for i = 1, #KEYS do
  local last, ahead = unpack(redis.call('HMGET', KEYS[i], 'now', 'ahead'))
  now = math.max(now, tonumber(last or 0), clock + tonumber(ahead or 0))
end
local function keep(base)
  redis.call('HSET', base, 'now', now, 'ahead', now - clock)
  for _, key in ipairs({'', ':r', ':t', ':h', ':c'}) do redis.call('PEXPIRE', base .. key, lease + span) end
end
if now > clock then
  for i = 1, #KEYS do keep(KEYS[i]) end
end
local function used(base, kind)
  local sum = tonumber(redis.call('HGET', base, kind) or 0)
  while true do
    local slot = redis.call('LINDEX', base .. ':' .. kind, 0)
    if not slot then return sum end
    local first, last, amount = string.match(slot, '(%d+):(%d+):(%d+)')
    if tonumber(last) + span > now then return sum end
    redis.call('LPOP', base .. ':' .. kind)
    sum = redis.call('HINCRBY', base, kind, -amount)
  end
end
local function add(base, kind, count)
  if count == 0 then return end
  local slot = redis.call('LINDEX', base .. ':' .. kind, -1)
  local first, last, amount = string.match(slot or '', '(%d+):(%d+):(%d+)')
  if first and now - first < grain then
    redis.call('LSET', base .. ':' .. kind, -1, first .. ':' .. now .. ':' .. (amount + count))
  else
    redis.call('RPUSH', base .. ':' .. kind, now .. ':' .. now .. ':' .. count)
  end
  redis.call('HINCRBY', base, kind, count)
end
local function frees(base, kind, count)
  for _, slot in ipairs(redis.call('LRANGE', base .. ':' .. kind, 0, -1)) do
    local first, last, amount = string.match(slot, '(%d+):(%d+):(%d+)')
    count = count - amount
    if count <= 0 then return last + span - now end
  end
  return -1
end
local function reserved(base)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', base .. ':h', '-inf', now)) do
    redis.call('ZREM', base .. ':h', member)
    redis.call('HINCRBY', base, 'h', -string.match(member, ':(%d+)$'))
  end
  return tonumber(redis.call('HGET', base, 'h') or 0)
end
local function running(base)
  redis.call('ZREMRANGEBYSCORE', base .. ':c', '-inf', now)
  return redis.call('ZCARD', base .. ':c')
end
local function stand()
  local found = {}
  for i = 1, #KEYS do
    keep(KEYS[i])
    found[#found + 1] = used(KEYS[i], 'r')
    found[#found + 1] = used(KEYS[i], 't') + reserved(KEYS[i])
  end
  return found
end
"""

# ARGV: span, grain, lease, id, then rpm and concurrency of each scope, -1 for none. Gives 0 and how the scopes stand,
# or which scope refuses, 1 for requests or 2 for concurrency, what is used, and after how many milliseconds.
_ENTER = (
    _HEAD
    + """
for i = 1, #KEYS do
  local rpm, most = tonumber(ARGV[3 + 2 * i]), tonumber(ARGV[4 + 2 * i])
  local count = used(KEYS[i], 'r')
  if rpm >= 0 and count >= rpm then return {i, 1, count, frees(KEYS[i], 'r', count + 1 - rpm)} end
  local places = running(KEYS[i])
  if most >= 0 and places >= most then return {i, 2, places, 1000} end
end
for i = 1, #KEYS do
  add(KEYS[i], 'r', 1)
  redis.call('ZADD', KEYS[i] .. ':c', now + lease, ARGV[4])
end
return {0, stand()}
"""
)

# ARGV: span, grain, lease, id, tokens, then tpm of each scope, -1 for none. Gives as ENTER does.
_RESERVE = (
    _HEAD
    + """
local tokens = tonumber(ARGV[5])
for i = 1, #KEYS do
  local tpm = tonumber(ARGV[5 + i])
  local count = used(KEYS[i], 't') + reserved(KEYS[i])
  if tpm >= 0 and count + tokens > tpm then
    return {i, 3, count, frees(KEYS[i], 't', count + tokens - tpm)}
  end
end
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i] .. ':h', now + lease, ARGV[4] .. ':' .. tokens)
  redis.call('HINCRBY', KEYS[i], 'h', tokens)
end
return {0, stand()}
"""
)

# ARGV: span, grain, lease, a place to leave or nothing, a reservation to end or nothing, what it set aside, and used.
_END = (
    _HEAD
    + """
for i = 1, #KEYS do
  reserved(KEYS[i])
  if ARGV[4] ~= '' then redis.call('ZREM', KEYS[i] .. ':c', ARGV[4]) end
  if ARGV[5] ~= '' and redis.call('ZREM', KEYS[i] .. ':h', ARGV[5] .. ':' .. ARGV[6]) == 1 then
    redis.call('HINCRBY', KEYS[i], 'h', -ARGV[6])
  end
  add(KEYS[i], 't', tonumber(ARGV[7]))
end
return {0, stand()}
"""
)
_WHAT: tuple[What, ...] = ("requests", "concurrency", "tokens")


class RedisLimits:
    """Implements `LimitBook`. Calls come from one event loop."""

    def __init__(self, store: RedisStore, replicas: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Count in the Redis of a store.

        Args:
            store: its connection, its deadline for answers and its prefix are used.
            replicas: gateways that count there.
            clock: monotonic seconds, of what is counted here.
        """
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._local = Counters()
        self._ids = itertools.count()
        self._instance = secrets.token_hex(8)
        self._open: dict[tuple[tuple[str, ...], int], list[str]] = {}
        """Ids of what is set aside, by scopes and tokens; of places the tokens are -1."""
        self._known: dict[str, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._scripts = {text: store.client.register_script(text) for text in (_ENTER, _RESERVE, _END)}

    async def enter(self, scopes: Sequence[Scope]) -> Refusal | None:
        """See `LimitBook`."""
        bounds = [_bound(b) for s in scopes for b in (s.rates.rpm, s.rates.concurrency)]
        return await self._take(_ENTER, scopes, -1, bounds, 1)

    def leave(self, scopes: Sequence[Scope], seconds: float) -> None:
        """See `LimitBook`."""
        self._local.leave(scopes, seconds, self._clock())
        self._later(scopes, self._pop(scopes, -1), "", 0, 0)

    async def reserve(self, scopes: Sequence[Scope], tokens: int) -> Refusal | None:
        """See `LimitBook`."""
        return await self._take(_RESERVE, scopes, tokens, [tokens, *(_bound(s.rates.tpm) for s in scopes)], tokens)

    def settle(self, scopes: Sequence[Scope], reserved: int, used: int) -> None:
        """See `LimitBook`."""
        self._local.settle(scopes, reserved, used, self._clock())
        self._later(scopes, "", self._pop(scopes, reserved), reserved, used)

    def standing(self, scopes: Sequence[Scope]) -> Standing:
        """How the limits stood when Redis was asked last, or here where it was not."""
        requests: Level | None = None
        tokens: Level | None = None
        for scope in scopes:
            known = self._known.get(scope.name)
            if known is None:
                return self._local.standing(scopes, self._clock())
            for what, limit, used in (("r", scope.rates.rpm, known[0]), ("t", scope.rates.tpm, known[1])):
                if limit is None:
                    continue
                level = Level(limit, max(0, limit - used), SPAN_S if used else 0.0)
                if what == "r" and (requests is None or level.remaining < requests.remaining):
                    requests = level
                elif what == "t" and (tokens is None or level.remaining < tokens.remaining):
                    tokens = level
        return Standing(requests, tokens)

    async def settled(self) -> None:
        """Wait until Redis was told of everything."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _take(
        self, script: str, scopes: Sequence[Scope], tokens: int, bounds: list[int], asked: int
    ) -> Refusal | None:
        number = f"{self._instance}-{next(self._ids)}"
        try:
            answer = await self._run(script, scopes, [number, *bounds])
        except StoreDownError:
            shares = [Scope(s.name, _share(s.rates, self._replicas)) for s in scopes]
            return self._count(shares, tokens)
        if answer[0] == 0:
            self._note(scopes, answer[1])
            self._open.setdefault((_names(scopes), tokens), []).append(number)
            return self._count([Scope(s.name, Rates()) for s in scopes], tokens)
        index, what, used, after_ms = (int(value) for value in answer)
        scope = scopes[index - 1]
        requests, counted = self._known.get(scope.name, (0, 0))
        self._known[scope.name] = (used if what == 1 else requests, used if what == 3 else counted)
        limit = {1: scope.rates.rpm, 2: scope.rates.concurrency, 3: scope.rates.tpm}[what] or 0
        after_s = None if asked > limit else 1.0 if after_ms < 0 else after_ms / 1e3
        return Refusal(scope, _WHAT[what - 1], limit, used, asked, after_s)

    def _count(self, scopes: Sequence[Scope], tokens: int) -> Refusal | None:
        now = self._clock()
        return self._local.enter(scopes, now) if tokens < 0 else self._local.reserve(scopes, tokens, now)

    def _later(self, scopes: Sequence[Scope], place: str, reservation: str, reserved: int, used: int) -> None:
        task = asyncio.get_running_loop().create_task(self._end(scopes, [place, reservation, reserved, used]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, scopes: Sequence[Scope], arguments: list[Any]) -> None:
        try:
            answer = await self._run(_END, scopes, arguments)
        except StoreDownError:
            # What it had set aside there is free when its lease ends.
            return
        self._note(scopes, answer[1])

    async def _run(self, script: str, scopes: Sequence[Scope], arguments: list[Any]) -> list[Any]:
        names = [f"{self._store.prefix}limit:{scope.name}" for scope in scopes]
        times = [round(SPAN_S * 1000), round(GRAIN_S * 1000), round(LEASE_S * 1000)]
        return await self._store.ask(partial(self._scripts[script], keys=names, args=[*times, *arguments]))

    def _note(self, scopes: Sequence[Scope], used: Sequence[int]) -> None:
        if len(self._known) >= _KNOWN:
            self._known.clear()
        for index, scope in enumerate(scopes):
            self._known[scope.name] = (int(used[2 * index]), int(used[2 * index + 1]))

    def _pop(self, scopes: Sequence[Scope], tokens: int) -> str:
        ids = self._open.get((_names(scopes), tokens))
        if not ids:
            return ""
        number = ids.pop()
        if not ids:
            del self._open[(_names(scopes), tokens)]
        return number


def _names(scopes: Sequence[Scope]) -> tuple[str, ...]:
    return tuple(scope.name for scope in scopes)


def _bound(limit: int | None) -> int:
    return -1 if limit is None else limit


def _share(rates: Rates, replicas: int) -> Rates:
    shares = (None if limit is None else limit // replicas for limit in (rates.rpm, rates.tpm, rates.concurrency))
    return Rates(*shares)
