"""A model that computes nothing any more: what `/ready` says of it, and when."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_site import Client, Serve

from headgate.engine.runner import Runner
from headgate.gateway import keys
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.health import Computing

HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


class Device:
    """Refuses what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses: Any = lambda _chunks: False
        real = Runner.run

        def run(runner: Runner, chunks: Any, *rest: Any, **named: Any) -> Any:
            if self.refuses(chunks):
                raise RuntimeError("an illegal memory access was encountered")
            return real(runner, chunks, *rest, **named)

        monkeypatch.setattr(Runner, "run", run)


async def ask(client: Client) -> int:
    return int((await client.post("/v1/chat/completions", json=HELLO)).status)


async def ready(client: Client) -> tuple[int, str, str]:
    reply = await client.get("/ready")
    said = await reply.json()
    return reply.status, said["status"], said["parts"]["model tiny"]["state"]


def watched(client: Client, clock: list[float]) -> Computing:
    app: Any = client.app
    routes = app[keys.LOADER].backend.routes
    models = {d.id: d for d in routes.destinations.values() if isinstance(d, LocalDestination)}
    return Computing(lambda: models, routes.breakers, app[keys.LIFECYCLE], lambda: clock[0])


async def test_a_device_that_refuses_all_work_is_told_until_it_works(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, clock = Device(monkeypatch), [0.0]
    client = await serve(routing={"breaker": {"failures": 2, "open_s": 600, "longest_s": 600}})
    computing = watched(client, clock)
    device.refuses = lambda _: True
    assert await ask(client) == 500
    await computing.look()
    assert await ready(client) == (200, "ready", "ready"), "one failure may be the request's"
    assert await ask(client) == 500
    await computing.look()
    assert await ready(client) == (503, "failing", "failed")
    assert await ask(client) == 500, "requests are told what is wrong, and do not wait"
    device.refuses = lambda _: False
    await computing.look()
    assert await ready(client) == (503, "failing", "failed"), "it is tried again after a while only"
    clock[0] += 5
    await computing.look()
    assert await ready(client) == (200, "ready", "ready")


async def test_a_request_that_is_answered_says_that_it_works(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    device, clock = Device(monkeypatch), [0.0]
    client = await serve(routing={"breaker": {"failures": 1, "open_s": 600, "longest_s": 600}})
    computing = watched(client, clock)
    device.refuses = lambda _: True
    assert await ask(client) == 500
    await computing.look()
    assert await ready(client) == (503, "failing", "failed")
    device.refuses = lambda _: False
    assert await ask(client) == 200
    await computing.look()
    assert await ready(client) == (200, "ready", "ready")


async def test_a_model_that_falls_asleep_is_tried_once_it_is_awake(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, clock = Device(monkeypatch), [0.0]
    client = await serve(routing={"breaker": {"failures": 1, "open_s": 600, "longest_s": 600}})
    computing = watched(client, clock)
    device.refuses = lambda _: True
    assert await ask(client) == 500
    await computing.look()
    assert await ready(client) == (503, "failing", "failed")
    assert (await client.post("/admin/models/sleep", json={"model": "tiny"})).status == 200
    await computing.look()
    assert await ready(client) == (200, "ready", "ready"), "nobody would ever wake it"
    assert (await client.post("/admin/models/wake", json={"model": "tiny"})).status == 200
    await computing.look()
    assert await ready(client) == (503, "failing", "failed")


async def test_requests_that_fail_by_themselves_leave_the_server_ready(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, clock = Device(monkeypatch), [0.0]
    client = await serve(routing={"breaker": {"failures": 1, "open_s": 600, "longest_s": 600}})
    device.refuses = lambda chunks: any(len(chunk.sequence.tokens) > 1 for chunk in chunks)
    assert await ask(client) == 500
    await watched(client, clock).look()
    assert await ready(client) == (200, "ready", "ready")
