"""What surrounds every handler: the record, the error shape, authentication, admission."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, hdrs, web

from headgate import __version__
from headgate.gateway import keys
from headgate.gateway.dashboard.traces import Traces
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.edge.loop_turns import Turns
from headgate.gateway.edge.slow_bodies import Arriving
from headgate.gateway.edge.stalled_clients import Sending
from headgate.gateway.feedback.service import Feedback
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.deadlines import deadline_of
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.registry import Teams
from headgate.gateway.teams.retries import retry_of
from headgate.gateway.telemetry.logs.access import AccessLog
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import CURRENT, RequestRecord
from headgate.gateway.wire import headers
from headgate.gateway.wire.anthropic.errors import anthropic_error
from headgate.gateway.wire.body_weight import check_weight
from headgate.gateway.wire.decode import nearest
from headgate.gateway.wire.errors import ApiError, invalid, not_permitted, server_error, too_large

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Tracing

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger("headgate.gateway")

CLIENT_LEFT = 499
"""nginx's status for a client that closed the connection; in log and metrics only."""

API_PREFIXES = ("/v1/", "/v2/", "/tokenize", "/detokenize", "/rerank", "/score")
ADMIN_PREFIX = "/admin/"
ANTHROPIC_PREFIX = "/v1/messages"
JSON = "application/json"
UPLOADS = ("/v1/files", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits")
"""Where a form is posted, whose type the handler checks."""
_LONGEST_PATH = 100
"""Up to here an unknown path is compared with the known ones."""
_SERVER = f"headgate/{__version__}"


class Reception:
    """Where every request comes in and every reply goes out."""

    def __init__(
        self,
        teams: Teams,
        admission: Admission,
        lifecycle: Lifecycle,
        metrics: Metrics,
        access: AccessLog,
        tracing: Tracing | None,
        traces: Traces | None,
        feedback: Feedback | None,
        send_s: float,
    ) -> None:
        """`tracing`, `traces` and `feedback` where spans are made, the operator's page shows requests, and votes are
        taken. `send_s`: see `Sending`."""
        self._teams = teams
        self._admission = admission
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._access = access
        self._tracing = tracing
        self._traces = traces
        self._feedback = feedback
        self._sending = Sending(send_s)
        self._turns = Turns()

    @web.middleware
    async def receive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Give the request its id and record, let it in; count and log it when it has ended, however it did.

        Every failure becomes a reply in the shape of the route's protocol, never a page of HTML.
        """
        resource = request.match_info.route.resource
        entry = RequestRecord(
            headers.request_id(request.headers.get(headers.REQUEST_ID)),
            "unknown" if resource is None else resource.canonical,
            config=self._teams.roster.revision,
            arrived=time.monotonic(),
        )
        request[keys.RECORD] = entry
        self._sending.watch(request.transport)
        api = entry.endpoint.startswith(API_PREFIXES)
        if api and self._traces is not None:
            self._traces.begun(entry)
        CURRENT.set(entry)
        if self._tracing is not None:
            entry.trace = self._tracing.begin(entry.endpoint, request.headers)
        entered = False
        try:
            try:
                await self._turns.wait()
                if api or entry.endpoint.startswith(ADMIN_PREFIX):
                    self._admit(request, entry, admin=not api)
                    self._lifecycle.enter()
                    entered = True
                response = await handler(request)
            except Exception as error:
                response = failed(request, error)
            # A stream that broke off has set its own status.
            entry.status = entry.status or response.status
            return response
        except asyncio.CancelledError:
            entry.status = CLIENT_LEFT
            raise
        except ConnectionResetError:
            # For nobody: what was raised would be logged as a fault of ours.
            entry.status = CLIENT_LEFT
            return web.Response(status=CLIENT_LEFT)
        finally:
            if entered:
                self._lifecycle.leave()
            self._end(request, entry, api=api)

    def _end(self, request: web.Request, entry: RequestRecord, *, api: bool) -> None:
        entry.total_s = time.monotonic() - entry.arrived
        self._metrics.finished(entry)
        # Whoever probes, scrapes or looks at the operator's page does not fill the log.
        if api or (entry.endpoint.startswith(ADMIN_PREFIX) and request.method != "GET"):
            self._access.write(entry)
        if self._feedback is not None and entry.reply_id and entry.error is None:
            self._feedback.given(entry, request[keys.PRINCIPAL])
        if api and self._traces is not None:
            self._traces.ended(entry)
        if entry.trace is not None:
            entry.trace.end(entry)

    def _admit(self, request: web.Request, entry: RequestRecord, *, admin: bool) -> None:
        """For the API and for administration: who is it, and is the body JSON; ApiError where that will not do."""
        principal = self._teams.authenticate(_authorization(request))
        request[keys.PRINCIPAL] = principal
        entry.team, entry.key_id = principal.team, principal.key_id
        entry.standing = partial(self._admission.standing, principal)
        if admin:
            self._check_admin(request, principal)
        if request.method != "POST" or request.headers.get(hdrs.CONTENT_TYPE) == JSON:
            return
        # A page in a browser may send other types without asking first; administration takes none, not even an absent
        # one.
        if request.path in UPLOADS and self._teams.open and _is_of_another_site(request):
            raise not_permitted(f"A page of another site may not post forms to {request.path} where no key is needed.")
        given = request.can_read_body and hdrs.CONTENT_TYPE in request.headers and request.path not in UPLOADS
        if (admin or given) and request.content_type != JSON:
            message = f"Unsupported content type '{request.content_type}'. Send '{JSON}'."
            raise ApiError(415, message, code="unsupported_media_type")

    def _check_admin(self, request: web.Request, principal: Principal) -> None:
        """ApiError 403 unless the key may administer; on an open server, unless the request comes from this machine.

        It must also be addressed to this machine: what a page of another site asks, whose name leads here, is not.
        """
        if not self._teams.open:
            if not principal.admin:
                raise not_permitted(f"The key '{principal.key_id}' may not use {request.path}: its role is not admin.")
        elif not (_is_local(request.remote) and (request.url.host == "localhost" or _is_local(request.url.host))):
            message = (
                f"{request.path} is open to this machine only, as localhost or 127.0.0.1; for others make a key with "
                "the role admin."
            )
            raise not_permitted(message)


def _authorization(request: web.Request) -> str | None:
    """The key as OpenAI's clients send it, else as Anthropic's do."""
    given = request.headers.get(hdrs.AUTHORIZATION)
    if given is None and (key := request.headers.get("x-api-key")) is not None:
        return f"Bearer {key}"
    return given


def _is_of_another_site(request: web.Request) -> bool:
    """Whether a browser sends it for a page that is not from here. For forms it asks nobody before."""
    origin = request.headers.get(hdrs.ORIGIN)
    return origin is not None and origin.partition("://")[2] != request.host


def _is_local(remote: str | None) -> bool:
    try:
        return ipaddress.ip_address(remote or "").is_loopback
    except ValueError:
        return False


def fields(request: web.Request) -> dict[str, str]:
    """Headers of every reply, as they are when its head is written."""
    return {**settled(request), headers.PROCESSING_MS: took_ms(request)}


def took_ms(request: web.Request) -> str:
    """Since the request came, for its header."""
    return str(round((time.monotonic() - request[keys.RECORD].arrived) * 1e3))


def settled(request: web.Request) -> dict[str, str]:
    """Headers of every reply that are known before it is: all but how long it took."""
    entry = request[keys.RECORD]
    found = {
        headers.REQUEST_ID: entry.request_id,
        headers.CONFIG: entry.config,
        headers.OPENAI_VERSION: "2020-10-01",
        headers.SERVER: _SERVER,
    }
    if request.path.startswith(ANTHROPIC_PREFIX):
        found["request-id"] = entry.request_id
    if entry.team:
        found["openai-organization"] = entry.team
    if entry.standing is not None:
        found |= headers.rate_limits(entry.standing())
    if entry.dropped:
        found[headers.DROPPED] = entry.dropped
    if entry.budget:
        found[headers.BUDGET] = entry.budget
    return found


async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every reply when its head is written."""
    if keys.RECORD in request:
        response.headers.update(fields(request))
    if request.version < HttpVersion11 and response.content_length is None:
        # Its body ends with the connection, also for a client that would go on with it.
        response.force_close()


async def read_body(request: web.Request) -> bytes:
    """The body; ApiError 413 above the limit, 400 where it does not decode."""
    limit = int(request.app[keys.SETTINGS].server.max_body_bytes)
    own = request[keys.PRINCIPAL].policy.limits.max_body_bytes
    if own is not None:
        limit = min(limit, int(own))
    content = request.content
    try:
        if content.is_eof():
            # It came with the head, as most do: nothing is waited for.
            body = content.read_nowait()
        elif request.content_length is not None and request.content_length > limit:
            raise too_large(limit)
        else:
            body = await _arrived(request, limit)
        if len(body) > limit:
            raise too_large(limit)
        entry = request[keys.RECORD]
        if entry.endpoint not in UPLOADS:
            most = request.app[keys.SETTINGS].server.max_body_values
            await aside(body, partial(check_weight, body, most))
        entry.retry, entry.deadline = retry_of(request.headers, body), deadline_of(request.headers)
        return body
    except web.HTTPRequestEntityTooLarge:
        raise too_large(limit) from None
    except web.RequestPayloadError as error:
        why = " ".join(getattr(error, "message", str(error)).split()).rstrip(".")
        raise invalid(f"The request body could not be read: {why}.", code="invalid_body") from None


async def _arrived(request: web.Request, limit: int) -> bytes:
    """All of a body that is still on its way, or, of one that is too long, its beginning."""
    pieces: list[bytes] = []
    size = 0
    async with Arriving() as arriving:
        while size <= limit and (piece := await request.content.readany()):
            pieces.append(piece)
            size += len(piece)
            arriving.came(len(piece))
    return b"".join(pieces)


def failed(request: web.Request, error: Exception) -> web.Response:
    """The reply to a request that failed; raises what is no failure or cannot be told any more."""
    if isinstance(error, ApiError):
        return _reply(request, error)
    if isinstance(error, web.HTTPException) and error.status >= 400:
        return _reply(request, _from_http(request, error))
    if isinstance(error, web.HTTPException | ConnectionResetError):
        raise error
    logger.error("request %s failed", request[keys.RECORD].request_id, exc_info=error)
    return _reply(request, server_error())


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
        known = [resource.canonical for resource in request.app.router.resources()]
        hint = nearest(request.path, known, 0.8) if len(request.path) <= _LONGEST_PATH else ""
        message = (
            f"Unknown request URL: {request.method} {request.path}.{hint or ' /openapi.json describes all of them.'}"
        )
        return ApiError(404, message, code="unknown_url")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"Not allowed to {request.method} on {request.path}. Allowed: {allowed}."
        return ApiError(405, message, code="method_not_allowed", headers={"Allow": allowed})
    if error.status == 413:
        return too_large(request.app[keys.SETTINGS].server.max_body_bytes)
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return ApiError(error.status, error.reason, type=kind)
