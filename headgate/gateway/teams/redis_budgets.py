"""Budgets that several gateways spend together: what each has spent and set aside is known to all by one Redis.

Every gateway writes its own sums there, whole, and nobody else's: so a write that is lost or repeated does no harm, and
a gateway that comes back, or a Redis that lost everything, is right again with the next write. Whether a request fits
is decided in one script, by the sums of all. What a gateway that was killed had set aside stays counted until it starts
again and its ledger says what became of it.

While Redis does not answer, a gateway spends its part of what was left when it was asked last, that over the number of
replicas: all parts together are within the budget, but for what others have spent since then.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headgate.cache.store.base import StoreDownError
from headgate.gateway.teams.budgets import Admitted, Bound, Budgets, Hold, Sums, bounds, periods
from headgate.gateway.teams.costs import MICRO, NANO, NOTHING, Cost
from headgate.gateway.teams.sections import BudgetsSection

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore

FOLLOW_S = 1.0
"""How often others' sums are asked for where no request does."""
_KEPT_MS = 40 * 86400 * 1000
_RECENT_DAYS = 3
"""Days that may be today somewhere on earth; their months are told with them."""

# KEYS: the hashes of a day and its month, a field for each gateway. ARGV: the gateway, its process, a number that grows
# with each call of that, how long sums are kept; money and time that are asked for, and for each key what the gateway
# has spent and set aside, that included, and the limits, -1 for none. Gives 1 where a limit is passed, and nothing is
# written then, and for each key what others have spent and set aside. A call that was overtaken writes nothing. The
# first write changes nothing, and is one that a full server takes: it lets a script go on that has written.
_TELL = """
redis.call('HDEL', KEYS[1], '')
local found, over = {}, 0
local function read(text)
  local process, number, a, b, c, d = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return process, tonumber(number or 0), {tonumber(a or 0), tonumber(b or 0), tonumber(c or 0), tonumber(d or 0)}
end
for k = 1, #KEYS do
  local sums, all, base = {0, 0, 0, 0}, redis.call('HGETALL', KEYS[k]), 6 * k
  for i = 1, #all, 2 do
    if all[i] ~= ARGV[1] then
      local _, _, theirs = read(all[i + 1])
      for j = 1, 4 do sums[j] = sums[j] + theirs[j] end
    end
  end
  for unit = 1, 2 do
    local limit = tonumber(ARGV[base + 4 + unit])
    local total = sums[unit] + sums[unit + 2] + ARGV[base + unit] + ARGV[base + unit + 2]
    if limit >= 0 and (total > limit or total - ARGV[4 + unit] >= limit) then over = 1 end
  end
  for j = 1, 4 do found[#found + 1] = sums[j] end
end
for k = 1, #KEYS do
  local process, number = read(redis.call('HGET', KEYS[k], ARGV[1]) or '')
  if over == 0 and (process ~= ARGV[2] or number < tonumber(ARGV[3])) then
    redis.call('HSET', KEYS[k], ARGV[1], table.concat({ARGV[2], ARGV[3], unpack(ARGV, 6 * k + 1, 6 * k + 4)}, ' '))
  end
  redis.call('PEXPIRE', KEYS[k], ARGV[4])
end
return {over, unpack(found)}
"""


@dataclass(frozen=True, slots=True)
class _Known:
    """How a period stood when Redis was asked last."""

    others: Sums
    own: Cost
    """What this gateway had spent and set aside."""


