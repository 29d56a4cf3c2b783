"""`POST /v1/completions`: one prompt or several, each a request of its own on the road."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.content_log import heard
from headgate.gateway.api.dropped_fields import note_dropped, takes_unknown
from headgate.gateway.api.reply import Source, identify, send
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.middleware import read_body
from headgate.gateway.pipeline import Road
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.events import Answer, Opened
from headgate.gateway.road.request import ChatRequest, Chunk, Usage
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.completions import CompletionReply, parse_completion
from headgate.gateway.wire.headers import cache_control, session

_LEAST_FIRST = ("bypass", "miss", "near", "semantic", "exact")


class Batch:
    """The answers to several prompts as one source: choices are numbered through, accounts are added up."""

    def __init__(self, answers: list[Answer], n: int) -> None:
        self._answers = answers
        self._n = n
        self._queue: asyncio.Queue[list[Chunk] | BaseException] = asyncio.Queue()
        self._running = len(answers)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def opened(self) -> Opened:
        """That of the answer for which the cache did least: the reply is no hit unless all of them are."""
        return min((a.opened for a in self._answers), key=lambda opened: _LEAST_FIRST.index(opened.verdict))

    @property
    def opened_at(self) -> float:
        """When the last was decided."""
        return max(a.opened_at for a in self._answers)

    @property
    def ended(self) -> bool:
        """Whether all of them have, and everything they said was taken."""
        return not self._running

    @property
    def outcome(self) -> Outcome:
        """The sum of the accounts; the longest queue."""
        parts = [a.outcome for a in self._answers]
        usage = Usage(
            sum(p.usage.prompt_tokens for p in parts),
            sum(p.usage.completion_tokens for p in parts),
            sum(p.usage.cached_tokens for p in parts),
            sum(p.usage.rejected_tokens for p in parts),
            sum(p.usage.reasoning_tokens for p in parts),
            sum(p.usage.drafted_tokens for p in parts),
            sum(p.usage.misdrafted_tokens for p in parts),
        )
        return Outcome(usage, max(p.queue_s for p in parts), sum(p.device_s for p in parts))

    async def __aenter__(self) -> Batch:
        self._tasks = [asyncio.create_task(self._forward(i, a)) for i, a in enumerate(self._answers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def at_hand(self) -> None:
        """It is read bit by bit: which answer is there first is not known."""

    async def next_batch(self) -> list[Chunk]:
        """Chunks of any of the answers; empty once all have ended."""
        while self._running:
            item = await self._queue.get()
            if isinstance(item, BaseException):
                raise item
            if item:
                return item
            self._running -= 1
        return []

    async def _forward(self, position: int, answer: Answer) -> None:
        try:
            while batch := await answer.next_batch():
                self._queue.put_nowait([replace(c, index=position * self._n + c.index) for c in batch])
            self._queue.put_nowait([])
        except Exception as error:
            self._queue.put_nowait(error)


@asynccontextmanager
async def continued(
    road: Road, requests: Sequence[ChatRequest], principal: Principal, record: RequestRecord
) -> AsyncIterator[Source]:
    """The answer to a body's prompts, each of which is a request of its own on the road."""
    async with AsyncExitStack() as stack:
        answers = [
            await stack.enter_async_context(road.answer(request, principal, record, place=place))
            for place, request in enumerate(requests)
        ]
        yield answers[0] if len(answers) == 1 else await stack.enter_async_context(Batch(answers, requests[0].n))


async def completions(http: web.Request) -> web.StreamResponse:
    """Continue texts."""
    open_ = takes_unknown(http)
    body = await read_body(http)
    told = cache_control(http.headers), session(http.headers)
    requests = await aside(body, partial(parse_completion, body, *told, take_unknown=open_))
    record = http[keys.RECORD]
    first = requests[0]
    record.stream = first.stream
    async with continued((await keys.backend(http)).road, requests, http[keys.PRINCIPAL], record) as answer:
        note_dropped(http, first, answer.opened.model)
        reply = CompletionReply(identify("cmpl-", answer.opened, record), first)
        with heard(http, answer, requests) as source:
            return await send(http, source, reply, first, first.n * len(requests))
