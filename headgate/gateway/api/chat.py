"""`POST /v1/chat/completions`."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.hearing import heard
from headgate.gateway.api.reply import identify, send
from headgate.gateway.middleware import read_body
from headgate.gateway.teams.entry import scheduled
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.chat_reply import ChatReply
from headgate.gateway.wire.headers import cache_control, session


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """Answer a conversation."""
    request = parse_chat(await read_body(http), cache_control(http.headers), session(http.headers))
    request = scheduled(request, http[keys.PRINCIPAL])
    record = http[keys.RECORD]
    record.stream = request.stream
    backend = await keys.backend(http)
    async with backend.road.answer(request, http[keys.PRINCIPAL], record) as answer:
        reply = ChatReply(identify("chatcmpl-", answer.opened), request)
        with heard(http, answer, [request]) as source:
            return await send(http, source, reply, request, request.n)
