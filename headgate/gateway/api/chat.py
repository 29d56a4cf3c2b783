"""`POST /v1/chat/completions`."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.content_log import heard
from headgate.gateway.api.dropped_fields import note_dropped, takes_unknown
from headgate.gateway.api.reply import identify, send
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.middleware import read_body
from headgate.gateway.wire.chat import parse_chat, parse_open_chat
from headgate.gateway.wire.chat_reply import ChatReply
from headgate.gateway.wire.errors import ApiError, renamed

_NEWER = {"max_tokens": "max_completion_tokens"}


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """Answer a conversation."""
    principal, record = http[keys.PRINCIPAL], http[keys.RECORD]
    parse = parse_open_chat if takes_unknown(http) else parse_chat
    body = await read_body(http)
    reading = await aside(body, partial(http.app[keys.READINGS].read, body, http.headers, principal, parse))
    request = reading.request
    record.stream = request.stream
    backend = await keys.backend(http)
    try:
        async with backend.road.answer(request, principal, record, reading) as answer:
            note_dropped(http, request, answer.opened.model)
            reply = ChatReply(identify("chatcmpl-", answer.opened, record), request)
            with heard(http, answer, [request]) as source:
                return await send(http, source, reply, request, request.n)
    except ApiError as error:
        # One thing with two names: it is called as the client calls it.
        raise renamed(error, _NEWER if b'"max_completion_tokens"' in body else {}) from None
