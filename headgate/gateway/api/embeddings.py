"""`POST /v1/embeddings`."""

from __future__ import annotations

import time

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.middleware import read_body
from headgate.gateway.wire import headers
from headgate.gateway.wire.embeddings import encode_embeddings, parse_embedding


async def embeddings(http: web.Request) -> web.Response:
    """The vectors of texts."""
    wanted, texts = parse_embedding(await read_body(http))
    record, began = http[keys.RECORD], time.monotonic()
    made = await http.app[keys.LOADER].embeddings.embed(
        wanted.model,
        texts,
        cut=wanted.truncate_prompt_tokens is not None,
        wait_s=http.app[keys.SETTINGS].server.startup_wait_s,
    )
    record.model, record.prompt_tokens = wanted.model, made.tokens
    http.app[keys.METRICS].embedded(wanted.model, made.tokens)
    body = await encode_embeddings(wanted.model, made.vectors, made.tokens, binary=wanted.encoding_format == "base64")
    shown = {headers.MODEL: wanted.model, headers.OVERHEAD_MS: f"{(began - http[keys.ARRIVED]) * 1e3:.1f}"}
    return web.Response(body=body, content_type="application/json", headers=shown)
