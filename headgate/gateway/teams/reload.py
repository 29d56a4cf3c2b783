"""Following the team files: what they say holds from the next request on, and what cannot be read changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from headgate.gateway.document import ConfigError
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.settings import Settings
from headgate.gateway.teams.files import team_paths
from headgate.gateway.teams.registry import Roster, Teams

logger = logging.getLogger("headgate.gateway")

PART = "teams"
"""Of the lifecycle's parts."""
FOLLOW_S = 0.25
"""How often the files are looked at; reading them takes milliseconds more."""

Marks = tuple[tuple[str, int, int, int], ...]


class Reloader:
    """Takes over what changes in the team files, as a whole or not at all."""

    def __init__(
        self,
        settings: Settings,
        teams: Teams,
        read: Callable[[], Roster],
        lifecycle: Lifecycle,
        registry: CollectorRegistry,
    ) -> None:
        """Follow nothing yet.

        Args:
            settings: name the folder.
            teams: whose roster is replaced; it was read a moment ago.
            read: the files as they are; ConfigError where they cannot be used.
            lifecycle: learns whether they can.
            registry: of the metrics.
        """
        self._settings = settings
        self._teams = teams
        self._read = read
        self._lifecycle = lifecycle
        self._asked = asyncio.Event()
        self._looking = asyncio.Lock()
        # What is there now may be newer than what was read at the start: then it is read once more.
        self._seen: Marks | None = None
        self._reloads = Counter(
            "headgate_config_reloads", "Readings of the team files after the start.", ["result"], registry=registry
        )
        self._good = Gauge("headgate_config_good", "Whether the team files hold as they are now.", registry=registry)
        self._note_good()

    def ask(self) -> None:
        """Read the files at once, changed or not: what SIGHUP does. Secrets in other files are read again too."""
        self._asked.set()

    async def follow(self) -> None:
        """Look at the files, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._asked.wait()
            await self.look()

    async def look(self) -> None:
        """Look now, and read the files where they changed or somebody asked. What it finds holds when it returns."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        asked = self._asked.is_set()
        self._asked.clear()
        marks = await asyncio.to_thread(_marks, self._settings)
        if marks == self._seen and not asked:
            return
        # Taken before reading: what changes meanwhile is read again.
        first, self._seen = self._seen is None and not asked, marks
        try:
            roster = await asyncio.to_thread(self._read)
        except ConfigError as error:
            self._reloads.labels("refused").inc()
            self._good.set(0)
            why = "; ".join(error.problems)
            kept = self._teams.roster.revision
            logger.error("the team files cannot be used, and configuration %s still holds: %s", kept, why)
            self._lifecycle.set(PART, "failed", f"configuration {kept} still holds: {why}", required=False)
            return
        if first and roster.revision == self._teams.roster.revision:
            return
        before = self._teams.roster.revision
        self._teams.replace(roster)
        self._reloads.labels("taken").inc()
        self._note_good()
        logger.warning("configuration %s holds instead of %s: %d teams", roster.revision, before, len(roster.teams))

    def _note_good(self) -> None:
        self._good.set(1)
        roster = self._teams.roster
        keys = sum(len(team.keys) for team in roster.teams.values())
        detail = f"configuration {roster.revision}: {len(roster.teams)} teams, {keys} keys"
        self._lifecycle.set(PART, "ready" if roster.teams else "off", detail, required=False)


def _marks(settings: Settings) -> Marks:
    """What changes with the files. A folder that cannot be read has none: reading it will say why."""
    found = []
    with suppress(ConfigError):
        for path in team_paths(settings):
            # One that was deleted this moment is missing in the next look.
            with suppress(OSError):
                stat = path.stat()
                found.append((path.name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)
