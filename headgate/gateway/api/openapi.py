"""`/openapi.json`: the description of this API, generated from the wire types."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway.wire.openapi.document import document


async def openapi(_: web.Request) -> web.Response:
    """The OpenAPI 3.1 document."""
    return web.Response(body=document(), content_type="application/json")
