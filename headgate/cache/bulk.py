"""Many texts to vectors beside the look-ups of the cache, which go first."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headgate.cache.embedder import Vector

_FIRST_TOKENS_S = 5000.0
"""Tokens a second, before any pass was timed."""
_WEIGHT = 0.2
"""Of the newest pass, in the mean of how fast they are."""


class Passes(Protocol):
    """What computes them."""

    async def passages(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of these texts, in one pass that waits for what others asked before."""
        ...


class BulkFullError(Exception):
    """More texts wait than may. `retry_after_s`: seconds until there is room, by how fast passes are."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"more texts wait to be embedded than may; there is room in about {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(slots=True, eq=False)
class _Job:
    """The texts of one request, and how far they are."""

    texts: Sequence[str]
    lengths: Sequence[int]
    done: asyncio.Future[None]
    vectors: list[Vector | None] = field(default_factory=list)
    next: int = 0
    computed: int = 0


class Bulk:
    """Embeds the texts of requests, a small pass at a time, each with texts of as many requests as there are.

    A pass is put behind the look-ups that wait, and the next one is only put there when it has ended: whoever looks
    something up waits for one pass at most. A request of two thousand texts does not hold one of a single text up.
    """

    def __init__(
        self,
        passes: Passes,
        *,
        max_waiting_tokens: int,
        pass_tokens: int = 512,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing waits yet.

        Args:
            passes: computes them.
            max_waiting_tokens: tokens of the texts that may wait, all requests together. A request that finds none
                waiting is taken whatever it has.
            pass_tokens: tokens of a pass, unless a single text has more.
            clock: monotonic seconds.
        """
        self._passes = passes
        self._max_waiting = max_waiting_tokens
        self._pass_tokens = pass_tokens
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._pace = _FIRST_TOKENS_S
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting_tokens(self) -> int:
        """Tokens of texts that no pass has taken yet."""
        return self._waiting

    async def embed(self, texts: Sequence[str], lengths: Sequence[int]) -> list[Vector]:
        """The vectors `[dim]` of texts of so many tokens each, in their order. Cancelling the call drops the texts that
        no pass has taken.

        Raises:
            BulkFullError: too much waits.
        """
        tokens = sum(lengths)
        if self._waiting and self._waiting + tokens > self._max_waiting:
            excess = self._waiting + tokens - self._max_waiting
            raise BulkFullError(max(1, math.ceil(min(excess, self._waiting) / self._pace)))
        if not texts:
            return []
        job = _Job(texts, lengths, asyncio.get_running_loop().create_future(), [None] * len(texts))
        self._jobs.append(job)
        self._waiting += tokens
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="embed texts")
        try:
            await job.done
        finally:
            self._drop(job)
        return [vector for vector in job.vectors if vector is not None]

    async def close(self) -> None:
        """End the work; requests that wait fail."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        for job in list(self._jobs):
            job.done.cancel()

    async def _work(self) -> None:
        while batch := self._next_pass():
            began = self._clock()
            try:
                vectors = await self._passes.passages([job.texts[at] for job, at in batch])
            except Exception as error:
                for job, _ in batch:
                    if not job.done.done():
                        job.done.set_exception(error)
                    self._drop(job)
                continue
            took = self._clock() - began
            if took > 0:
                self._pace += _WEIGHT * (sum(job.lengths[at] for job, at in batch) / took - self._pace)
            for (job, at), vector in zip(batch, vectors, strict=True):
                job.vectors[at] = vector
                job.computed += 1
                if job.computed == len(job.texts) and not job.done.done():
                    job.done.set_result(None)

    def _next_pass(self) -> list[tuple[_Job, int]]:
        """One text of each request in turn, until the pass is full."""
        batch: list[tuple[_Job, int]] = []
        room = self._pass_tokens
        while self._jobs:
            job = self._jobs[0]
            length = job.lengths[job.next]
            if batch and length > room:
                break
            self._jobs.popleft()
            batch.append((job, job.next))
            job.next += 1
            room -= length
            self._waiting -= length
            if job.next < len(job.texts):
                self._jobs.append(job)
        return batch

    def _drop(self, job: _Job) -> None:
        """Take what is left of a request out of the queue."""
        if job in self._jobs:
            self._jobs.remove(job)
            self._waiting -= sum(job.lengths[job.next :])
