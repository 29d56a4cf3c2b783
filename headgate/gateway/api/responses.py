"""OpenAI's `/v1/responses`: answer, now or in the background, read again, cancel, forget."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec
from aiohttp import web
from msgspec import structs

from headgate.cache.store.base import StoreDownError
from headgate.gateway import keys
from headgate.gateway.api.content_log import heard, listened
from headgate.gateway.api.reply import identify, note_outcome, send
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.middleware import CLIENT_LEFT, read_body
from headgate.gateway.responses.background import BackgroundResponses, Making
from headgate.gateway.responses.stored import StoredResponse
from headgate.gateway.teams.overrides import scheduled
from headgate.gateway.telemetry.record import CURRENT, RequestRecord
from headgate.gateway.wire import sse
from headgate.gateway.wire.errors import ApiError, invalid, overloaded, renamed, unsupported
from headgate.gateway.wire.headers import cache_control, request_id, session
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.query import read_query
from headgate.gateway.wire.responses.body import DeletedResponse
from headgate.gateway.wire.responses.items import ResponseItem
from headgate.gateway.wire.responses.reply import ResponsesReply
from headgate.gateway.wire.responses.request import ResponsesRequest, ToRespond, read_responses, to_respond
from headgate.gateway.wire.responses.stored import list_items, read_response

_OWN_NAMES = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
}
"""What this protocol calls parameters of chats."""
_REFUSED_S = 0.25
"""How long the reply to a background request waits: what is refused is so at once, as a rule, and by its own status."""
_ITEMS = msgspec.json.Decoder(list[ResponseItem])


class _Said(msgspec.Struct):
    """What a stored body says, of which a conversation goes on."""

    status: str
    output: list[ResponseItem]


_SAID = msgspec.json.Decoder(_Said)


async def create(http: web.Request) -> web.StreamResponse:
    """Answer."""
    stored, principal = http.app[keys.RESPONSES], http[keys.PRINCIPAL]
    body, told = await read_body(http), (cache_control(http.headers), session(http.headers))
    wire = await aside(body, partial(read_responses, body))
    before = await _before(http, wire)
    asked = await aside(body, partial(to_respond, wire, *told, before))
    asked = replace(asked, request=scheduled(asked.request, principal))
    for name in ("store", "background"):
        if getattr(wire, name) and not stored.enabled:
            raise unsupported(name, f"'{name}' is switched off on this server (responses.ttl_s is 0). Leave it out.")
    record = http[keys.RECORD]
    record.stream = asked.request.stream
    backend = await keys.backend(http)
    kept, items = stored.enabled and wire.store is not False, msgspec.json.encode(asked.items)
    try:
        if wire.background:
            return await _in_background(http, asked, items)
        async with backend.road.answer(asked.request, principal, record) as answer:
            who = identify("resp_", answer.opened, record)

            def keep(body: bytes) -> None:
                stored.keep(principal.team, who.id, StoredResponse(body, items))

            reply = ResponsesReply(who, asked, stored=kept, keep=keep)
            with heard(http, answer, [asked.request]) as source:
                return await send(http, source, reply, asked.request, 1, reply)
    except ApiError as error:
        raise renamed(error, _OWN_NAMES) from None


async def get(http: web.Request) -> web.StreamResponse:
    """A response that was stored, as it stands, or its events."""
    asked, name, team = read_response(http.query), http.match_info["response_id"], http[keys.PRINCIPAL].team
    if asked.stream and (making := http.app[keys.BACKGROUND].making(team, name)) is not None and making.stream:
        return await _follow(http, making, asked.starting_after + 1)
    found = await _found(http, name)
    if not asked.stream:
        return _json(found.body)
    if not found.events:
        message = (
            "'stream' is only allowed for a response that is made here, or was made, with 'background' and 'stream'."
        )
        raise invalid(message, "stream", "invalid_value")
    return web.Response(body=b"".join(found.events[asked.starting_after + 1 :]), headers=sse.HEADERS)


async def input_items(http: web.Request) -> web.Response:
    """The conversation that a stored response answered."""
    found = await _found(http, http.match_info["response_id"])
    return _json(msgspec.json.encode(list_items(_ITEMS.decode(found.items), http.query)))


async def cancel(http: web.Request) -> web.Response:
    """Make a background response no further."""
    read_query(http.query, ())
    name = http.match_info["response_id"]
    try:
        found = await http.app[keys.BACKGROUND].cancel(http[keys.PRINCIPAL].team, name)
    except StoreDownError:
        raise _away() from None
    except ValueError:
        message = f"The response '{name}' cannot be cancelled: it was not made with 'background' at true."
        raise invalid(message, "response_id", "invalid_value") from None
    if found is None:
        raise _absent(name, "response_id")
    return _json(found.body)


async def delete(http: web.Request) -> web.Response:
    """Forget a response."""
    read_query(http.query, ())
    name = http.match_info["response_id"]
    try:
        deleted = await http.app[keys.BACKGROUND].delete(http[keys.PRINCIPAL].team, name)
    except StoreDownError:
        raise _away() from None
    if not deleted:
        raise _absent(name, "response_id")
    return _json(msgspec.json.encode(DeletedResponse(name)))


async def running(app: web.Application) -> AsyncIterator[None]:
    """Make responses in the background from the start of the server to its end."""

    def ended(record: RequestRecord) -> None:
        app[keys.METRICS].finished(record)
        if keys.TRACES in app:
            app[keys.TRACES].ended(record)
        if record.trace is not None:
            record.trace.end(record)
        app[keys.ACCESS].write(record)
        who = app[keys.TEAMS].named(record.team, record.key_id)
        if record.reply_id and who is not None and (feedback := app[keys.FEEDBACK]) is not None:
            feedback.given(record, who)

    background = app[keys.BACKGROUND] = BackgroundResponses(app[keys.RESPONSES], app[keys.LIFECYCLE], ended)
    background.start()
    yield
    await background.close()
    await app[keys.RESPONSES].close()


async def _in_background(http: web.Request, asked: ToRespond, items: bytes) -> web.StreamResponse:
    """Begin to make it; the reply is how it stands then, or its events."""
    principal, background, now = http[keys.PRINCIPAL], http.app[keys.BACKGROUND], http[keys.RECORD]
    record = RequestRecord(
        request_id(None), f"{now.endpoint} (background)", principal.team, principal.key_id,
        config=now.config, arrived=time.monotonic(), retry=now.retry, stream=now.stream,
        trace=None if now.trace is None else now.trace.goes_on(),
    )  # fmt: skip
    if keys.TRACES in http.app:
        http.app[keys.TRACES].begun(record)
    road = (await keys.backend(http)).road
    queued = Identity(f"resp_{record.request_id.removeprefix('req_')}", int(time.time()), asked.request.model, "")

    async def make(making: Making) -> AsyncIterator[Sequence[bytes]]:
        reply = making.reply
        CURRENT.set(record)  # in the task that makes it
        async with road.answer(asked.request, principal, record) as answer:
            record.reply_id = making.id
            reply.answered_by(structs.replace(queued, model=answer.opened.model))
            yield reply.opening(range(1))
            with listened(principal, record, answer, [asked.request]) as source:
                while batch := await source.next_batch():
                    yield [event for chunk in batch for event in reply.chunk(chunk)]
            note_outcome(record, answer.outcome)
            yield [reply.usage(answer.outcome.usage)]

    reply = ResponsesReply(queued, asked, stored=True, keep=lambda body: making.become(body))
    making = Making(principal.team, queued.id, reply, items, stream=asked.request.stream)
    background.begin(making, make, record)
    await making.begun(None if asked.request.stream else _REFUSED_S)
    if making.error is not None and not making.events:
        with suppress(StoreDownError):
            await background.delete(making.team, making.id)
        raise making.error
    return await _follow(http, making, 0) if asked.request.stream else _json(making.body)


async def _follow(http: web.Request, making: Making, at: int) -> web.StreamResponse:
    """The events of a response that is being made, from a number on. Who leaves does not end it."""
    response = web.StreamResponse(headers=sse.HEADERS)
    await response.prepare(http)
    silence_s = http.app[keys.SETTINGS].server.keep_alive_s
    try:
        while True:
            events, ended = making.events[at:], making.ended
            at = max(at, len(making.events))
            if events:
                await response.write(b"".join(events))
            if ended:
                break
            if at == len(making.events) and not making.ended and not await making.changed(silence_s):
                await response.write(sse.KEEP_ALIVE)
        await response.write_eof()
    except ConnectionResetError:
        http[keys.RECORD].status = CLIENT_LEFT
    return response


async def _before(http: web.Request, wire: ResponsesRequest) -> tuple[ResponseItem, ...]:
    """The conversation up to and with the response that a request goes on from."""
    name = wire.previous_response_id
    if name is None:
        return ()
    found = await _found(http, name, "previous_response_id")
    said = _SAID.decode(found.body)
    if said.status not in ("completed", "incomplete"):
        message = f"The response '{name[:80]}' has no answer to go on from: it is {said.status}."
        raise invalid(message, "previous_response_id", "invalid_value")
    return (*_ITEMS.decode(found.items), *said.output)


async def _found(http: web.Request, name: str, param: str = "response_id") -> StoredResponse:
    try:
        found = await http.app[keys.BACKGROUND].get(http[keys.PRINCIPAL].team, name)
    except StoreDownError:
        raise _away() from None
    if found is None:
        raise _absent(name, param)
    return found


def _absent(name: str, param: str) -> ApiError:
    status, code = (400, "previous_response_not_found") if param == "previous_response_id" else (404, "not_found")
    message = f"There is no response '{name[:80]}': it was not stored, is no longer, or is another team's."
    return ApiError(status, message, param=param, code=code)


def _away() -> ApiError:
    return overloaded("Stored responses cannot be looked up now: Redis does not answer.")


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
