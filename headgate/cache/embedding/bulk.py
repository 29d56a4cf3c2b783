"""Many texts to vectors, one class of requests after the other, beside the look-ups of the cache, which go first."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headgate.cache.embedding.sentence_model import Vector

_FIRST_TOKENS_S = 5000.0
"""Tokens a second, before any pass was timed."""
_WEIGHT = 0.2
"""Of the newest pass, in the mean of how fast they are."""


class Passes(Protocol):
    """What computes them."""

    async def passages(self, texts: Sequence[str]) -> tuple[list[Vector], float]:
        """The vectors of these texts, in one pass that waits for what others asked before, and the seconds it took."""
        ...


class BulkFullError(Exception):
    """More texts wait than may. `retry_after_s`: seconds until there is room, by how fast passes are."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"more texts wait to be embedded than may; there is room in about {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Spent:
    """What was computed for a request by now."""

    tokens: int = 0
    seconds: float = 0.0
    """Of the passes that its texts were in, its share by tokens."""


@dataclass(slots=True, eq=False)
class _Job:
    """The texts of one request, and how far they are."""

    texts: Sequence[str]
    lengths: Sequence[int]
    rank: int
    spent: Spent
    done: asyncio.Future[None]
    vectors: list[Vector | None] = field(default_factory=list)
    next: int = 0
    computed: int = 0


class Bulk:
    """Embeds the texts of requests, a small pass at a time, each with texts of as many requests as there are.

    A pass is put behind the look-ups that wait, and the next one is only put there when it has ended: whoever looks
    something up waits for one pass at most. A request of two thousand texts does not hold one of a single text up.

    A pass has texts of one class, the lowest rank that waits: so who comes while others of a higher one are worked off
    waits for the pass that runs, and for no other.
    """

    def __init__(
        self,
        passes: Passes,
        *,
        max_waiting_tokens: int,
        pass_tokens: int = 512,
    ) -> None:
        """Nothing waits yet.

        Args:
            passes: computes them.
            max_waiting_tokens: tokens of the texts that may wait, all requests of a class together. A request that
                finds none waiting is taken whatever it has.
            pass_tokens: tokens of a pass, unless a single text has more.
        """
        self._passes = passes
        self._max_waiting = max_waiting_tokens
        self._pass_tokens = pass_tokens
        self._jobs: dict[int, deque[_Job]] = {}
        self._waiting: Counter[int] = Counter()
        self._pace = _FIRST_TOKENS_S
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting_tokens(self) -> int:
        """Tokens of texts that no pass has taken yet."""
        return self._waiting.total()

    def seconds(self, tokens: int) -> float:
        """About what so many tokens take, by how fast passes were."""
        return tokens / self._pace

    def queue_s(self, rank: int) -> float:
        """About how long a request of a rank waits for its first pass, but for the one that runs."""
        return self.seconds(sum(tokens for of, tokens in self._waiting.items() if of <= rank))

    async def embed(
        self, texts: Sequence[str], lengths: Sequence[int], rank: int = 0, spent: Spent | None = None
    ) -> list[Vector]:
        """The vectors `[dim]` of texts of so many tokens each, in their order. Cancelling the call drops the texts that
        no pass has taken.

        Args:
            texts: what is read.
            lengths: the tokens of each.
            rank: the request's class; lower ones go first.
            spent: learns what was computed.

        Raises:
            BulkFullError: too much of its class waits.
        """
        tokens, waiting = sum(lengths), self._waiting[rank]
        if waiting and waiting + tokens > self._max_waiting:
            excess = waiting + tokens - self._max_waiting
            raise BulkFullError(max(1, math.ceil(self.seconds(min(excess, waiting)))))
        if not texts:
            return []
        spent = Spent() if spent is None else spent
        done = asyncio.get_running_loop().create_future()
        job = _Job(texts, lengths, rank, spent, done, [None] * len(texts))
        self._jobs.setdefault(rank, deque()).append(job)
        self._waiting[rank] += tokens
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
        for jobs in self._jobs.values():
            for job in jobs:
                job.done.cancel()

    async def _work(self) -> None:
        while batch := self._next_pass():
            try:
                vectors, took = await self._passes.passages([job.texts[at] for job, at in batch])
            except Exception as error:
                for job, _ in batch:
                    if not job.done.done():
                        job.done.set_exception(error)
                    self._drop(job)
                continue
            tokens = sum(job.lengths[at] for job, at in batch)
            if took > 0:
                self._pace += _WEIGHT * (tokens / took - self._pace)
            for (job, at), vector in zip(batch, vectors, strict=True):
                job.spent.tokens += job.lengths[at]
                job.spent.seconds += took * job.lengths[at] / tokens
                job.vectors[at] = vector
                job.computed += 1
                if job.computed == len(job.texts) and not job.done.done():
                    job.done.set_result(None)

    def _next_pass(self) -> list[tuple[_Job, int]]:
        """One text of each request in turn, until the pass is full."""
        batch: list[tuple[_Job, int]] = []
        room, rank = self._pass_tokens, min((rank for rank, jobs in self._jobs.items() if jobs), default=0)
        jobs = self._jobs.get(rank)
        while jobs:
            job = jobs[0]
            length = job.lengths[job.next]
            if batch and length > room:
                break
            jobs.popleft()
            batch.append((job, job.next))
            job.next += 1
            room -= length
            self._waiting[rank] -= length
            if job.next < len(job.texts):
                jobs.append(job)
        return batch

    def _drop(self, job: _Job) -> None:
        """Take what is left of a request out of the queue."""
        jobs = self._jobs[job.rank]
        if job in jobs:
            jobs.remove(job)
            self._waiting[job.rank] -= sum(job.lengths[job.next :])
