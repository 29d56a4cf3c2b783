"""What gateways agree on about the cache: its epoch and how strict it is. They learn it from one journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from headgate.cache.audits.watch import Watch
from headgate.cache.store.journal import Journal

logger = logging.getLogger("headgate.gateway")

FOLLOW_S = 1.0
"""How often the journal is looked at: what one gateway decides holds in the others so many seconds later, and the time
of a look."""
_NAME = "epoch"


class _Turn(msgspec.Struct, array_like=True, frozen=True):
    """An epoch as the journal has it; the highest version is the latest."""

    version: int
    configured: str
    """`cache.epoch` of who turned it: a configuration that was changed since has the last word."""
    epoch: str


class Epoch:
    """The epoch of the cache's keys: the configuration's, until somebody turns it."""

    def __init__(self, configured: str = "", journal: Journal | None = None) -> None:
        """The configured epoch, until `sync` or `turn`."""
        self._journal = journal
        self._own = _Turn(0, configured, configured)
        self._latest = 0

    @property
    def current(self) -> str:
        """Its name."""
        return self._own.epoch

    async def turn(self, name: str) -> None:
        """Begin an epoch, or go back to an earlier one.

        Raises:
            OSError: the journal cannot be reached: other gateways and later starts do not hear of it yet.
        """
        if name == self._own.epoch:
            return
        self._latest = max(self._latest, self._own.version) + 1
        self._own = _Turn(self._latest, self._own.configured, name)
        logger.warning("the cache's epoch is '%s' now: what was stored in others is not found", name)
        await self._tell()

    async def sync(self, values: Mapping[str, bytes]) -> None:
        """Take over a later turn from the journal's values, or have it know of the own one.

        Raises:
            OSError: the journal cannot be reached.
        """
        theirs = _read(values.get(_NAME))
        self._latest = max(self._latest, theirs.version)
        if theirs.version < self._own.version:
            await self._tell()
        elif theirs.version > self._own.version and theirs.configured == self._own.configured:
            self._own = theirs

    async def _tell(self) -> None:
        if self._journal is not None:
            await self._journal.set(_NAME, msgspec.msgpack.encode(self._own))


def _read(packed: bytes | None) -> _Turn:
    try:
        return _Turn(0, "", "") if packed is None else msgspec.msgpack.decode(packed, type=_Turn)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Turn(0, "", "")


class SharedState:
    """Looks at the journal every `FOLLOW_S` seconds and has the epoch and the watch agree with it."""

    def __init__(self, journal: Journal, epoch: Epoch, watch: Watch | None) -> None:
        """Nothing is followed before `start`."""
        self._journal = journal
        self._epoch = epoch
        self._watch = watch
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Look once, so that the first request finds things as they are, and go on in the background."""
        await self.follow()
        self._task = asyncio.create_task(self._keep_following(), name="shared state")

    async def close(self) -> None:
        """Look once more, for what was counted last, and stop."""
        if self._task is not None:
            # A look that is cut off may have counted what nobody then knows to be counted.
            self._closing.set()
            await asyncio.wait([self._task])
            self._task = None
            await self.follow()

    async def follow(self) -> None:
        """Look now. A journal that cannot be reached is asked again next time."""
        try:
            values = await self._journal.values()
            await self._epoch.sync(values)
            if self._watch is not None:
                await self._watch.sync(values)
        except OSError as error:
            # The store says itself, once, that it is away.
            logger.debug("the journal cannot be reached: %s", error)
        except Exception:
            logger.exception("the journal cannot be followed")

    async def _keep_following(self) -> None:
        while not self._closing.is_set():
            try:
                await asyncio.wait_for(self._closing.wait(), FOLLOW_S)
            except TimeoutError:
                await self.follow()
