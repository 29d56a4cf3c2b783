"""Typed keys under which handlers find what the application holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from headgate.gateway.backend import Backend, Loader
from headgate.gateway.dashboard.traces import Traces
from headgate.gateway.edge.body_cache import Readings
from headgate.gateway.feedback.service import Feedback
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.responses.background import BackgroundResponses
from headgate.gateway.responses.shared import SharedResponses
from headgate.gateway.settings import Settings
from headgate.gateway.storage.folder import PART, Storage
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.pinning import Pinned
from headgate.gateway.teams.registry import Teams
from headgate.gateway.teams.reload import Reloader
from headgate.gateway.telemetry.logs.access import AccessLog
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import storage_off

if TYPE_CHECKING:
    from headgate.gateway.telemetry.tracing.otel import Tracing  # noqa: F401  it is named in a key's type

SETTINGS = web.AppKey("settings", Settings)
LIFECYCLE = web.AppKey("lifecycle", Lifecycle)
METRICS = web.AppKey("metrics", Metrics)
TRACING = web.AppKey["Tracing | None"]("tracing")
ACCESS = web.AppKey("access", AccessLog)
ADMISSION = web.AppKey("admission", Admission)
TEAMS = web.AppKey("teams", Teams)
RELOADER = web.AppKey("reloader", Reloader)
LOADER = web.AppKey("loader", Loader)
COUNTING = web.AppKey("counting", asyncio.Semaphore)
READINGS = web.AppKey("readings", Readings)
PINNED = web.AppKey("pinned", Pinned)
RESPONSES = web.AppKey("responses", SharedResponses)
BACKGROUND = web.AppKey("background", BackgroundResponses)
FEEDBACK = web.AppKey[Feedback | None]("feedback")
TRACES = web.AppKey("traces", Traces)
STORAGE = web.AppKey[Storage | None]("storage")

RECORD = web.RequestKey("record", RequestRecord)
PRINCIPAL = web.RequestKey("principal", Principal)


async def backend(http: web.Request) -> Backend:
    """The loaded server; waits for it as long as the configuration says, then ApiError 503."""
    app = http.app
    if not app[LIFECYCLE].ready:
        await app[LIFECYCLE].wait_ready(app[SETTINGS].server.startup_wait_s)
    return app[LOADER].backend


def storage(http: web.Request) -> Storage:
    """Where files are; ApiError 404 or 503 where this server keeps none."""
    found = http.app[STORAGE]
    if found is None:
        state, why = http.app[LIFECYCLE].parts[PART]
        raise storage_off(why, failed=state == "failed")
    return found
