"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

import time

import msgspec
from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.destinations import Destination
from headgate.gateway.routes import Routes
from headgate.gateway.wire.errors import model_not_found
from headgate.gateway.wire.models import ModelBody, ModelList

STARTED = web.AppKey("started", int)


async def list_models(http: web.Request) -> web.Response:
    """Every model, in the order of the configuration."""
    routes = (await keys.backend(http)).routes
    body = ModelList([_body(http, routes, d) for d in routes.destinations.values()])
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def get_model(http: web.Request) -> web.Response:
    """One model by its id."""
    routes = (await keys.backend(http)).routes
    name = http.match_info["model"]
    destination = routes.destinations.get(name)
    if destination is None:
        raise model_not_found(name, ", ".join(routes.destinations))
    return web.Response(body=msgspec.json.encode(_body(http, routes, destination)), content_type="application/json")


async def note_start(app: web.Application) -> None:
    """Remember when the server started: what `created` tells of local models."""
    app[STARTED] = int(time.time())


def _body(http: web.Request, routes: Routes, destination: Destination) -> ModelBody:
    facts = destination.facts
    return ModelBody(
        destination.id,
        http.app[STARTED],
        "headgate",
        routes.tier(destination.id),
        facts.context_length,
        facts.parameters,
        facts.active_parameters,
        facts.dtype,
    )
