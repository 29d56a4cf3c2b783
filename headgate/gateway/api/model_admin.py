"""`/admin/models`: the models of this server, which of them sleep, and having one sleep or wake."""

from __future__ import annotations

from aiohttp import web

from headgate.engine.errors import EngineError, ModelBusy
from headgate.gateway import keys
from headgate.gateway.api.json_reply import json_reply
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.middleware import read_body
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import asleep, conflict, model_not_found, overloaded
from headgate.gateway.wire.model_admin import ModelChoice, ModelState, ModelStates


async def report(http: web.Request) -> web.Response:
    """Every model of this server."""
    body = ModelStates([_state(model) for model in (await _models(http)).values()])
    return json_reply(body)


async def sleep(http: web.Request) -> web.Response:
    """Have a model give its memory back; 409 where it is wanted."""
    model = await _chosen(http)
    try:
        await model.sleep.sleep()
    except ModelBusy as error:
        raise conflict(f"It cannot sleep: {error}.", "model", "model_busy") from None
    except Exception as error:
        raise overloaded(f"The model '{model.id}' stays awake: {error}.") from None
    return json_reply(_state(model))


async def wake(http: web.Request) -> web.Response:
    """Have a model be there again; the reply comes when it is."""
    model = await _chosen(http)
    try:
        await model.sleep.wake()
    except EngineError as error:
        raise asleep(f"It does not wake: {error}.", 1.0) from None
    return json_reply(_state(model))


async def _chosen(http: web.Request) -> LocalDestination:
    wanted, models = decode(await read_body(http), ModelChoice).model, await _models(http)
    if wanted not in models:
        raise model_not_found(wanted, ", ".join(models) or "none, all are upstreams")
    return models[wanted]


async def _models(http: web.Request) -> dict[str, LocalDestination]:
    found = (await keys.backend(http)).routes.destinations.values()
    return {model.id: model for model in found if isinstance(model, LocalDestination)}


def _state(model: LocalDestination) -> ModelState:
    stats, slept = model.model.stats(), model.sleep.stats
    # An adapter's requests are computed in its model's steps, which counts them.
    own = not model.model.info.adapter_of
    return ModelState(
        model.id,
        slept.state,
        stats.running if own else 0,
        stats.waiting if own else 0,
        stats.kv_bytes if own else 0,
        slept.sleeps,
        slept.wakes,
        slept.wake_seconds,
        slept.last_wake_s,
    )
