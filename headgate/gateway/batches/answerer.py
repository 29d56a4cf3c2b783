"""A line of a batch on the road that every request takes, as work that nobody waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from headgate.gateway.api.completions import continued
from headgate.gateway.api.content_log import listened
from headgate.gateway.api.embeddings import embedded
from headgate.gateway.api.reply import Reply, Source, identify, note_outcome
from headgate.gateway.backend import Loader
from headgate.gateway.batches.catalog import Batch
from headgate.gateway.batches.run import BatchFailed
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.road.request import CacheControl, ChatRequest, Joiner
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire import headers
from headgate.gateway.wire.batches import LineResponse, refused
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.chat_reply import ChatReply
from headgate.gateway.wire.completions import CompletionReply, parse_completion
from headgate.gateway.wire.errors import ApiError, server_error, unsupported

logger = logging.getLogger("headgate.gateway")

_EMBEDDINGS_WAIT_S = 60.0
"""How long the embedding model may take to load before a line is asked again later."""

Who = Callable[[str, str | None], Principal | None]
"""The principal of a team and a key's id as of now; None where there is no such key any more."""


class Answerer:
    """Answers lines, one at a time for each call."""

    def __init__(
        self, loader: Loader, lifecycle: Lifecycle, metrics: Metrics, who: Who, ended: Callable[[RequestRecord], None]
    ) -> None:
        """`ended` is told of every line that was answered or refused."""
        self._loader = loader
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._who = who
        self._ended = ended

    async def __call__(self, endpoint: str, body: bytes, batch: Batch) -> LineResponse:
        """The reply to a line's body, errors included.

        ApiError where it is to be asked again later; BatchFailed where nobody may ask any more.
        """
        await self._lifecycle.wait_until_ready()
        principal = self._who(batch.team, batch.key_id)
        if principal is None:
            raise BatchFailed("invalid_api_key", f"The key '{batch.key_id}' that made the batch is not valid any more.")
        began = time.monotonic()
        record = RequestRecord(headers.request_id(None), endpoint, batch.team, batch.key_id, arrived=began)
        try:
            reply = await self._reply(endpoint, body, principal, record)
            record.status = 200
        except ApiError as error:
            if _later(error):
                raise
            record.status, record.error = error.status, error.code
            return refused(error, record.request_id)
        except Exception:
            logger.exception("request %s of batch %s failed", record.request_id, batch.body.id)
            record.status = 500
            return refused(server_error(), record.request_id)
        finally:
            record.total_s = time.monotonic() - began
            if record.status:
                self._ended(record)
        return LineResponse(200, record.request_id, msgspec.Raw(reply))

    async def _reply(self, endpoint: str, body: bytes, principal: Principal, record: RequestRecord) -> bytes:
        if endpoint == "/v1/embeddings":
            return await embedded(
                body, self._loader, self._metrics, principal, record, _EMBEDDINGS_WAIT_S, "background"
            )
        road, drops = self._loader.backend.road, principal.policy.models.drop_params
        if endpoint == "/v1/chat/completions":
            read = partial(parse_chat, body, CacheControl(), take_unknown=drops)
            chat = _background(await aside(body, read))
            async with road.answer(chat, principal, record) as answer:
                chat_reply = ChatReply(identify("chatcmpl-", answer.opened, record), chat)
                with listened(principal, record, answer, [chat]) as source:
                    return await _whole(source, chat_reply, record)
        continuing = await aside(body, partial(parse_completion, body, CacheControl(), take_unknown=drops))
        requests = [_background(request) for request in continuing]
        async with continued(road, requests, principal, record) as texts:
            reply = CompletionReply(identify("cmpl-", texts.opened, record), requests[0])
            with listened(principal, record, texts, requests) as source:
                return await _whole(source, reply, record)


async def _whole(source: Source, reply: Reply, record: RequestRecord) -> bytes:
    joiner = Joiner()
    while chunks := await source.next_batch():
        for chunk in chunks:
            joiner.add(chunk)
    note_outcome(record, source.outcome)
    return reply.whole(joiner.choices(), source.outcome.usage)


def _background(request: ChatRequest) -> ChatRequest:
    if request.stream:
        raise unsupported(
            "stream", "'stream' is not supported in batches: a line's answer is written when it is whole."
        )
    return replace(request, priority="background")


def _later(error: ApiError) -> bool:
    """Whether it is the moment that is wrong, and not the request."""
    return error.status in (429, 503) and error.headers.get("x-should-retry") != "false"
