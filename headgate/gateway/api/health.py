"""`/health`: is the process alive. `/ready`: are requests answered, and which parts are up."""

from __future__ import annotations

import msgspec
from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.wire.health import Health, Part, Readiness


async def health(_: web.Request) -> web.Response:
    """Always 200 while the event loop turns."""
    return web.Response(body=msgspec.json.encode(Health()), content_type="application/json")


async def ready(http: web.Request) -> web.Response:
    """200 when requests are answered; 503 while loading or shutting down, and where a model computes nothing any more.

    Names the state of each part.
    """
    lifecycle = http.app[keys.LIFECYCLE]
    parts = {name: Part(state, detail) for name, (state, detail) in lifecycle.parts.items()}
    return web.Response(
        status=200 if lifecycle.ready else 503,
        body=msgspec.json.encode(Readiness(lifecycle.phase, parts)),
        content_type="application/json",
    )
