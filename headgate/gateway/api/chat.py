"""`POST /v1/chat/completions`."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.reply import identify, streamed, whole
from headgate.gateway.middleware import read_body
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.chat_reply import ChatReply
from headgate.gateway.wire.headers import cache_control


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """Answer a conversation."""
    request = parse_chat(await read_body(http), cache_control(http.headers))
    record = http[keys.RECORD]
    record.stream = request.stream
    backend = await keys.backend(http)
    async with backend.road.answer(request, http[keys.PRINCIPAL], record) as answer:
        reply = ChatReply(identify("chatcmpl", answer.opened), request)
        if not request.stream:
            return await whole(http, answer, reply)
        return await streamed(
            http,
            answer,
            reply,
            range(request.n),
            include_usage=request.include_usage,
            keep_alive_s=http.app[keys.SETTINGS].server.keep_alive_s,
        )
