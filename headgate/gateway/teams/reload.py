"""Following the configuration: what it says holds from the next request on, and what cannot be read changes nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.settings import Settings
from headgate.gateway.teams.files import team_paths
from headgate.gateway.teams.registry import Roster, Teams
from headgate.gateway.telemetry.metrics.catalogue import Server
from headgate.gateway.telemetry.metrics.tally import Counter

if TYPE_CHECKING:
    from headgate.gateway.configuration.live import MainFile

logger = logging.getLogger("headgate.gateway")

PART, MAIN_PART = "teams", "main file"
"""Of the lifecycle's parts."""
FOLLOW_S = 0.25
"""How often the files are looked at; reading them takes milliseconds more."""

_REST = 20
"""What cannot be used and has not changed is let be for so many times as long as reading it took: hundreds of files
take seconds, of a thread that computes beside those who answer."""

Marks = tuple[tuple[str | int, ...], ...]


class Reloader:
    """Takes over what changes in the team files and the main file, as a whole or not at all."""

    def __init__(
        self,
        settings: Settings,
        teams: Teams,
        read: Callable[[Settings], Roster],
        lifecycle: Lifecycle,
        registry: CollectorRegistry,
        main: MainFile | None = None,
        apply: Callable[[Settings], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Follow nothing yet.

        Args:
            settings: name the folder.
            teams: whose roster is replaced; it was read a moment ago.
            read: the team files as they are, over settings; ConfigError where they cannot be used.
            lifecycle: learns whether they can.
            registry: of the metrics.
            main: the main file, if there is one.
            apply: has settings hold that differ from those of the start in what needs no restart.
            clock: monotonic seconds.
        """
        self._settings = settings
        self._teams = teams
        self._read = read
        self._lifecycle = lifecycle
        self._main = main
        self._apply = apply
        self._clock = clock
        self._rests_until = 0.0
        self._waiting: tuple[str, ...] = ()
        self.problem: str | None = None
        """Why the files cannot be used as they were when it looked last, so that what held before still does."""
        self._asked = asyncio.Event()
        self._looking = asyncio.Lock()
        # What is there now may be newer than what was read at the start: then it is read once more.
        self._seen: Marks | None = None
        self._reloads = Counter(Server.RELOADS, registry)
        self._good = Server.CONFIG_GOOD.held(registry)
        self._restart = Server.RESTART_KEYS.held(registry)
        self._note_good()
        self._note_waiting(())

    def ask(self) -> None:
        """Read the files at once, changed or not: what SIGHUP does. Secrets in other files are read again too."""
        self._asked.set()

    async def follow(self) -> None:
        """Look at the files, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._asked.wait()
            # Whatever is wrong with a file: one that is put right later, or revokes a key, has to be found.
            try:
                await self.look()
            except Exception as error:
                if self._refuse(f"{type(error).__name__} while reading it; see the log"):
                    logger.exception("the configuration could not be read")

    async def look(self) -> None:
        """Look now, and read the files where they changed or somebody asked. What it finds holds when it returns."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        asked = self._asked.is_set()
        self._asked.clear()
        main = None if self._main is None else self._main.path
        marks = await asyncio.to_thread(_marks, self._settings, main)
        # What cannot be used is read until it can: what is wrong may lie elsewhere, and no revoked key is to hold on.
        if marks == self._seen and not asked and (self.problem is None or self._clock() < self._rests_until):
            return
        # Taken before reading: what changes meanwhile is read again.
        first, self._seen = self._seen is None and not asked, marks
        begun = self._clock()
        try:
            settings, waiting, roster = await asyncio.to_thread(self._read_all)
        except ConfigError as error:
            self._refuse("; ".join(error.problems))
            return
        finally:
            ended = self._clock()
            self._rests_until = ended + _REST * (ended - begun) - FOLLOW_S
        self._note_waiting(waiting)
        if first and roster.revision == self._teams.roster.revision:
            return
        before = self._teams.roster.revision
        # Nothing is awaited in between: no request sees the one without the other.
        self._teams.replace(roster)
        if self._main is not None:
            self._apply(settings)
        self._reloads.add("taken")
        self._note_good()
        logger.warning("configuration %s holds instead of %s: %d teams", roster.revision, before, len(roster.teams))

    def _read_all(self) -> tuple[Settings, tuple[str, ...], Roster]:
        settings, waiting = (self._settings, ()) if self._main is None else self._main.read()
        return settings, waiting, self._read(settings)

    def _refuse(self, why: str) -> bool:
        """Say that what is there cannot be used; False where that was said before."""
        if why == self.problem:
            return False
        self.problem = why
        self._reloads.add("refused")
        self._good.set(0)
        kept = self._teams.roster.revision
        logger.error("the configuration cannot be used, and configuration %s still holds: %s", kept, why)
        self._lifecycle.set(PART, "failed", f"configuration {kept} still holds: {why}", required=False)
        return True

    def _note_waiting(self, keys: tuple[str, ...]) -> None:
        """What the main file says that does not hold."""
        if self._main is None:
            return
        detail = f"needs a restart: {', '.join(keys)}" if keys else str(self._main.path)
        self._lifecycle.set(MAIN_PART, "ready", detail, required=False)
        self._restart.set(len(keys))
        if keys and keys != self._waiting:
            logger.warning("%s has changed, and %s", self._main.path, detail)
        self._waiting = keys

    def _note_good(self) -> None:
        self.problem = None
        self._good.set(1)
        roster = self._teams.roster
        keys = sum(len(team.keys) for team in roster.teams.values())
        detail = f"configuration {roster.revision}: {len(roster.teams)} teams, {keys} keys"
        self._lifecycle.set(PART, "ready" if roster.teams else "off", detail, required=False)


def _marks(settings: Settings, main: Path | None) -> Marks:
    """What changes with the files. A folder that cannot be read has none: reading it will say why."""
    found: list[tuple[str | int, ...]] = []
    with suppress(ConfigError):
        for path in (*([] if main is None else [main]), *team_paths(settings)):
            try:
                stat = path.stat()
            except OSError:
                # Deleted this moment, or a link that leads nowhere: when the name goes too, that is a change.
                found.append((path.name,))
            else:
                # Who may read it changes the last of its times only.
                times = (stat.st_mtime_ns, stat.st_ctime_ns)
                found.append((path.name, *times, stat.st_size, stat.st_ino))
    return tuple(found)
