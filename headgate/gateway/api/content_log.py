"""Writing what was said to the log, for teams that want it there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.reply import Source
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.events import Opened
from headgate.gateway.road.request import ChatRequest, Chunk
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.logs.content import Heard, asked_of, level_of, log_content, span_content
from headgate.gateway.telemetry.record import RequestRecord


class _Listened:
    """A source whose chunks are also heard."""

    def __init__(self, source: Source, heard: Heard) -> None:
        self._source = source
        self._heard = heard

    @property
    def opened(self) -> Opened:
        return self._source.opened

    @property
    def opened_at(self) -> float:
        return self._source.opened_at

    @property
    def ended(self) -> bool:
        return self._source.ended

    @property
    def outcome(self) -> Outcome:
        return self._source.outcome

    async def next_batch(self) -> list[Chunk]:
        batch = await self._source.next_batch()
        for chunk in batch:
            self._heard.add(chunk)
        return batch

    def at_hand(self) -> None:
        """It is heard bit by bit."""


def heard(http: web.Request, source: Source, asked: Sequence[ChatRequest]) -> AbstractContextManager[Source]:
    """As `listened`, for the request that is answered now."""
    return listened(http[keys.PRINCIPAL], http[keys.RECORD], source, asked)


def listened(
    principal: Principal, record: RequestRecord, source: Source, asked: Sequence[ChatRequest]
) -> AbstractContextManager[Source]:
    """The source to read from. When it is left, what was asked and answered so far is logged as the team has it."""
    level = level_of(principal)
    if level == "off" and record.trace is None:
        return nullcontext(source)
    return _heard(principal, record, source, asked)


@contextmanager
def _heard(
    principal: Principal, record: RequestRecord, source: Source, asked: Sequence[ChatRequest]
) -> Iterator[Source]:
    level, texts = level_of(principal), Heard()
    if record.trace is not None:
        record.trace.asked(asked[0])
    try:
        yield _Listened(source, texts)
    finally:
        if record.trace is not None:
            record.trace.answered(texts.finishes)
        log_content(record, principal, {"asked": asked_of(asked), "answers": texts.texts})
        if level != "off" and record.trace is not None:
            record.trace.said(span_content(asked, texts, redact=level == "redacted"))
