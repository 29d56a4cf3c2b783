"""One batch on its way: check its file, answer its lines, finish. Begun again, it goes on where it was."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headgate.gateway.batches.catalog import Batch, Catalog
from headgate.gateway.batches.lines import Limits, Lines, check
from headgate.gateway.batches.results import ResultFile, number_in, result_of
from headgate.gateway.batches.slots import Slots
from headgate.gateway.storage.files import Files
from headgate.gateway.wire.batches import (
    BatchBody,
    BatchError,
    BatchErrors,
    InputLine,
    LineError,
    LineResponse,
    RequestCounts,
)
from headgate.gateway.wire.errors import ApiError

logger = logging.getLogger("headgate.gateway")

Answer = Callable[[str, bytes, Batch], Awaitable[LineResponse]]
"""Answers a line's body at an endpoint, for a batch; ApiError 429 or 503 where it is to be asked again later."""

Ending = Literal["completed", "cancelled", "expired", "failed"]
"""Of a batch, which says when it came in a field of that name."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BUSY = (errno.EMFILE, errno.ENFILE)
_LONGEST_WAIT_S = 60.0
_STORE_AGAIN_S = 2.0
_OPEN_AGAIN_S = 2.0


class BatchFailed(Exception):
    """A batch cannot go on."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = BatchError(code, message)


class _Expired(Exception):
    """The time of a batch is over."""


@dataclass(frozen=True, slots=True)
class Site:
    """What all batches of a server share."""

    files: Files
    catalog: Catalog
    answer: Answer
    slots: Slots
    limits: Limits
    in_flight: int
    turn: Callable[[str], AbstractAsyncContextManager[object]]
    """Bounds how many batches of a team are read at the same time."""
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


