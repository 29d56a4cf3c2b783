"""Which answers were given, and what was said of them: in memory, and in the data folder where there is one.

An answer is remembered when it ends and written within a second. So the request waits for no disk, and a process that
is killed may forget the answers of its last second.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from headgate.gateway.feedback import table
from headgate.gateway.feedback.records import Cause, Given, Rating
from headgate.gateway.storage.database import Database
from headgate.gateway.telemetry.record import RequestRecord

logger = logging.getLogger("headgate.gateway")

T = TypeVar("T")

_WRITE_S = 1.0
_CAUSES: Mapping[str, Cause] = {"exact": "exact", "semantic": "semantic"}


class Book:
    """Of each team the latest answers and ratings. All calls come from one event loop."""

    def __init__(self, most: int, clock: Callable[[], float] = time.time) -> None:
        """`most`: answers, and ratings, that are kept of a team. `clock`: Unix time."""
        self._most = most
        self._clock = clock
        self._database: Database | None = None
        self._answers: dict[str, OrderedDict[str, Given]] = {}
        self._ratings: dict[str, OrderedDict[str, Rating]] = {}
        self._unwritten: dict[str, deque[Given]] = {}
        self._failing = False

    def given(self, record: RequestRecord) -> None:
        """A request was answered."""
        opened, chosen = record.opened, record.chosen
        one = Given(
            record.reply_id,
            record.team,
            record.key_id or "",
            record.user,
            self._clock(),
            record.model,
            _CAUSES.get(record.verdict, "generated"),
            "" if opened is None or opened.key is None else opened.key,
            "" if chosen is None else chosen.features,
        )
        _keep(self._answers.setdefault(one.team, OrderedDict()), one.id, one, self._most)
        if self._database is not None:
            unwritten = self._unwritten.get(one.team)
            if unwritten is None:
                unwritten = self._unwritten[one.team] = deque(maxlen=self._most)
            unwritten.append(one)

    @property
    def remembered(self) -> tuple[int, float]:
        """See `Remembers`: answers, and the fullest team's."""
        counts = [len(answers) for answers in self._answers.values()]
        return sum(counts), max(counts, default=0) / self._most if self._most else 0.0

    async def find(self, team: str, answer_id: str) -> Given | None:
        """A team's answer, if it is remembered. `sqlite3.Error` where the disk fails."""
        own = self._answers.get(team)
        found = None if own is None else own.get(answer_id)
        if found is None and self._database is not None:
            search = partial(table.find_answer, team=team, answer_id=answer_id, most=self._most)
            found = await self._database.run(search)
        return found

    async def rate(self, rating: Rating) -> Rating | None:
        """Keep a rating, on the disk where there is one; gives the one before. `sqlite3.Error` where that fails."""
        answer = rating.answer
        if self._database is not None:
            return await self._database.run(partial(table.rate, rating=rating, most=self._most))
        ratings = self._ratings.setdefault(answer.team, OrderedDict())
        before = ratings.pop(answer.id, None)
        _keep(ratings, answer.id, rating, self._most)
        return before

    async def rating(self, team: str, answer_id: str) -> Rating | None:
        """What was said of a team's answer. `sqlite3.Error` where the disk fails."""
        if self._database is not None:
            return await self._database.run(partial(table.find_rating, team=team, answer_id=answer_id))
        own = self._ratings.get(team)
        return None if own is None else own.get(answer_id)

    async def ratings(self, team: str | None) -> list[Rating]:
        """Those of a team, or of all, the oldest first. `sqlite3.Error` where the disk fails."""
        if self._database is not None:
            return await self._database.run(partial(table.ratings, team=team))
        found = [one for name, own in self._ratings.items() if team in (None, name) for one in own.values()]
        return sorted(found, key=lambda one: one.at)

    async def open(self, database: Database) -> None:
        """From now on go on with what a catalog has. `sqlite3.Error` where it cannot be used."""
        await database.make(table.make)
        self._database = database

    async def follow(self) -> None:
        """Write what was remembered, every so often, until cancelled."""
        while True:
            await asyncio.sleep(_WRITE_S)
            await self.write()

    async def write(self) -> None:
        """Write what was remembered since the last time. What the disk does not take is in memory only."""
        if self._database is None or not self._unwritten:
            return
        answers = {team: list(unwritten) for team, unwritten in self._unwritten.items()}
        self._unwritten.clear()
        try:
            await self._database.run(partial(table.write, answers=answers, most=self._most))
        except sqlite3.Error as error:
            if not self._failing:
                logger.warning("answers can be rated only until the server ends: %s", error)
            self._failing = True
        else:
            self._failing = False


def _keep(kept: OrderedDict[str, T], name: str, one: T, most: int) -> None:
    kept[name] = one
    if len(kept) > most:
        kept.popitem(last=False)
