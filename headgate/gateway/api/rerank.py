"""`POST /v1/rerank` and `POST /v1/score`, of upstreams: how well texts go with another."""

from __future__ import annotations

from aiohttp import web

from headgate.gateway.api.passthrough import pass_on
from headgate.gateway.upstream.endpoints import RERANK, SCORE


async def rerank(http: web.Request) -> web.StreamResponse:
    """Order documents by a query. Cohere's clients ask /v1/rerank or /v2/rerank, Jina's and others' /v1/rerank, some
    /rerank."""
    return await pass_on(http, RERANK)


async def score(http: web.Request) -> web.StreamResponse:
    """Score pairs of texts, as vLLM does."""
    return await pass_on(http, SCORE)
