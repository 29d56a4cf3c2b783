"""`/dashboard`: the operator's page, and `/admin/live` and `/admin/requests`, which it shows.

The page itself holds no figure and needs no key: whoever opens it signs in with one, which it sends with each question.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import get_args

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.batches import BATCHES
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.dashboard.files import PAGE, PageFile
from headgate.gateway.dashboard.live import Watched, live
from headgate.gateway.dashboard.traces import outcome
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError, one_of
from headgate.gateway.wire.query import page_size, read_query
from headgate.gateway.wire.traces import RequestList, RequestOutcome

WATCHED = web.AppKey("watched", Watched)
FILES = web.AppKey[dict[str, PageFile]]("dashboard files")

_NUMBER_DIGITS = 12
_MOST_LINES = 500
_FILTERS = ("team", "model", "verdict", "status")
_NOW = {"Cache-Control": "no-store"}


async def page(http: web.Request) -> web.Response:
    """The page."""
    return http.app[FILES][PAGE].response(http.headers.get("If-None-Match"))


async def file(http: web.Request) -> web.Response:
    """One of the files that the page is made of."""
    found = http.app[FILES].get(http.match_info["file"])
    if found is None:
        raise web.HTTPNotFound
    return found.response(http.headers.get("If-None-Match"))


async def live_state(http: web.Request) -> web.Response:
    """The server at this moment, and the points of its last minutes after the one that `after` numbers."""
    after = read_query(http.query, ("after",)).get("after", "0")
    if not (after.isascii() and after.isdigit() and len(after) <= _NUMBER_DIGITS):
        message = f"Invalid 'after': '{after[:80]}'. Expected a number of at most {_NUMBER_DIGITS} digits."
        raise ApiError(400, message, param="after", code="invalid_value")
    return json_reply(live(http.app[WATCHED], http.app.get(BATCHES), int(after)), _NOW)


async def list_requests(http: web.Request) -> web.Response:
    """The requests that run or ended last, of a team, a model, a verdict or an outcome."""
    query = read_query(http.query, ("limit", *_FILTERS))
    most = page_size(query.get("limit"), 100, _MOST_LINES)
    status = one_of("status", query.get("status"), get_args(RequestOutcome))
    traces = http.app[keys.TRACES]
    asked = {name: query[name] for name in ("team", "model", "verdict") if name in query}

    def wanted(record: RequestRecord) -> bool:
        return all(getattr(record, name) == value for name, value in asked.items()) and (
            status is None or status == outcome(record)
        )

    return json_reply(RequestList(list(traces.lines(wanted, most)), len(traces)), _NOW)


async def get_request(http: web.Request) -> web.Response:
    """One request explained."""
    read_query(http.query, ())
    wanted = http.match_info["request_id"]
    found = http.app[keys.TRACES].find(wanted)
    if found is None:
        message = f"No request '{wanted[:80]}' is remembered: the last {len(http.app[keys.TRACES])} are."
        raise ApiError(404, message, param="request_id", code="request_not_found")
    return json_reply(found, _NOW)


async def watching(app: web.Application) -> AsyncIterator[None]:
    """Take a point of the history every so often."""
    task = asyncio.create_task(app[WATCHED].history.follow(), name="history of the last minutes")
    yield
    task.cancel()
    await asyncio.wait([task])
