"""A whole server over a tiny model, for tests of the application."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web_app
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from headgate.engine.runner import Runner
from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.configuration.live import MainFile
from headgate.gateway.settings import ENV_PREFIX, Settings

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]
"""Starts a server with sections of the settings of the test's own."""


def forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the machine must not configure a server under test."""
    for name in list(os.environ):
        if name.startswith(ENV_PREFIX) or name == "REDIS_URL":
            monkeypatch.delenv(name)


@asynccontextmanager
async def site(
    checkpoint: Path, *, teams: Path | None = None, main: Path | None = None, **sections: Any
) -> AsyncIterator[Client]:
    """A server with the checkpoint under the ids `tiny` (small) and `tiny-2` (large), ready, and a client of it.

    `teams` is a folder of team files; `main` is where the settings are written to, as a file that is followed. No
    embedding model is loaded. A Redis that happens to run on this machine is not used, nor the user's data folder.
    """
    defaults: dict[str, Any] = {
        "models": [
            {"id": "tiny", "path": str(checkpoint), "tier": "small"},
            {"id": "tiny-2", "path": str(checkpoint), "tier": "large"},
        ],
        "cache": {"semantic": {"enabled": False}},
        "embeddings": {"enabled": False},
        "storage": {"folder": None},
        "engine": {"device": "cpu", "kv_bytes": 8 * 1024 * 1024, "threads": 1},
        "teams": {"folder": None if teams is None else str(teams)},
    }
    chosen = {**defaults, **sections}
    tree = {**chosen, "cache": {"redis": "off", **chosen["cache"]}}
    settings = Settings(**tree)
    if main is not None:
        main.write_text(yaml.safe_dump(tree))  # noqa: ASYNC240  nothing else runs yet
    app = make_app(settings, None if main is None else MainFile(main, settings, settings))
    # Like `run_server`, aiohttp's test server cancels the handler of a client that leaves.
    try:
        async with TestClient(TestServer(app)) as client:
            await app[keys.LIFECYCLE].wait_until_ready()
            yield client
    finally:
        # aiohttp remembers a thousand handlers of whatever applications, and with them their models.
        web_app._cached_build_middleware.cache_clear()


async def events(response: Any) -> list[Any]:
    """The decoded events of a stream; `[DONE]` stays as it is."""
    text = (await response.read()).decode()
    frames = [part for part in text.split("\n\n") if part]
    assert all(f.startswith(("data: ", ":")) for f in frames)
    data = [f.removeprefix("data: ") for f in frames if f.startswith("data: ")]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


async def gauges(client: Client) -> dict[str, float]:
    """Samples by name, summed over labels; and requests by code, as `code 200`."""
    text = await (await client.get("/metrics")).text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for name in (sample.name, f"code {sample.labels.get('code')}"):
                found[name] = found.get(name, 0.0) + sample.value
    return found


async def until(client: Client, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Scrape until the condition holds; each scrape gives the engine a turn. Bounded by time."""
    async with asyncio.timeout(20):
        while True:
            found = await gauges(client)
            if condition(found):
                return found


def break_third_step(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The engine's third step fails, once what is given back is set.

    Not before the client has seen the beginning: what breaks earlier has a status of its own.
    """
    real, loop, read = Runner.run, asyncio.get_running_loop(), asyncio.Event()
    steps = [0]

    def broken(self: Runner, chunks: Any, *run: Any, **named: Any) -> Any:
        steps[0] += 1
        if steps[0] == 3:
            asyncio.run_coroutine_threadsafe(read.wait(), loop).result(timeout=20)
            raise RuntimeError("the device is on fire")
        return real(self, chunks, *run, **named)

    monkeypatch.setattr(Runner, "run", broken)
    return read


def hold_steps(monkeypatch: pytest.MonkeyPatch, rows: int) -> tuple[asyncio.Event, asyncio.Event]:
    """A step of so many rows waits: the first event says that one does, the second has it go on."""
    real, loop = Runner.run, asyncio.get_running_loop()
    held, free = asyncio.Event(), asyncio.Event()

    def holding(self: Runner, chunks: Any, *run: Any, **named: Any) -> Any:
        if len(chunks) == rows and not held.is_set():
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(free.wait(), loop).result(timeout=20)
        return real(self, chunks, *run, **named)

    monkeypatch.setattr(Runner, "run", holding)
    return held, free
