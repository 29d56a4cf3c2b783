"""What surrounds every handler: the record, the error shape, authentication, admission."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from headgate import __version__
from headgate.gateway import keys
from headgate.gateway.teams.deadlines import deadline_of
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.retries import retry_of
from headgate.gateway.telemetry.record import CURRENT, RequestRecord
from headgate.gateway.wire import headers
from headgate.gateway.wire.anthropic_errors import anthropic_error
from headgate.gateway.wire.errors import ApiError, invalid, not_permitted, server_error, too_large

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger("headgate.gateway")

CLIENT_LEFT = 499
"""nginx's status for a client that closed the connection; in log and metrics only."""

API_PREFIXES = ("/v1/", "/tokenize", "/detokenize")
ADMIN_PREFIX = "/admin/"
ANTHROPIC_PREFIX = "/v1/messages"
UPLOADS = ("/v1/files",)
"""Where a form is posted, whose type the handler checks."""


@web.middleware
async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request its id and record; count and log it when it has ended, however it did."""
    request[keys.ARRIVED] = arrived = time.monotonic()
    route = request.match_info.route.resource
    entry = RequestRecord(
        headers.request_id(request.headers.get(headers.REQUEST_ID)),
        route.canonical if route else "unknown",
        arrived=arrived,
    )
    entry.config = request.app[keys.TEAMS].roster.revision
    request[keys.RECORD] = entry
    traces = request.app.get(keys.TRACES) if entry.endpoint.startswith(API_PREFIXES) else None
    if traces is not None:
        traces.begun(entry)
    CURRENT.set(entry)
    if (tracing := request.app[keys.TRACING]) is not None:
        entry.trace = tracing.begin(entry.endpoint, request.headers)
    try:
        response = await handler(request)
        # A stream that broke off has set its own status.
        entry.status = entry.status or response.status
        return response
    except (asyncio.CancelledError, ConnectionResetError):
        entry.status = CLIENT_LEFT
        raise
    finally:
        entry.total_s = time.monotonic() - request[keys.ARRIVED]
        request.app[keys.METRICS].finished(entry)
        # Whoever probes, scrapes or looks at the operator's page does not fill the log.
        done = entry.endpoint.startswith(ADMIN_PREFIX) and request.method != "GET"
        if done or entry.endpoint.startswith(API_PREFIXES):
            request.app[keys.ACCESS].write(entry)
        if entry.reply_id and entry.error is None and (feedback := request.app[keys.FEEDBACK]) is not None:
            feedback.given(entry, request[keys.PRINCIPAL])
        if traces is not None:
            traces.ended(entry)
        if entry.trace is not None:
            entry.trace.end(entry)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure in the shape of the route's protocol, never a page of HTML."""
    try:
        return await handler(request)
    except ApiError as error:
        return _reply(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _reply(request, _from_http(request, error))
    except ConnectionResetError:
        raise
    except Exception:
        logger.exception("request %s failed", request[keys.RECORD].request_id)
        return _reply(request, server_error())


@web.middleware
async def admission(request: web.Request, handler: Handler) -> web.StreamResponse:
    """For the API and for administration: who is it, is the server taking requests, is the body JSON."""
    if not request.path.startswith((*API_PREFIXES, ADMIN_PREFIX)) or request.match_info.http_exception is not None:
        return await handler(request)
    principal = request.app[keys.TEAMS].authenticate(_authorization(request))
    request[keys.PRINCIPAL] = principal
    entry = request[keys.RECORD]
    entry.team, entry.key_id = principal.team, principal.key_id
    entry.standing = partial(request.app[keys.ADMISSION].standing, principal)
    admin = request.path.startswith(ADMIN_PREFIX)
    if admin:
        _check_admin(request, principal)
    # A page in a browser may send other types without asking first; administration takes none, not even an absent one.
    given = admin or (request.can_read_body and "Content-Type" in request.headers and request.path not in UPLOADS)
    if request.method == "POST" and given and request.content_type != "application/json":
        message = f"Unsupported content type '{request.content_type}'. Send 'application/json'."
        raise ApiError(415, message, code="unsupported_media_type")
    with request.app[keys.LIFECYCLE].request():
        return await handler(request)


def _authorization(request: web.Request) -> str | None:
    """The key as OpenAI's clients send it, else as Anthropic's do."""
    given, key = request.headers.get("Authorization"), request.headers.get("x-api-key")
    return f"Bearer {key}" if given is None and key is not None else given


def _check_admin(request: web.Request, principal: Principal) -> None:
    """ApiError 403 unless the key may administer; on an open server, unless the request comes from this machine.

    It must also be addressed to this machine: what a page of another site asks, whose name leads here, is not.
    """
    if not request.app[keys.TEAMS].open:
        if not principal.admin:
            raise not_permitted(f"The key '{principal.key_id}' may not use {request.path}: its role is not admin.")
    elif not (_is_local(request.remote) and (request.url.host == "localhost" or _is_local(request.url.host))):
        message = (
            f"{request.path} is open to this machine only, as localhost or 127.0.0.1; for others make a key with the "
            "role admin."
        )
        raise not_permitted(message)


def _is_local(remote: str | None) -> bool:
    try:
        return ipaddress.ip_address(remote or "").is_loopback
    except ValueError:
        return False


async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Headers of every reply, set when its head is written."""
    entry = request.get(keys.RECORD)
    if entry is None:
        return
    response.headers[headers.REQUEST_ID] = entry.request_id
    response.headers[headers.CONFIG] = entry.config
    if request.path.startswith(ANTHROPIC_PREFIX):
        response.headers["request-id"] = entry.request_id
    response.headers[headers.PROCESSING_MS] = str(round((time.monotonic() - request[keys.ARRIVED]) * 1e3))
    response.headers["openai-version"] = "2020-10-01"
    if entry.team:
        response.headers["openai-organization"] = entry.team
    if entry.standing is not None:
        response.headers.update(headers.rate_limits(entry.standing()))
    if entry.dropped:
        response.headers[headers.DROPPED] = entry.dropped
    if entry.budget:
        response.headers[headers.BUDGET] = entry.budget
    response.headers["Server"] = f"headgate/{__version__}"


async def read_body(request: web.Request) -> bytes:
    """The body; ApiError 413 above the limit, 400 where it does not decode."""
    limit = int(request.app[keys.SETTINGS].server.max_body_bytes)
    own = request[keys.PRINCIPAL].policy.limits.max_body_bytes
    if own is not None:
        limit = min(limit, int(own))
    if request.content_length is not None and request.content_length > limit:
        raise too_large(limit)
    try:
        body = await request.read()
        if len(body) > limit:
            raise too_large(limit)
        entry = request[keys.RECORD]
        entry.retry, entry.deadline = retry_of(request.headers, body), deadline_of(request.headers)
        return body
    except web.HTTPRequestEntityTooLarge:
        raise too_large(limit) from None
    except web.RequestPayloadError as error:
        why = " ".join(getattr(error, "message", str(error)).split()).rstrip(".")
        raise invalid(f"The request body could not be read: {why}.", code="invalid_body") from None


def _reply(request: web.Request, error: ApiError) -> web.Response:
    entry = request[keys.RECORD]
    entry.error = error.code
    anthropic = request.path.startswith(ANTHROPIC_PREFIX)
    body = anthropic_error(error, entry.request_id) if anthropic else error.encode()
    response = web.Response(
        status=error.status, body=body, content_type="application/json", headers=dict(error.headers)
    )
    if not request.content.is_eof():
        # What is left of the body would be read as the next request.
        response.force_close()
    return response


def _from_http(request: web.Request, error: web.HTTPException) -> ApiError:
    """aiohttp's own refusals."""
    if error.status == 404:
        return ApiError(404, f"Unknown request URL: {request.method} {request.path}.", code="unknown_url")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"Not allowed to {request.method} on {request.path}. Allowed: {allowed}."
        return ApiError(405, message, code="method_not_allowed", headers={"Allow": allowed})
    if error.status == 413:
        return too_large(request.app[keys.SETTINGS].server.max_body_bytes)
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return ApiError(error.status, error.reason, type=kind)
