"""OpenAI's `/v1/responses`: answer, read again, forget."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.hearing import heard
from headgate.gateway.api.reply import identify, send
from headgate.gateway.middleware import read_body
from headgate.gateway.request import Message
from headgate.gateway.stored_responses import StoredResponse
from headgate.gateway.teams.entry import scheduled
from headgate.gateway.wire.errors import ApiError, renamed, unsupported
from headgate.gateway.wire.headers import cache_control, session
from headgate.gateway.wire.responses import parse_responses
from headgate.gateway.wire.responses_body import DeletedResponse
from headgate.gateway.wire.responses_reply import ResponsesReply

_OWN_NAMES = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
}
"""What this protocol calls parameters of chats."""


async def create(http: web.Request) -> web.StreamResponse:
    """Answer."""
    stored, team = http.app[keys.RESPONSES], http[keys.PRINCIPAL].team

    def earlier(response_id: str) -> tuple[Message, ...]:
        found = stored.get(team, response_id)
        if found is None:
            raise _absent(response_id, "previous_response_id")
        return found.turns

    def keep(response_id: str, body: bytes, turns: tuple[Message, ...]) -> None:
        stored.keep(team, response_id, StoredResponse(body, turns))

    asked = parse_responses(await read_body(http), cache_control(http.headers), session(http.headers), earlier)
    asked = replace(asked, request=scheduled(asked.request, http[keys.PRINCIPAL]))
    if asked.wire.store and not stored.enabled:
        raise unsupported("store", "'store' is switched off on this server (responses.ttl_s is 0). Leave it out.")
    record = http[keys.RECORD]
    record.stream = asked.request.stream
    backend = await keys.backend(http)
    kept = stored.enabled and asked.wire.store is not False
    try:
        async with backend.road.answer(asked.request, http[keys.PRINCIPAL], record) as answer:
            reply = ResponsesReply(identify("resp_", answer.opened, record), asked, stored=kept, keep=keep)
            with heard(http, answer, [asked.request]) as source:
                return await send(http, source, reply, asked.request, 1, reply)
    except ApiError as error:
        raise renamed(error, _OWN_NAMES) from None


async def get(http: web.Request) -> web.Response:
    """A response that was stored."""
    for name in http.query:
        raise unsupported(name, f"'{name}' is not supported here. Leave it out.")
    name = http.match_info["response_id"]
    found = http.app[keys.RESPONSES].get(http[keys.PRINCIPAL].team, name)
    if found is None:
        raise _absent(name, "response_id")
    return web.Response(body=found.body, content_type="application/json")


async def delete(http: web.Request) -> web.Response:
    """Forget a response."""
    name = http.match_info["response_id"]
    if not http.app[keys.RESPONSES].delete(http[keys.PRINCIPAL].team, name):
        raise _absent(name, "response_id")
    return web.Response(body=msgspec.json.encode(DeletedResponse(name)), content_type="application/json")


def _absent(name: str, param: str) -> ApiError:
    status, code = (400, "previous_response_not_found") if param == "previous_response_id" else (404, "not_found")
    message = f"There is no response '{name[:80]}': it was not stored, is no longer, or is another team's."
    return ApiError(status, message, param=param, code=code)
