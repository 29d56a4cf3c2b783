"""From an answer to an HTTP reply: whole, or streamed as server-sent events."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.direct import chunked_reply, whole_reply
from headgate.gateway.middleware import CLIENT_LEFT, logger
from headgate.gateway.road.destinations import Outcome
from headgate.gateway.road.events import Opened
from headgate.gateway.road.request import ChatRequest, Choice, Chunk, Joiner, Usage
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire import headers, sse
from headgate.gateway.wire.errors import ApiError, server_error
from headgate.gateway.wire.identity import Identity


class Reply(Protocol):
    """How a protocol writes an answer."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a reply that is not streamed."""
        ...

    def opening(self, indices: Sequence[int]) -> list[bytes]:
        """What comes before the first text."""
        ...

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """One piece of one choice, as events; there may be none."""
        ...

    def usage(self, usage: Usage) -> bytes:
        """The account at the end of a stream."""
        ...


class Source(Protocol):
    """An answer as this module reads it: see `events.Answer`."""

    @property
    def opened(self) -> Opened:
        """What was decided at once."""
        ...

    @property
    def opened_at(self) -> float:
        """When a model was asked, or an answer found, in monotonic seconds."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more. May be true together with the last chunks."""
        ...

    @property
    def outcome(self) -> Outcome:
        """The account, at the end."""
        ...

    async def next_batch(self) -> list[Chunk]:
        """The chunks there are; empty at the end."""
        ...

    def at_hand(self) -> Sequence[Choice] | None:
        """All of it, where it is there already; None where it has to be read bit by bit."""
        ...


def identify(prefix: str, opened: Opened, record: RequestRecord) -> Identity:
    """A fresh id that begins with `prefix` for the reply to one request, which its record learns."""
    record.reply_id = f"{prefix}{random.getrandbits(96):024x}"
    return Identity(record.reply_id, int(time.time()), opened.model, opened.fingerprint)


async def send(
    http: web.Request,
    source: Source,
    reply: Reply,
    request: ChatRequest,
    choices: int,
    framing: sse.Framing = sse.OPENAI,
) -> web.StreamResponse:
    """The answer of so many choices, whole or as it is made, as the request has it."""
    if not request.stream:
        return await _whole(http, source, reply)
    keep_alive_s = http.app[keys.SETTINGS].server.keep_alive_s
    return await streamed(
        http,
        source,
        reply,
        range(choices),
        include_usage=request.include_usage,
        keep_alive_s=keep_alive_s,
        framing=framing,
    )


async def _whole(http: web.Request, source: Source, reply: Reply) -> web.StreamResponse:
    """Join the answer and send it at once."""
    record = http[keys.RECORD]
    choices = source.at_hand()
    if choices is None:
        joiner = Joiner()
        while batch := await source.next_batch():
            _note_first_token(record)
            for chunk in batch:
                joiner.add(chunk)
        choices = joiner.choices()
    else:
        _note_first_token(record)
    outcome = source.outcome
    note_outcome(record, outcome)
    own = _headers(record, source)
    own[headers.QUEUE_MS] = _ms(outcome.queue_s)
    own[headers.COST_USD] = record.cost.usd
    return whole_reply(http, reply.whole(choices, outcome.usage), own)


async def streamed(
    http: web.Request,
    source: Source,
    reply: Reply,
    indices: Sequence[int],
    *,
    include_usage: bool,
    keep_alive_s: float,
    framing: sse.Framing = sse.OPENAI,
) -> web.StreamResponse:
    """Send the answer as it is made. What fails before anything was sent still gets its own status."""
    record = http[keys.RECORD]
    response = chunked_reply(http, {**sse.HEADERS, **_headers(record, source)})
    payloads = reply.opening(indices)
    silence = _Silence(http, response, payloads, framing, keep_alive_s)
    try:
        while True:
            silence.begin()
            batch = await source.next_batch()
            silence.end()
            if batch:
                _note_first_token(record)
                if not response.prepared:
                    response.headers[headers.QUEUE_MS] = _ms(batch[0].queue_s)
                payloads.extend([event for chunk in batch for event in reply.chunk(chunk)])
            if not response.prepared:
                await response.prepare(http)
            if not batch or source.ended:
                break
            if payloads:
                await response.write(framing.frames(payloads))
                payloads.clear()
        note_outcome(record, source.outcome)
        if include_usage:
            payloads.append(reply.usage(source.outcome.usage))
        # The last text, the account and the end of the body are one write.
        await response.write_eof(framing.frames(payloads) + sse.comment(_cost(record)) + framing.done)
        return response
    except ConnectionResetError:
        record.status = CLIENT_LEFT
        return response
    except ApiError as error:
        if not response.prepared:
            raise
        await _break_off(http, response, framing, error)
    except Exception:
        if not response.prepared:
            raise
        logger.exception("stream %s failed", record.request_id)
        await _break_off(http, response, framing, server_error())
    finally:
        silence.close()
    await response.write_eof()
    return response


