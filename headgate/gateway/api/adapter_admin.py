"""`/admin/adapters`: the adapters of this server's models, and adding and removing some while it answers."""

from __future__ import annotations

import msgspec
from aiohttp import web
from pydantic import ValidationError

from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.local.adapters import Adapters
from headgate.gateway.local.added_adapters import AddedAdapter
from headgate.gateway.middleware import read_body
from headgate.gateway.wire.adapter_admin import AdapterChoice, AdapterStates, NewAdapter
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid


async def report(http: web.Request) -> web.Response:
    """Every adapter, of the configuration and added."""
    return json_reply(AdapterStates((await _adapters(http)).report()))


async def add(http: web.Request) -> web.Response:
    """Serve an adapter; it can be asked for when the reply is there."""
    wanted = decode(await read_body(http), NewAdapter)
    given = {name: value for name, value in msgspec.to_builtins(wanted).items() if name not in ("model", "replace")}
    try:
        adapter = AddedAdapter(of=wanted.model, **given)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join("model" if part == "of" else str(part) for part in problem["loc"])
        why = problem["msg"].removeprefix("Value error, ")
        raise invalid(f"Invalid '{field}': '{str(problem['input'])[:80]}': {why}.", field, "invalid_value") from None
    return json_reply(await (await _adapters(http)).add(adapter, replace=wanted.replace))


async def remove(http: web.Request) -> web.Response:
    """Serve an adapter no more; requests that run end as they would have."""
    wanted = decode(await read_body(http), AdapterChoice)
    return json_reply(await (await _adapters(http)).remove(wanted.id))


async def _adapters(http: web.Request) -> Adapters:
    await keys.backend(http)
    return http.app[keys.LOADER].adapters