class RedisBudgets:
    """Implements `Pool`. Calls come from one event loop."""

    def __init__(self, store: RedisStore, own: Budgets, gateway: str, replicas: int) -> None:
        """Count in the Redis of a store.

        Args:
            store: its connection, its deadline for answers and its prefix are used.
            own: the sums of this gateway.
            gateway: its name among the others; the same after a restart if its sums are.
            replicas: gateways that count there.
        """
        self._store = store
        self._own = own
        self._gateway = gateway
        self._replicas = replicas
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._known: dict[tuple[str, str], _Known] = {}
        self._sections: dict[str, BudgetsSection] = {}
        self._untold: set[tuple[str, str]] = set()
        """Teams and days whose sums Redis does not have as they are."""
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._script = store.client.register_script(_TELL)

    def others(self, team: str, period: str) -> Sums:
        """See `Pool`."""
        known = self._known.get((team, period))
        return Sums() if known is None else known.others

    async def admit(self, hold: Hold, section: BudgetsSection) -> Admitted:
        """See `Pool`."""
        self._sections[hold.team] = section
        blocks = section if section.on_exceed == "block" else None
        try:
            return "over" if await self._tell(hold.team, hold.day, hold.cost, blocks) else "taken"
        except StoreDownError:
            return "taken" if blocks is None or self._within_part(hold, blocks) else "away"

    def changed(self, team: str, day: str) -> None:
        """See `Pool`."""
        if team not in self._sections or (team, day) in self._untold:
            return
        self._untold.add((team, day))
        task = self._tasks[team, day] = asyncio.get_running_loop().create_task(self._catch_up(team, day))
        task.add_done_callback(partial(self._ended, (team, day)))

    async def follow(self) -> None:
        """Tell what was not told yet, and ask what others have, until cancelled."""
        days = sorted({day for _, day in self._own.days()})[-_RECENT_DAYS:]
        self._untold |= {(team, day) for team, day in self._own.days() if day in days}
        while True:
            await self.look()
            await asyncio.sleep(FOLLOW_S)

    async def look(self) -> None:
        """Do so once, if Redis answers."""
        today = {(team, self._own.day(section)) for team, section in self._sections.items()}
        for team, day in today | self._untold:
            await self._catch_up(team, day)

    async def settled(self) -> None:
        """Wait until Redis was told of everything, or does not answer."""
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def _catch_up(self, team: str, day: str) -> None:
        # Whatever changes from here on is told again.
        self._untold.discard((team, day))
        try:
            await self._tell(team, day, NOTHING, None)
        except StoreDownError:
            self._untold.add((team, day))

    def _ended(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    async def _tell(self, team: str, day: str, cost: Cost, blocks: BudgetsSection | None) -> bool:
        """Have others know this gateway's sums, and learn theirs; whether a limit is passed, and nothing was told."""
        arguments: list[str | int] = [self._gateway, self._process, next(self._numbers), _KEPT_MS]
        arguments += [cost.nano_usd, cost.device_us]
        limits = {} if blocks is None else dict(bounds(blocks))
        before: list[Cost] = []
        for period, usd, device_s in zip(periods(day), _USD, _DEVICE_S, strict=True):
            own = self._own.own(team, period)
            before.append(own.spent + own.reserved)
            for part in (own.spent, own.reserved):
                arguments += [part.nano_usd, part.device_us]
            arguments += [_whole(limits.get(usd), NANO), _whole(limits.get(device_s), MICRO)]
        names = [f"{self._store.prefix}budget:{team}:{period}" for period in periods(day)]
        over, *found = await self._store.ask(partial(self._script, keys=names, args=arguments))
        for index, period in enumerate(periods(day)):
            spent_usd, spent_s, held_usd, held_s = (int(value) for value in found[4 * index : 4 * index + 4])
            others = Sums(Cost(spent_usd, spent_s), Cost(held_usd, held_s))
            self._known[team, period] = _Known(others, before[index] - cost if over else before[index])
        return bool(over)

    def _within_part(self, hold: Hold, section: BudgetsSection) -> bool:
        """Whether all that this gateway has is within what it may spend alone."""
        for bound, limit in bounds(section):
            period = hold.day if bound in (_USD[0], _DEVICE_S[0]) else hold.day[:7]
            known = self._known.get((hold.team, period), _Known(Sums(), NOTHING))
            unit, taken = (NANO, 0) if bound in _USD else (MICRO, 1)
            own = self._own.own(hold.team, period)
            then, now, others = (
                (cost.nano_usd, cost.device_us)[taken]
                for cost in (known.own, own.spent + own.reserved, known.others.spent + known.others.reserved)
            )
            if now > then + max(0, _whole(limit, unit) - others - then) // self._replicas:
                return False
        return True


_USD: tuple[Bound, Bound] = ("daily_usd", "monthly_usd")
_DEVICE_S: tuple[Bound, Bound] = ("daily_device_s", "monthly_device_s")


def _whole(limit: float | None, unit: int) -> int:
    return -1 if limit is None else round(limit * unit)
