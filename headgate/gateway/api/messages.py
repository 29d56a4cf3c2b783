"""Anthropic's `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.content_log import heard
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.api.reply import identify, send
from headgate.gateway.edge.long_bodies import aside, in_turn
from headgate.gateway.local.tokenizing import reader
from headgate.gateway.middleware import read_body
from headgate.gateway.teams.system_prompts import prompted
from headgate.gateway.wire.anthropic.reply import MessagesReply, TokensCount
from headgate.gateway.wire.anthropic.request import parse_count, parse_messages
from headgate.gateway.wire.errors import ApiError, renamed
from headgate.gateway.wire.headers import cache_control, session

_OWN_NAMES = {
    "thinking_tokens": "thinking.budget_tokens",
    "response_format": "output_config.format",
    "response_format.json_schema.schema": "output_config.format.schema",
}
"""What this protocol calls parameters of chats."""


async def messages(http: web.Request) -> web.StreamResponse:
    """Answer a conversation."""
    body, told = await read_body(http), (cache_control(http.headers), session(http.headers))
    request = await aside(body, partial(parse_messages, body, *told))
    record = http[keys.RECORD]
    record.stream = request.stream
    backend = await keys.backend(http)
    try:
        async with backend.road.answer(request, http[keys.PRINCIPAL], record) as answer:
            reply = MessagesReply(identify("msg_", answer.opened, record))
            with heard(http, answer, [request]) as source:
                return await send(http, source, reply, request, 1, reply)
    except ApiError as error:
        # How much to think has two names: this one is for a model that cannot be kept from it.
        effort = "thinking" if request.reasoning_effort == "none" else "output_config.effort"
        raise renamed(error, {**_OWN_NAMES, "reasoning_effort": effort}) from None


async def count_tokens(http: web.Request) -> web.Response:
    """How many tokens a conversation has as the model would read it."""
    body = await read_body(http)
    request = await aside(body, partial(parse_count, body))
    destination = reader((await keys.backend(http)).routes, request.model, http[keys.PRINCIPAL])
    tokens = partial(destination.tokens, prompted(request, http[keys.PRINCIPAL]))
    return json_reply(TokensCount(len(await in_turn(http.app[keys.COUNTING], body, tokens))))
