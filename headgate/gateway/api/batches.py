"""`/v1/batches`: begin, tell, list and cancel the batches of a team; and what runs them beside the requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.batches.answerer import Answerer
from headgate.gateway.batches.service import Batches
from headgate.gateway.middleware import read_body
from headgate.gateway.telemetry.metrics.batches import BatchMetrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.batches import parse_batch, parse_batch_query
from headgate.gateway.wire.query import read_query

BATCHES = web.AppKey[Batches]("batches")


async def create(http: web.Request) -> web.Response:
    """Begin a batch; its file is checked in the background."""
    batches = _batches(http)
    return json_reply(await batches.create(parse_batch(await read_body(http)), http[keys.PRINCIPAL]))


async def list_batches(http: web.Request) -> web.Response:
    """The team's batches."""
    after, limit = parse_batch_query(http.query)
    return json_reply(await _batches(http).page(http[keys.PRINCIPAL].team, after, limit))


async def get_batch(http: web.Request) -> web.Response:
    """One batch as it stands."""
    read_query(http.query, ())
    return json_reply(await _batches(http).get(http.match_info["batch_id"], http[keys.PRINCIPAL].team))


async def cancel(http: web.Request) -> web.Response:
    """Answer no further line."""
    read_query(http.query, ())
    return json_reply(await _batches(http).cancel(http.match_info["batch_id"], http[keys.PRINCIPAL].team))


async def running(app: web.Application) -> AsyncIterator[None]:
    """Run batches, where there is a data folder, from the start of the server to its end."""
    storage, settings = app[keys.STORAGE], app[keys.SETTINGS]
    if storage is None:
        yield
        return
    metrics = BatchMetrics(app[keys.METRICS].registry)

    def ended(record: RequestRecord) -> None:
        metrics.line(record)
        app[keys.ACCESS].write(record)
        who = app[keys.TEAMS].named(record.team, record.key_id)
        if record.reply_id and who is not None and (feedback := app[keys.FEEDBACK]) is not None:
            feedback.given(record, who)

    answerer = Answerer(app[keys.LOADER], app[keys.LIFECYCLE], app[keys.METRICS], app[keys.TEAMS].named, ended)
    most, values = int(settings.server.max_body_bytes), settings.server.max_body_values
    batches = Batches(storage, settings.batches, answerer, line_bytes=most, line_values=values)
    app[BATCHES] = batches
    metrics.watch(batches)
    await batches.start()
    yield
    await batches.close()


def _batches(http: web.Request) -> Batches:
    keys.storage(http)
    return http.app[BATCHES]
