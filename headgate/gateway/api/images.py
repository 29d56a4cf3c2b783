"""`POST /v1/images/…`, of upstreams."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway.api.passthrough import pass_on
from headgate.gateway.upstream.endpoints import IMAGE_EDITS, IMAGES


async def generations(http: web.Request) -> web.StreamResponse:
    """Make pictures by a text."""
    return await pass_on(http, IMAGES)


async def edits(http: web.Request) -> web.StreamResponse:
    """Change pictures by a text."""
    return await pass_on(http, IMAGE_EDITS)
