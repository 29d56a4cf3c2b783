"""From a request that an upstream serves as it is to the upstream's answer, in one piece or as it comes."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from functools import partial

import msgspec
from aiohttp import HttpVersion11, web

from headgate.gateway import keys
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.middleware import CLIENT_LEFT, read_body
from headgate.gateway.road.passthrough import PassedOn
from headgate.gateway.teams.retries import retry_of
from headgate.gateway.telemetry.logs.content import level_of, log_content, without_data
from headgate.gateway.upstream.endpoints import EVENTS, Endpoint
from headgate.gateway.wire import headers, sse
from headgate.gateway.wire.errors import ApiError, invalid
from headgate.gateway.wire.forms import FORM
from headgate.gateway.wire.passthrough import read_passed

_EVENT_ENDS = (b"\n\n", b"\n\r\n")


async def pass_on(http: web.Request, endpoint: Endpoint) -> web.StreamResponse:
    """Have the upstream answer that the request names."""
    if endpoint.form and http.content_type != FORM:
        message = f"Unsupported content type '{http.content_type}'. Send '{FORM}'."
        raise ApiError(415, message, code="unsupported_media_type")
    return await passed_on(http, endpoint, await read_body(http))


async def passed_on(
    http: web.Request, endpoint: Endpoint, body: bytes, others: tuple[str, ...] = ()
) -> web.StreamResponse:
    """The same for a body that was read. `others` are models that serve it in this process."""
    principal, record = http[keys.PRINCIPAL], http[keys.RECORD]
    wanted = await aside(body, partial(read_passed, endpoint, http.headers.get("Content-Type", ""), body))
    if (form := wanted.form) is not None:
        record.retry = retry_of(http.headers, form)
    passing = (await keys.backend(http)).passing
    passer = passing.find(endpoint, wanted.model, principal, others)
    if not endpoint.form and level_of(principal) != "off":
        try:
            log_content(record, principal, {"asked": without_data(msgspec.json.decode(body))})
        except RecursionError:
            raise invalid("The request body is nested too deeply.", code="invalid_json") from None
    async with passing.answer(passer, endpoint, wanted, principal, record) as answer:
        own = {
            "Content-Type": answer.kind,
            headers.MODEL: record.model,
            headers.ROUTE: record.route,
            headers.OVERHEAD_MS: f"{(record.opened_s or 0.0) * 1e3:.1f}",
        }
        if answer.whole is not None:
            own[headers.COST_USD] = record.cost.usd
            return web.Response(body=answer.whole, headers=own)
        # What is whole has no first piece: how long it took to make would look like a wait.
        record.first_token_s = time.monotonic() - record.arrived
        return await _streamed(http, answer, own)


async def _streamed(http: web.Request, answer: PassedOn, own: dict[str, str]) -> web.StreamResponse:
    """The answer as it comes. What fails now cannot have a status of its own: the client sees no whole answer."""
    events = answer.kind.partition(";")[0].strip().lower() == EVENTS
    # Of events the account comes at their end.
    own = {**sse.HEADERS, **own} if events else {**own, headers.COST_USD: answer.foreseen.usd}
    record = http[keys.RECORD]
    record.stream = True
    response = web.StreamResponse(headers=own)
    if answer.length is not None:
        response.content_length = answer.length
    last = _EVENT_ENDS[0]
    try:
        await response.prepare(http)
        while data := await answer.more():
            # A client that hardly reads has no longer than the answer may take.
            async with asyncio.timeout(max(0.0, answer.left_s)):
                await response.write(data)
            last = data
        told = events and last.endswith(_EVENT_ENDS)
        await response.write_eof(sse.comment(f"{headers.COST_USD}: {record.cost.usd}") if told else b"")
    except ConnectionResetError:
        record.status = CLIENT_LEFT
    except TimeoutError:
        record.status = CLIENT_LEFT
        if http.transport is not None:
            http.transport.abort()
    except ApiError as error:
        record.status, record.error = error.status, error.code
        await _break_off(http, response, sse.OPENAI.error(error) if events else None)
    return response


async def _break_off(http: web.Request, response: web.StreamResponse, last: bytes | None) -> None:
    """End without the end of the answer: with an event that says so, or with the connection."""
    if last is not None:
        await response.write_eof(last)
    elif http.transport is not None:
        if http.version < HttpVersion11:
            # There the end of a connection is the end of the answer, unless it is reset.
            with socket.socket(fileno=os.dup(http.transport.get_extra_info("socket").fileno())) as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        http.transport.close()
