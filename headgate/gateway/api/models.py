"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

import time
from typing import Literal

import msgspec
from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.road.destinations import Destination
from headgate.gateway.routing.routes import AUTO, POLICIES, Routes
from headgate.gateway.upstream.endpoints import Serves
from headgate.gateway.wire.errors import model_not_found
from headgate.gateway.wire.models import ModelBody, ModelList

STARTED = web.AppKey("started", int)


async def list_models(http: web.Request) -> web.Response:
    """Every model that this key may ask, by the order of the configuration; names that leave a choice; aliases."""
    body = ModelList(await _visible(http))
    return json_reply(body)


async def get_model(http: web.Request) -> web.Response:
    """One model by its id or alias; one that this key may not ask is not there for it."""
    name, visible = http.match_info["model"], await _visible(http)
    found = next((body for body in visible if body.id == name), None)
    if found is None:
        raise model_not_found(name, ", ".join(body.id for body in visible))
    return json_reply(found)


async def note_start(app: web.Application) -> None:
    """Remember when the server started: what `created` tells of local models."""
    app[STARTED] = int(time.time())


async def _visible(http: web.Request) -> list[ModelBody]:
    routes = (await keys.backend(http)).routes
    who = http[keys.PRINCIPAL]
    found = [_body(http, routes, d) for d in routes.visible(who)]
    # Clients offer, and some accept, nothing but what is listed.
    found += [
        _choice(http, name, among)
        for name in (POLICIES if len(found) > 1 else ())
        if (among := [body for body in found if name in (AUTO, body.tier)])
    ]
    others = [
        _passer(http, upstream.id)
        for upstream in http.app[keys.SETTINGS].upstreams
        if "chat" not in upstream.serves and (who.models is None or upstream.id in who.models)
    ]
    embeddings = http.app[keys.LOADER].embeddings
    if embeddings.id is not None and (who.models is None or embeddings.id in who.models):
        created, longest = http.app[STARTED], embeddings.longest
        others.append(
            ModelBody(embeddings.id, created, "headgate", None, longest, None, None, None, "embeddings", ["embeddings"])
        )
    by_id = {body.id: body for body in (*found, *others)}
    aliases = who.policy.models.aliases.items()
    also = [msgspec.structs.replace(by_id[name], id=alias) for alias, name in aliases if name in by_id]
    return [*found, *also, *others]


def _choice(http: web.Request, name: str, among: list[ModelBody]) -> ModelBody:
    """A name that leaves the choice among these models to the router, which knows what each has room for."""
    longest = max((body.context_length for body in among if body.context_length is not None), default=None)
    tier = None if name == AUTO else name
    return ModelBody(name, http.app[STARTED], "headgate", tier, longest, None, None, None, "generation", ["chat"])


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
        "generation",
        _served(http, destination.id),
        facts.parent,
    )


def _passer(http: web.Request, upstream: str) -> ModelBody:
    """A model that takes no chats."""
    serves = _served(http, upstream)
    task: Literal["embeddings"] | None = "embeddings" if "embeddings" in serves else None
    return ModelBody(upstream, http.app[STARTED], "headgate", None, None, None, None, None, task, serves)


def _served(http: web.Request, model: str) -> list[Serves]:
    upstreams = http.app[keys.SETTINGS].upstreams
    return next((sorted(upstream.serves) for upstream in upstreams if upstream.id == model), ["chat"])
