"""All batches of a server: made, told, cancelled, and gone on with after a restart."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator

from headgate.gateway.batches.catalog import Batch, Catalog
from headgate.gateway.batches.lines import Limits
from headgate.gateway.batches.run import Answer, Run, Site
from headgate.gateway.batches.slots import Slots
from headgate.gateway.storage.folder import Storage
from headgate.gateway.storage.sections import BatchesSection
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.batches import WINDOW_S, BatchBody, BatchList, BatchRequest, batch_list
from headgate.gateway.wire.errors import ApiError, conflict, disk_failed

_CANCELLABLE = ("validating", "in_progress")
_RUNS_PER_TEAM = 4
"""Batches of a team that are read at the same time; the others wait for one of them to end."""
_REMEMBERED = 20
"""Ended batches that are shown to who looks at the server."""


class Batches:
    """Runs batches from `start` to `close`. All calls come from one event loop."""

    def __init__(
        self,
        storage: Storage,
        section: BatchesSection,
        answer: Answer,
        *,
        line_bytes: int,
        line_values: int,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Batches over a data folder.

        Args:
            storage: where files and catalog are.
            section: the limits, as configured.
            answer: answers one line.
            line_bytes: longest line that is read.
            line_values: most objects, arrays and strings of one.
            clock: seconds since the epoch.
            sleep: waits so many seconds.
        """
        self._catalog = Catalog(storage.database, section.max_active)
        self._slots = Slots(section.in_flight)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: deque[Batch] = deque(maxlen=_REMEMBERED)
        self._clock = clock
        self._site = Site(
            files=storage.files,
            catalog=self._catalog,
            answer=answer,
            slots=self._slots,
            limits=Limits(section.max_requests, line_bytes, line_values),
            in_flight=section.in_flight,
            turn=lambda team: self._turns.setdefault(team, asyncio.Semaphore(_RUNS_PER_TEAM)),
            clock=clock,
            sleep=sleep,
        )

    @property
    def active(self) -> Iterable[BatchBody]:
        """Those that have not ended."""
        return (run.body for run in self._runs.values() if run.batch.active)

    @property
    def latest(self) -> Iterator[tuple[Batch, int]]:
        """Those that have not ended, the latest first, then the last that ended since the start.

        Each with how many of its lines are being answered.
        """
        for run in reversed(self._runs.values()):
            run.count()
            yield run.batch, run.running
        yield from ((batch, 0) for batch in reversed(self._ended))

    @property
    def in_flight(self) -> int:
        """Lines that are being answered."""
        return self._slots.held

    async def start(self) -> None:
        """Go on with the batches that have not ended."""
        for batch in await self._catalog.active():
            self._begin(Run(batch, self._site))

    async def close(self) -> None:
        """Stop; what has not ended goes on at the next start."""
        for run in list(self._runs.values()):
            async with run.changing:  # what is being cancelled begins once more
                pass
        tasks = list(self._tasks.values())
        await asyncio.gather(*map(_stopped, tasks))

    async def create(self, request: BatchRequest, principal: Principal) -> BatchBody:
        """Begin a batch. ApiError as of `Catalog.add`, and 507 where the disk does not take it."""
        now = int(self._clock())
        body = BatchBody(
            id=f"batch_{secrets.token_hex(12)}",
            endpoint=request.endpoint,
            input_file_id=request.input_file_id,
            completion_window=request.completion_window,
            status="validating",
            created_at=now,
            expires_at=now + WINDOW_S,
            metadata=request.metadata,
        )
        after = request.output_expires_after
        batch = Batch(principal.team, principal.key_id, body, None if after is None else after.seconds)
        try:
            await self._catalog.add(batch)
        except sqlite3.Error as error:
            raise disk_failed("The batch cannot be stored", error) from None
        self._begin(Run(batch, self._site))
        return body

    async def get(self, batch_id: str, team: str) -> BatchBody:
        """A batch of the team as it stands; ApiError 404 where there is none."""
        return self._now(await self._catalog.get(batch_id, team))

    async def page(self, team: str, after: str | None, limit: int) -> BatchList:
        """The team's batches; ApiError 400 where `after` is none of them."""
        batches, more = await self._catalog.page(team, after, limit)
        return batch_list([self._now(batch) for batch in batches], more=more)

    async def cancel(self, batch_id: str, team: str) -> BatchBody:
        """Answer no further line of a batch.

        ApiError 404 where there is none, 409 where it has ended, 507 where the disk does not take it: it goes on then.
        """
        batch = await self._catalog.get(batch_id, team)
        run = self._runs.get(batch_id)
        if run is None:
            raise _ended(batch.body)
        # To its end, though the client may leave: what was stopped for it must not stay so.
        return await asyncio.shield(self._cancel(run))

    async def _cancel(self, run: Run) -> BatchBody:
        body = run.batch.body
        async with run.changing:
            if body.status == "cancelling":
                return run.body
            if body.status not in _CANCELLABLE:
                raise _ended(body)
            # First of all nothing else changes it any more.
            task = self._tasks[body.id]
            await _stopped(task)
            try:
                await self._mark_cancelling(run.batch)
            finally:
                if body.id in self._runs:
                    self._begin(run)
        return run.body

    async def _mark_cancelling(self, batch: Batch) -> None:
        body, before = batch.body, batch.body.status
        if before not in _CANCELLABLE:
            raise _ended(body)
        body.status, body.cancelling_at = "cancelling", int(self._clock())
        try:
            await self._catalog.save(batch)
        except sqlite3.Error as error:
            body.status, body.cancelling_at = before, None
            raise disk_failed(f"The batch '{body.id}' cannot be cancelled", error) from None

    def _begin(self, run: Run) -> None:
        """Have a batch run that does not."""
        name = run.batch.body.id
        self._runs[name] = run
        self._tasks[name] = asyncio.create_task(self._work(run), name=name)

    async def _work(self, run: Run) -> None:
        await run.work()
        # Kept in the catalog from here on.
        name = run.batch.body.id
        del self._runs[name], self._tasks[name]
        self._ended.append(run.batch)

    def _now(self, batch: Batch) -> BatchBody:
        run = self._runs.get(batch.body.id)
        return batch.body if run is None else run.body


_AGAIN_S = 0.1


async def _stopped(task: asyncio.Task[None]) -> None:
    """Cancel it until it has ended: a group of tasks that is just ending may swallow the first time."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_S)


def _ended(body: BatchBody) -> ApiError:
    return conflict(f"The batch '{body.id}' is {body.status}; it cannot be cancelled.", "id", "batch_ended")