class _Silence:
    """While nothing comes, tells the client every so often that somebody is there, after what is due to be sent.

    One timer per stream, which looks at the clock when it fires, instead of one per wait.
    """

    def __init__(
        self,
        http: web.Request,
        response: web.StreamResponse,
        payloads: list[bytes],
        framing: sse.Framing,
        longest_s: float,
    ) -> None:
        self._http = http
        self._response = response
        self._payloads = payloads
        self._framing = framing
        self._longest_s = longest_s
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # the wait that goes on now, or its last comment, began then
        self._telling: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(longest_s, self._look)

    def begin(self) -> None:
        """Nothing is there to be sent."""
        self._since = self._loop.time()

    def end(self) -> None:
        """From now on the stream is written by somebody else."""
        self._since = None

    def close(self) -> None:
        """Look no more."""
        self.end()
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        due = now + self._longest_s if self._since is None else self._since + self._longest_s
        if due <= now:
            # A comment that is not out yet, because the client reads nothing, is not followed by another.
            if self._telling is None or self._telling.done():
                self._telling = self._loop.create_task(self._tell())
            self._since = now
            due = now + self._longest_s
        self._timer = self._loop.call_at(due, self._look)

    async def _tell(self) -> None:
        # A client that has left ends the handler; there is nobody else to be told of it.
        with suppress(ConnectionResetError):
            if self._since is not None:
                await self._response.prepare(self._http)
            if self._since is not None:
                due = self._framing.frames(self._payloads)
                self._payloads.clear()
                await self._response.write(due + self._framing.alive)


async def _break_off(http: web.Request, response: web.StreamResponse, framing: sse.Framing, error: ApiError) -> None:
    """The head is out with status 200: say it in the stream and end without a finish, so that clients raise."""
    record = http[keys.RECORD]
    record.status, record.error = error.status, error.code
    await response.write(framing.error(error))


def _headers(record: RequestRecord, source: Source) -> dict[str, str]:
    opened = source.opened
    fields = {
        headers.CACHE: opened.verdict,
        headers.MODEL: opened.model,
        headers.ROUTE: opened.reason,
        headers.OVERHEAD_MS: _ms(source.opened_at - record.arrived),
    }
    if opened.age_s is not None:
        fields[headers.COST_USD] = "0"
    if opened.similarity is not None:
        fields[headers.SIMILARITY] = f"{opened.similarity:.4f}"
    if opened.key is not None:
        fields[headers.CACHE_KEY] = opened.key
    if opened.age_s is not None:
        fields[headers.AGE] = str(int(opened.age_s))
    if opened.bound is not None:
        fields[headers.BOUND] = f"{opened.bound:.6g}"
    return fields


def _cost(record: RequestRecord) -> str:
    """The headers of a stream are out before it is known what it costs: a comment at its end says so."""
    return f"{headers.COST_USD}: {record.cost.usd}"


def _note_first_token(record: RequestRecord) -> None:
    if record.first_token_s is None:
        record.first_token_s = time.monotonic() - record.arrived


def note_outcome(record: RequestRecord, outcome: Outcome) -> None:
    """What an answer's account says, for the request's line in the log."""
    record.prompt_tokens = outcome.usage.prompt_tokens
    record.completion_tokens = outcome.usage.completion_tokens
    record.cached_tokens = outcome.usage.cached_tokens
    record.reasoning_tokens = outcome.usage.reasoning_tokens
    record.queue_s = outcome.queue_s


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
