"""What lives as long as the server and runs beside its requests: each part comes up, is looked after, and ends.

`app.py` lists these contexts in the order in which they come up; they end in the reverse one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from aiohttp import web

from headgate.gateway import keys
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.health import Computing
from headgate.gateway.local.sleeping import LOOK_S
from headgate.gateway.parts import StartError
from headgate.gateway.storage.folder import open_storage
from headgate.gateway.teams.ledger import open_ledger

LOADING = web.AppKey("loading", asyncio.Task[None])
"""The task that loads the models; it raises what made them unfit to serve."""


async def tracing(app: web.Application) -> AsyncIterator[None]:
    """Send the last spans when nothing is answered any more."""
    yield
    if (found := app[keys.TRACING]) is not None:
        await asyncio.to_thread(found.close)


async def storing(app: web.Application) -> AsyncIterator[None]:
    """Hold the data folder, tidy it now and then, and leave it at the end."""
    section = app[keys.SETTINGS].storage
    try:
        storage = app[keys.STORAGE] = open_storage(section, app[keys.LIFECYCLE], os.environ)
    except OSError as error:
        raise StartError(f"storage.folder is '{section.folder}': {error}") from None
    if storage is None:
        yield
        return
    await storage.files.remove_strays()
    tidying = asyncio.create_task(storage.tidy(), name="tidy files")
    yield
    tidying.cancel()
    await asyncio.wait([tidying])
    storage.close()


async def accounting(app: web.Application) -> AsyncIterator[None]:
    """Go on with the usage ledger in the data folder, and close it when nothing is answered any more."""
    storage, accounts = app.get(keys.STORAGE), app[keys.ADMISSION].accounts
    ledger = await open_ledger(None if storage is None else storage.folder, accounts.budgets, app[keys.LIFECYCLE])
    accounts.ledger = ledger
    yield
    if ledger is not None:
        await ledger.close()


async def loading(app: web.Application) -> AsyncIterator[None]:
    """Load in the background while the server already listens; stop the engine at the end."""
    loader = app[keys.LOADER]
    if (storage := app[keys.STORAGE]) is not None:
        loader.adapters.keep_in(storage.folder)
    await loader.connect()
    app[keys.RESPONSES].share(loader.cache.redis)
    task = asyncio.create_task(loader.run(), name="load models")
    app[LOADING] = task
    yield
    task.cancel()
    await asyncio.wait([task])
    await loader.close()


async def following(app: web.Application) -> AsyncIterator[None]:
    """Take over changes of the team files."""
    task = asyncio.create_task(app[keys.RELOADER].follow(), name="follow team files")
    yield
    task.cancel()
    await asyncio.wait([task])


async def sharing(app: web.Application) -> AsyncIterator[None]:
    """Keep up with what other gateways spend, and have them know in the end what was spent here."""
    task = asyncio.create_task(app[keys.ADMISSION].follow(), name="follow budgets")
    yield
    await app[keys.ADMISSION].settled()
    task.cancel()
    await asyncio.wait([task])


async def pinning(app: web.Application) -> AsyncIterator[None]:
    """Hold the prompts that teams have pinned, once the models are there."""

    async def follow() -> None:
        await app[keys.LIFECYCLE].wait_until_ready()
        await app[keys.PINNED].follow()

    task = asyncio.create_task(follow(), name="hold pinned prompts")
    yield
    task.cancel()
    await asyncio.wait([task])


async def resting(app: web.Application) -> AsyncIterator[None]:
    """Have models sleep that had nothing to do for long, and see whether those compute whose requests fail."""

    async def follow() -> None:
        await app[keys.LIFECYCLE].wait_until_ready()
        routes = app[keys.LOADER].backend.routes

        def models() -> dict[str, LocalDestination]:
            return {d.id: d for d in routes.destinations.values() if isinstance(d, LocalDestination)}

        computing = Computing(models, routes.breakers, app[keys.LIFECYCLE])
        while True:
            for model in models().values():
                await model.sleep.look()
            await computing.look()
            await asyncio.sleep(LOOK_S)

    task = asyncio.create_task(follow(), name="look after models")
    yield
    task.cancel()
    await asyncio.wait([task])
