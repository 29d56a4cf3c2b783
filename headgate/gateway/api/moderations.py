"""`POST /v1/moderations`, of upstreams."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway.api.passthrough import pass_on
from headgate.gateway.upstream.endpoints import MODERATIONS


async def moderations(http: web.Request) -> web.StreamResponse:
    """Say what may be harmful in texts or pictures."""
    return await pass_on(http, MODERATIONS)
