"""Readiness, draining, and keys."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from typing import Any

import pytest
from aiohttp import web
from gateway_site import Serve, forget_environment

from headgate.engine.runner import Runner
from headgate.gateway import keys
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.server import run_server
from headgate.gateway.settings import Settings
from headgate.gateway.wire.errors import ApiError


async def test_ready_means_every_required_part() -> None:
    lifecycle = Lifecycle()
    lifecycle.set("a", "loading")
    lifecycle.set("b", "loading")
    lifecycle.set("extra", "failed", "no package", required=False)
    lifecycle.set("a", "ready")
    assert not lifecycle.ready
    lifecycle.set("b", "ready")
    assert lifecycle.ready
    assert lifecycle.parts["extra"] == ("failed", "no package")


async def test_a_request_waits_for_loading_parts_and_no_longer_than_told() -> None:
    lifecycle = Lifecycle()
    lifecycle.set("model a", "loading")
    with pytest.raises(ApiError) as caught:
        await lifecycle.wait_ready(0.0)
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "1")
    assert "model a" in caught.value.message
    waiting = asyncio.create_task(lifecycle.wait_ready(60.0))
    await asyncio.sleep(0)
    lifecycle.set("model a", "ready")
    await waiting


async def test_draining_refuses_who_waits_for_parts_that_load() -> None:
    lifecycle = Lifecycle()
    lifecycle.set("model a", "loading")

    async def ask() -> None:
        with lifecycle.request():
            await lifecycle.wait_ready(60.0)

    asked = asyncio.create_task(ask())
    await asyncio.sleep(0)
    assert await lifecycle.drain(60.0)
    with pytest.raises(ApiError, match="shutting down"):
        await asked


async def test_draining_refuses_new_requests_and_waits_for_the_old() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request():
        draining = asyncio.create_task(lifecycle.drain(60.0))
        await asyncio.sleep(0)
        assert lifecycle.phase == "draining"
        assert not draining.done()
        with pytest.raises(ApiError) as caught, lifecycle.request():
            raise AssertionError("admitted while draining")
        assert caught.value.status == 503
    assert await draining


async def test_a_request_whose_body_comes_while_the_server_drains_is_one_of_the_old() -> None:
    lifecycle = Lifecycle()
    lifecycle.set("model a", "ready")
    with lifecycle.request():
        draining = asyncio.create_task(lifecycle.drain(60.0))
        await asyncio.sleep(0)
        await lifecycle.wait_ready(60.0)
        draining.cancel()
        await asyncio.wait([draining])
        with pytest.raises(ApiError, match="shutting down"):
            await lifecycle.wait_ready(60.0)


async def test_draining_ends_at_the_deadline() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request():
        assert not await lifecycle.drain(0.0)
    assert lifecycle.in_flight == 0


async def test_after_the_first_signal_to_end_the_second_is_not_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    for module, name in ((gc, "freeze"), (gc, "set_threshold"), (sys, "setswitchinterval")):
        monkeypatch.setattr(module, name, lambda *_: None)  # what a server does to its process
    sections: dict[str, Any] = {
        "server": {"port": 0, "drain_s": 30},
        "models": [],
        "upstreams": [{"id": "up", "base_url": "http://127.0.0.1:9/v1", "model": "theirs"}],
        "cache": {"redis": "off", "semantic": {"enabled": False}},
        "embeddings": {"enabled": False},
        "storage": {"folder": None},
        "teams": {"folder": None},
    }
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in (*numbers, signal.SIGHUP)}
    app: asyncio.Future[web.Application] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run_server(Settings(**sections), lambda *_: None, lambda _, made: app.set_result(made))
    )
    try:
        lifecycle = (await app)[keys.LIFECYCLE]
        with lifecycle.request():
            signal.raise_signal(signal.SIGTERM)
            while lifecycle.phase != "draining":  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0)
            assert [signal.getsignal(number) for number in numbers] == [signal.SIG_DFL] * 2
        await serving
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def test_a_step_that_hangs_does_not_keep_the_server_from_ending(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, goes_on = await serve(), threading.Event()
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def hanging(*_: Any, **__: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait()
        raise RuntimeError("the device is back")

    monkeypatch.setattr(Runner, "run", hanging)
    monkeypatch.setattr("headgate.gateway.backend.STOP_S", 0.01)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
    asked = asyncio.create_task(client.post("/v1/chat/completions", json=body))
    await begun.wait()
    app: Any = client.app
    try:
        async with asyncio.timeout(10):
            await app[keys.LOADER].cancel()
    finally:
        goes_on.set()
    await asked
