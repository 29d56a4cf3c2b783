"""`/metrics`: Prometheus' text format."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from headgate.gateway import keys


async def metrics(http: web.Request) -> web.Response:
    """All counters, histograms and gauges."""
    return web.Response(body=http.app[keys.METRICS].render(), headers={"Content-Type": CONTENT_TYPE_LATEST})
