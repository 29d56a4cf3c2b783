"""Fields of a body that nobody here knows: for teams that have them left out instead of refused."""

from __future__ import annotations

import re

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.road.request import ChatRequest

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST = 16
"""Names that the reply's header has."""


def takes_unknown(http: web.Request) -> bool:
    """Whether such fields are taken along: to be left out, or for servers that are sent them."""
    return http.app[keys.SETTINGS].passes_unknown or http[keys.PRINCIPAL].policy.models.drop_params


def note_dropped(http: web.Request, request: ChatRequest, model: str) -> None:
    """Have the reply say which fields were left out for the model that answers."""
    if not request.unknown or not http[keys.PRINCIPAL].policy.models.drop_params:
        return
    if any(upstream.id == model and upstream.pass_through_unknown for upstream in http.app[keys.SETTINGS].upstreams):
        return
    names = [name if _NAME.fullmatch(name) else "?" for name, _ in request.unknown]
    http[keys.RECORD].dropped = ", ".join(names[:_MOST])
