"""`POST /v1/embeddings`."""

from __future__ import annotations

import time
from functools import partial

from aiohttp import web

from headgate.engine.request import Priority
from headgate.gateway import keys
from headgate.gateway.api.passthrough import passed_on
from headgate.gateway.backend import Loader
from headgate.gateway.edge.long_bodies import aside
from headgate.gateway.embedding.embeddings import Embedding
from headgate.gateway.middleware import read_body
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.model_names import check_allowed, model_name
from headgate.gateway.telemetry.logs.content import log_content
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.upstream.endpoints import EMBEDDINGS
from headgate.gateway.wire import headers
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.embeddings import encode_embeddings, parse_embedding
from headgate.gateway.wire.passthrough import PassedRequest


async def embeddings(http: web.Request) -> web.StreamResponse:
    """The vectors of texts, by the model of this process or one of an upstream."""
    record, began = http[keys.RECORD], time.monotonic()
    app, principal, body = http.app, http[keys.PRINCIPAL], await read_body(http)
    if any("embeddings" in upstream.serves for upstream in app[keys.SETTINGS].upstreams):
        own = app[keys.LOADER].embeddings.id
        if model_name(decode(body, PassedRequest).model or "", principal) != own:
            return await passed_on(http, EMBEDDINGS, body, () if own is None else (own,))
    wait_s = app[keys.SETTINGS].server.startup_wait_s
    made = await embedded(body, app[keys.LOADER], app[keys.METRICS], principal, record, wait_s, "foreground")
    overhead = f"{(began - record.arrived) * 1e3:.1f}"
    shown = {headers.MODEL: record.model, headers.OVERHEAD_MS: overhead, headers.COST_USD: record.cost.usd}
    return web.Response(body=made, content_type="application/json", headers=shown)


async def embedded(
    body: bytes,
    loader: Loader,
    metrics: Metrics,
    principal: Principal,
    record: RequestRecord,
    wait_s: float,
    priority: Priority,
) -> bytes:
    """The reply to a request's body; ApiError where it is refused. The record learns of model and tokens."""
    wanted, texts = await aside(body, partial(parse_embedding, body))
    model = model_name(wanted.model, principal)
    check_allowed(model, principal)
    cut = wanted.truncate_prompt_tokens is not None
    record.model = loader.embeddings.known(model)
    who = Embedding(model, principal, record, wanted.user, priority)
    made = await loader.embeddings.embed(who, texts, cut=cut, wait_s=wait_s)
    record.prompt_tokens = made.tokens
    metrics.embedded(model, made.tokens)
    log_content(record, principal, {"asked": texts})
    return await encode_embeddings(model, made.vectors, made.tokens, binary=wanted.encoding_format == "base64")
