"""Models that sleep, over HTTP: who wakes them, who is told that they sleep, and what the figures say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gateway_site import Client, Serve, forget_environment, gauges, site
from team_files import key, write_team

from headgate.engine.models.resting import ReadAgain
from headgate.gateway import keys
from headgate.gateway.cli import main
from headgate.gateway.configuration.models import SleepSection
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.sleeping import Sleep

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "What is asleep?"}], "max_tokens": 6, "ignore_eos": True}
FRESH = {"Cache-Control": "no-cache"}


@pytest.fixture
async def serve(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "red-secret")
    async with AsyncExitStack() as stack:

        async def start(**sections: Any) -> Client:
            sleep = sections.pop("sleep", {})
            models = [
                {"id": "tiny", "path": str(tiny_checkpoint), "tier": "small", "sleep": sleep},
                {"id": "tiny-2", "path": str(tiny_checkpoint), "tier": "large"},
            ]
            return await stack.enter_async_context(site(tiny_checkpoint, models=models, **sections))

        yield start


async def ask(client: Client, model: str = "tiny") -> tuple[int, dict[str, Any], str]:
    response = await client.post(CHAT, json={**ASK, "model": model}, headers=FRESH)
    return response.status, await response.json(), response.headers.get("x-headgate-route", "")


async def admin(client: Client, what: str, model: str = "tiny") -> tuple[int, dict[str, Any]]:
    response = await client.post(f"/admin/models/{what}", json={"model": model})
    return response.status, await response.json()


def destination(client: Client, name: str = "tiny") -> LocalDestination:
    found = client.app[keys.LOADER].backend.routes.destinations[name]
    assert isinstance(found, LocalDestination)
    return found


async def test_a_request_wakes_a_sleeping_model_and_every_figure_says_so(serve: Serve) -> None:
    client = await serve()
    _, before, _ = await ask(client)
    taken = await gauges(client)
    status, state = await admin(client, "sleep")
    assert (status, state["state"], state["kv_bytes"], state["sleeps"], state["wakes"]) == (200, "asleep", 0, 1, 0)
    slept = await gauges(client)
    assert slept["headgate_kv_cache_bytes"] == taken["headgate_kv_cache_bytes"] / 2, "the other one's stays"
    assert (slept["headgate_model_asleep"], slept["headgate_model_sleeps_total"]) == (1, 1)
    for counter in ("headgate_steps_total", "headgate_generation_tokens_total", "headgate_step_seconds_total"):
        assert slept[counter] == taken[counter]
    status, after, _ = await ask(client)
    assert (status, after["choices"], after["usage"]) == (200, before["choices"], before["usage"])
    woken = await gauges(client)
    assert woken["headgate_kv_cache_bytes"] == taken["headgate_kv_cache_bytes"]
    assert (woken["headgate_model_asleep"], woken["headgate_model_wakes_total"]) == (0, 1)
    assert woken["headgate_generation_tokens_total"] == 2 * after["usage"]["completion_tokens"]
    listed = (await (await client.get("/admin/models")).json())["models"]
    assert [(m["model"], m["state"], m["wakes"]) for m in listed] == [("tiny", "awake", 1), ("tiny-2", "awake", 0)]
    assert listed[0]["wake_seconds"] == pytest.approx(woken["headgate_model_wake_seconds_total"])
    assert (await admin(client, "wake"))[1]["state"] == "awake", "who is awake stays so"
    assert (await admin(client, "sleep", "gpt-4"))[0] == 404
    assert (await admin(client, "sleep", ""))[1]["error"]["message"].endswith("Available: tiny, tiny-2.")


async def test_a_model_that_answers_does_not_sleep(serve: Serve) -> None:
    client = await serve()
    stream = await client.post(CHAT, json={**ASK, "model": "tiny", "max_tokens": 400, "stream": True})
    await stream.content.readuntil(b"\n\n")
    status, body = await admin(client, "sleep")
    assert (status, body["error"]["code"], body["error"]["param"]) == (409, "model_busy", "model")
    assert "1 of its requests run" in body["error"]["message"]
    assert b"[DONE]" in await stream.read()


async def test_a_model_that_requests_may_not_wake_is_named_and_left_out(serve: Serve) -> None:
    client = await serve(sleep={"on_request": "refuse"})
    await admin(client, "sleep")
    response = await client.post(CHAT, json={**ASK, "model": "tiny"}, headers=FRESH)
    error = (await response.json())["error"]
    assert (response.status, error["code"], response.headers["x-should-retry"]) == (503, "model_asleep", "false")
    assert "'tiny' is asleep" in error["message"]
    status, body, route = await ask(client, "small")
    assert (status, body["model"], route) == (200, "tiny-2", "fallback:not_ready")
    assert (await gauges(client))["headgate_route_breaker_state"] == 0, "to sleep is no fault"
    await admin(client, "wake")
    assert (await ask(client))[0] == 200


async def test_a_model_that_wakes_too_slowly_costs_a_bounded_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve(sleep={"wake_wait_s": 0.01})
    await admin(client, "sleep")
    may, back = threading.Event(), ReadAgain.back

    def slow(weights: ReadAgain) -> Any:
        assert may.wait(60)
        return back(weights)

    monkeypatch.setattr(ReadAgain, "back", slow)
    status, body, _ = await ask(client)
    assert (status, body["error"]["code"]) == (503, "model_asleep")
    assert "'tiny' was asleep and is not awake after 0.01 s" in body["error"]["message"]
    may.set()
    assert (await admin(client, "wake"))[1]["state"] == "awake", "it went on waking"
    assert (await ask(client))[0] == 200


async def test_a_model_that_cannot_be_woken_is_a_503_and_is_tried_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await serve()
    await admin(client, "sleep")
    with monkeypatch.context() as patch:
        patch.setattr(ReadAgain, "back", lambda _: 1 / 0)
        status, body, _ = await ask(client)
        assert (status, body["error"]["code"]) == (503, "model_asleep")
        status, body = await admin(client, "wake")
        assert status == 503
        assert "division by zero" in body["error"]["message"]
    assert (await ask(client))[0] == 200


async def test_an_idle_model_sleeps_after_the_seconds_that_are_set(serve: Serve) -> None:
    client = await serve()
    now = [100.0]
    model = destination(client).model
    sleep = Sleep(model, SleepSection(idle_s=10.0), lambda: now[0])
    never = Sleep(model, SleepSection(), lambda: now[0])

    async def look(who: Sleep, *seconds: float) -> str:
        for now[0] in seconds:
            await who.look()
        return sleep.stats.state

    assert await look(sleep, 100.0, 109.0) == "awake"
    await ask(client)
    assert await look(sleep, 110.0, 119.0) == "awake", "it worked in between"
    assert await look(never, 119.0, 1000.0) == "awake"
    assert await look(sleep, 120.0) == "asleep"
    await sleep.wake()
    assert await look(sleep, 129.0) == "awake", "who woke it may be about to ask"
    assert await look(sleep, 130.0) == "asleep"
    now[0] = 150.0
    await never.wake()
    assert await look(sleep, 151.0, 160.0) == "awake", "so may who woke it by the name of an adapter, which shares it"
    assert await look(sleep, 161.0) == "asleep"


async def test_what_nobody_waits_for_wakes_no_model(serve: Serve, tmp_path: Path) -> None:
    write_team(tmp_path, "red", key("red"), prompts={"pinned": ["You are patient. " * 12]})
    client = await serve(teams=tmp_path)
    pinned = client.app[keys.PINNED]

    async def held() -> float:
        await pinned.look()
        return (await gauges(client)).get("headgate_pinned_tokens", 0.0)

    both = await held()
    tiny = destination(client)
    await tiny.sleep.sleep()
    assert await held() == both / 2
    assert tiny.sleep.stats.state == "asleep"
    await tiny.sleep.wake()
    assert await held() == both, "they are read anew"
    await tiny.sleep.sleep()
    await tiny.sleep.wake()
    assert await held() == both
    assert tiny.model.stats().pinned_blocks > 0


async def command(client: Client, *arguments: str) -> Result:
    url = str(client.make_url("/"))
    return await asyncio.to_thread(CliRunner().invoke, main, ["models", *arguments, "--url", url])


async def test_the_command_line_does_the_same(serve: Serve) -> None:
    client = await serve()
    slept = await command(client, "sleep", "tiny")
    assert slept.output.split() == ["tiny", "asleep", "0.0", "MiB"]
    assert (await command(client, "wake", "tiny")).output.split()[:2] == ["tiny", "awake"]
    listed = await command(client, "list")
    assert [line.split()[:2] for line in listed.output.splitlines()] == [["tiny", "awake"], ["tiny-2", "awake"]]
    assert '"sleeps": 1' in (await command(client, "list", "--json")).output
    unknown = await command(client, "wake", "huge")
    assert (unknown.exit_code, "404" in unknown.output) == (1, True)