class Run:
    """A batch that has not ended."""

    def __init__(self, batch: Batch, site: Site) -> None:
        self.batch = batch
        self._site = site
        self._output: ResultFile | None = None
        self._errors: ResultFile | None = None
        self.running = 0
        """Lines that are being answered."""
        self.changing = asyncio.Lock()
        """Held while it is cancelled."""
        self._reading = asyncio.Lock()
        self._opening = asyncio.Lock()

    @property
    def body(self) -> BatchBody:
        """The batch as it stands now."""
        self.count()
        return self.batch.body

    def count(self) -> None:
        """Have the batch tell what became of its lines by now."""
        body = self.batch.body
        if self._output is not None:
            failed = 0 if self._errors is None else len(self._errors.numbers)
            body.request_counts = RequestCounts(body.request_counts.total, len(self._output.numbers), failed)
            body.usage = self._output.usage

    async def work(self) -> None:
        """Bring the batch to its end, and its end to the catalog. Cancelled, it can be begun again."""
        told = False
        while not await self._ended():
            if not told:
                logger.warning("batch %s waits: too many files are open", self.batch.body.id)
            told = True
            await self._site.sleep(_OPEN_AGAIN_S)
        await self._store_end()

    async def _ended(self) -> bool:
        """Whether it came to its end; False where no file can be opened just now, and it goes on where it was."""
        body = self.batch.body
        try:
            if body.status == "validating":
                await self._validate()
            if body.status == "in_progress":
                async with self._site.turn(self.batch.team):
                    await self._answer_all()
            if body.status == "finalizing":
                await self._end("completed")
            elif body.status == "cancelling":
                await self._end("cancelled")
        except BatchFailed as failure:
            self._fail([failure.error])
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, OSError) and error.errno in _BUSY:
                return False
            self._fail([_disk_error(error)])
        except Exception:
            logger.exception("batch %s failed", body.id)
            self._fail([BatchError("internal_error", "The server had an error while processing the batch.")])
        return True

    async def _validate(self) -> None:
        body = self.batch.body
        found = await asyncio.to_thread(check, self._input(), body.endpoint, self._site.limits)
        body.request_counts = RequestCounts(found.total)
        if found.errors:
            self._fail(found.errors)
            return
        output = await self._new_file("output")
        body.output_file_id = output
        body.status, body.in_progress_at = "in_progress", self._now()
        await self._site.catalog.save(self.batch)

    async def _answer_all(self) -> None:
        body = self.batch.body
        try:
            await self._open()
            done = self._done()
            lines = await asyncio.to_thread(Lines, self._input(), body.endpoint, self._site.limits, done)
            try:
                expired = await self._share_out(lines)
            finally:
                lines.close()
            if expired:
                await self._expire()
            else:
                body.status, body.finalizing_at = "finalizing", self._now()
                await self._site.catalog.save(self.batch)
        finally:
            # A line that is being added when this is cancelled is added, and counted.
            await asyncio.shield(asyncio.to_thread(self._close))

    async def _share_out(self, lines: Lines) -> bool:
        """Answer the lines side by side; True where their time was over before they were all done."""
        expired, failures = False, list[BaseException]()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._site.in_flight):
                    group.create_task(self._work_off(lines))
        except* _Expired:
            expired = True
        except* Exception as several:
            failures.extend(several.exceptions)
        if failures:
            raise failures[0]
        return expired

    async def _work_off(self, lines: Lines) -> None:
        while (found := await self._next(lines)) is not None:
            number, line = found
            response = await self._answered(line)
            await self._keep(number, line.custom_id, response)

    async def _next(self, lines: Lines) -> tuple[int, InputLine] | None:
        async with self._reading:
            try:
                return await asyncio.to_thread(lines.next)
            except ApiError as error:
                raise BatchFailed("invalid_file", f"The input file has changed: {error.message}") from None

    async def _answered(self, line: InputLine) -> LineResponse:
        """What the endpoint says, however often it has to be asked."""
        wait_s = 1.0
        while True:
            if self._site.clock() >= self.batch.body.expires_at:
                raise _Expired
            async with self._site.slots.hold(self.batch.team):
                self.running += 1
                try:
                    return await self._site.answer(self.batch.body.endpoint, bytes(line.body), self.batch)
                except ApiError as error:
                    asked_s = _seconds(error.headers.get("Retry-After"))
                finally:
                    self.running -= 1
            await self._site.sleep(min(max(wait_s, asked_s), _LONGEST_WAIT_S))
            wait_s *= 2

    async def _keep(self, number: int, custom_id: str, response: LineResponse | LineError) -> None:
        good = isinstance(response, LineResponse) and response.status_code == 200
        file = self._output if good else await self._error_file()
        assert file is not None, "results are open while lines are answered"
        await asyncio.to_thread(file.append, number, result_of(self.batch.body.id, number, custom_id, response))

    async def _expire(self) -> None:
        """Say of every line that is not done that it will not be."""
        body = self.batch.body
        hours = body.completion_window
        error = LineError("batch_expired", f"This request could not be answered within the batch's window of {hours}.")
        lines = await asyncio.to_thread(Lines, self._input(), body.endpoint, self._site.limits, self._done())
        try:
            while (found := await self._next(lines)) is not None:
                await self._keep(found[0], found[1].custom_id, error)
        finally:
            lines.close()
        await self._end("expired")

    async def _end(self, status: Ending) -> None:
        """The results are settled: nothing is added to them any more."""
        body = self.batch.body
        await self._open()
        try:
            await asyncio.to_thread(self._settle)
            body.usage, body.request_counts = self.body.usage, self.body.request_counts
            if self._output is not None and not self._output.numbers and body.output_file_id is not None:
                await self._site.files.discard(body.output_file_id)
                body.output_file_id = None
            await self._finish()
        finally:
            await asyncio.shield(asyncio.to_thread(self._close))
        self._close_as(status)

    def _fail(self, errors: list[BatchError]) -> None:
        """End it for a reason; what was answered stays readable."""
        self.batch.body.errors = BatchErrors(errors)
        self._close_as("failed")
        logger.warning("batch %s failed: %s", self.batch.body.id, errors[0].message)

    async def _store_end(self) -> None:
        """Have it stored that the batch has ended, and how, as soon as the disk takes that: it never changes again.

        Until then its files are in use, and a restart would go on with it.
        """
        body, told = self.batch.body, False
        while True:
            try:
                if body.status == "failed":
                    await self._finish()
                await self._site.catalog.save(self.batch)
                return
            except sqlite3.Error as error:
                if not told:
                    logger.warning("that batch %s is %s cannot be stored yet: %s", body.id, body.status, error)
                told = True
            await self._site.sleep(_STORE_AGAIN_S)

    async def _finish(self) -> None:
        """The results are all that there will be: from now on their time runs."""
        sizes = {file_id: file.size for file_id, file in self._open_files()}
        for file_id in (self.batch.body.output_file_id, self.batch.body.error_file_id):
            if file_id is not None:
                await self._site.files.finished(file_id, sizes.get(file_id), self.batch.output_expires_s)

    def _close_as(self, status: Ending) -> None:
        self.batch.body.status = status
        setattr(self.batch.body, f"{status}_at", self._now())

    async def _open(self) -> None:
        """Open the results that there are, and see what is done."""
        body = self.batch.body
        if body.output_file_id is not None:
            self._output = await self._opened(body.output_file_id)
        if body.error_file_id is not None:
            self._errors = await self._opened(body.error_file_id)

    async def _opened(self, file_id: str) -> ResultFile:
        path = self._site.files.path(file_id)
        file = await asyncio.to_thread(ResultFile, path, number_in(self.batch.body.id))
        self._site.files.growing(file_id, lambda: file.size)
        return file

    async def _error_file(self) -> ResultFile:
        """The error file, which is made with the first error."""
        async with self._opening:
            if self._errors is None:
                name = await self._new_file("error")
                self.batch.body.error_file_id = name
                await self._site.catalog.save(self.batch)
                self._errors = await self._opened(name)
            return self._errors

    async def _new_file(self, what: str) -> str:
        name = f"{self.batch.body.id}_{what}.jsonl"
        stored = await self._site.files.create(self.batch.team, name, "batch_output")
        return stored.id

    def _open_files(self) -> Iterable[tuple[str, ResultFile]]:
        body = self.batch.body
        if body.output_file_id is not None and self._output is not None:
            yield body.output_file_id, self._output
        if body.error_file_id is not None and self._errors is not None:
            yield body.error_file_id, self._errors

    def _done(self) -> set[int]:
        return {number for _, file in self._open_files() for number in file.numbers}

    def _settle(self) -> None:
        for _, file in self._open_files():
            file.settle()

    def _close(self) -> None:
        for file in (self._output, self._errors):
            if file is not None:
                file.close()

    def _input(self) -> Path:
        return self._site.files.path(self.batch.body.input_file_id)

    def _now(self) -> int:
        return int(self._site.clock())


def _disk_error(error: OSError | sqlite3.Error) -> BatchError:
    if isinstance(error, FileNotFoundError):
        return BatchError("file_not_found", "A file of the batch is not on the server's disk any more.")
    full = (isinstance(error, OSError) and error.errno in _FULL) or "full" in str(error)
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BatchError("storage_full" if full else "storage_failed", f"The server's disk failed: {reason}.")


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else 0.0
