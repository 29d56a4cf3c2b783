"""Responses that are made while nobody waits for them: begun by one request, asked for and cancelled by others."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import msgspec

from headgate.cache.store.base import StoreDownError
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.responses.shared import SharedResponses
from headgate.gateway.responses.stored import StoredResponse
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError, server_error
from headgate.gateway.wire.responses.body import ResponseFailure, ResponseStatus, failure_of, restated
from headgate.gateway.wire.responses.reply import ResponsesReply

logger = logging.getLogger("headgate.gateway")

FOLLOW_S = 2.0
"""How often a process says that it still makes a response, and hears that another was told to cancel it."""
_LEASE_S = 30.0
"""How long that is believed. Then the process is gone."""
_ENDED = "The server that was making the response has ended."
_GONE = ResponseFailure("server_error", _ENDED)
_UNFINISHED = ("queued", "in_progress")


class _Stands(msgspec.Struct):
    """What is looked at in a stored body."""

    status: ResponseStatus
    background: bool


_STANDS = msgspec.json.Decoder(_Stands)


class Making:
    """One response that is being made here."""

    def __init__(self, team: str, response_id: str, reply: ResponsesReply, items: bytes, *, stream: bool) -> None:
        """`items`: the conversation up to it; `stream`: its events may be read again."""
        self.team = team
        self.id = response_id
        self.reply = reply
        self.items = items
        self.stream = stream
        self.body = reply.empty("queued")
        self.said_at = -math.inf
        """When it was last said that it is being made."""
        self.whole = False
        self.given_up = False
        """Whether somebody wants no more of it."""
        self.events: list[bytes] = []
        self.error: ApiError | None = None
        self.ended = False
        self._changed = asyncio.Event()

    def become(self, body: bytes) -> None:
        """It is whole."""
        self.body, self.whole = body, True

    def tell(self, events: Sequence[bytes] = (), *, ended: bool = False) -> None:
        """More of it is there."""
        self.events += events
        self.ended = self.ended or ended
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, timeout_s: float | None) -> bool:
        """Wait for more; False where none came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
                return True
        return False

    async def begun(self, timeout_s: float | None) -> None:
        """Wait until it is settled who answers, or that nobody does; but not for longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.events and not self.ended:
                    await self._changed.wait()


Make = Callable[[Making], AsyncIterator[Sequence[bytes]]]
"""The events of a response as they come, the first once it is settled who answers. It ends where they are left."""


class BackgroundResponses:
    """Makes them, each in a task of its own. All calls come from one event loop."""

    def __init__(
        self,
        stored: SharedResponses,
        lifecycle: Lifecycle,
        ended: Callable[[RequestRecord], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ended` is told of each that has ended; `clock`: monotonic seconds."""
        self._stored = stored
        self._lifecycle = lifecycle
        self._told = ended
        self._clock = clock
        self._making: dict[tuple[str, str], tuple[Making, asyncio.Task[None]]] = {}
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Hear from now on what other processes are told of responses that are made here."""
        self._following = asyncio.create_task(self._keep_following(), name="follow background responses")

    async def close(self) -> None:
        """End what is being made: it has failed."""
        tasks = [task for _, task in self._making.values()]
        if self._following is not None:
            tasks.append(self._following)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def begin(self, making: Making, make: Make, record: RequestRecord) -> None:
        """Make a response; whoever asked for it may leave."""
        key = making.team, making.id
        self._keep(making)
        task = asyncio.create_task(self._make(making, make, record), name=f"make {making.id}")
        self._making[key] = making, task
        task.add_done_callback(lambda _: self._making.pop(key))

    def making(self, team: str, response_id: str) -> Making | None:
        """A response that is being made here."""
        found = self._making.get((team, response_id))
        return None if found is None else found[0]

    async def get(self, team: str, response_id: str) -> StoredResponse | None:
        """A team's response as it stands: one whose process has gone has failed.

        Raises:
            StoreDownError: it cannot be looked up.
        """
        found = await self._stored.get(team, response_id)
        if found is None or found.silent_s < _LEASE_S or self.making(team, response_id) is not None:
            return found
        return StoredResponse(restated(found.body, "failed", _GONE), found.items)

    async def cancel(self, team: str, response_id: str) -> StoredResponse | None:
        """A team's response, which is made no further; what had ended stays as it is.

        Raises:
            ValueError: it was not made in the background.
            StoreDownError: it cannot be looked up, or its process cannot be told.
        """
        found = await self.get(team, response_id)
        if found is None:
            return None
        stands = _STANDS.decode(found.body)
        if not stands.background:
            raise ValueError("it was not made in the background")
        if stands.status not in _UNFINISHED:
            return found
        await self._give_up(team, response_id)
        await self._stored.end(team, response_id)
        cancelled = StoredResponse(restated(found.body, "cancelled"), found.items)
        self._stored.keep(team, response_id, cancelled)
        return cancelled

    async def delete(self, team: str, response_id: str) -> bool:
        """Forget a team's response, made to its end or not; False where there was none.

        Raises:
            StoreDownError: it may still be found.
        """
        await self._give_up(team, response_id)
        await self._stored.end(team, response_id, deleted=True)
        return await self._stored.delete(team, response_id)

    async def _give_up(self, team: str, response_id: str) -> None:
        """Have it made no further, if it is made here."""
        making, task = self._making.get((team, response_id), (None, None))
        if making is not None and task is not None:
            making.given_up = True
            task.cancel()
            await asyncio.wait([task])

    async def _make(self, making: Making, make: Make, record: RequestRecord) -> None:
        try:
            with self._lifecycle.request():
                async for events in make(making):
                    if not making.events:
                        making.body = making.reply.empty("in_progress")
                    self._keep(making, events)
                    making.tell(events)
            record.status = 200
        except ApiError as error:
            record.status, record.error, making.error = error.status, error.code, error
            self._fail(making, error)
        except asyncio.CancelledError:
            record.status = 499
            self._fail(making, server_error(_ENDED))
            raise
        except Exception:
            logger.exception("response %s failed", making.id)
            record.status = 500
            self._fail(making, server_error())
        finally:
            making.tell(ended=True)
            record.total_s = time.monotonic() - record.arrived
            self._told(record)

    def _keep(self, making: Making, events: Sequence[bytes] = ()) -> None:
        """Keep how it stands, before `events` tell of it, where there is news or it is time to say that it goes on."""
        now = self._clock()
        if making.given_up:
            return
        if making.whole:
            told = (*making.events, *events) if making.stream else ()
            self._stored.keep(
                making.team, making.id, StoredResponse(making.body, making.items, told), unless_ended=True
            )
        elif not making.events or now > making.said_at + _LEASE_S / 2:
            making.said_at = now
            going = StoredResponse(making.body, making.items, kept_ms=self._stored.kept_ms)
            self._stored.keep(making.team, making.id, going, unless_ended=True)

    def _fail(self, making: Making, error: ApiError) -> None:
        last = [making.reply.error(error)] if making.events else []
        making.become(restated(making.body, "failed", failure_of(error)))
        self._keep(making, last)
        making.tell(last)

    async def follow(self) -> None:
        """Say of what is made here that it still is, unless another process was told that it is not to be."""
        if not self._stored.shared:
            return
        await self._stored.tell()
        for making, task in list(self._making.values()):
            await self._stored.written(making.team, making.id)
            try:
                found = await self._stored.get(making.team, making.id)
                forgotten = found is None and await self._stored.ended(making.team, making.id)
            except StoreDownError:
                continue
            if making.whole:
                continue
            if forgotten or (found is not None and _STANDS.decode(found.body).status not in _UNFINISHED):
                making.given_up = True
                task.cancel()
                continue
            if found is None:
                # Redis began anew, or made room.
                making.said_at = -math.inf
            self._keep(making)

    async def _keep_following(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            await self.follow()
