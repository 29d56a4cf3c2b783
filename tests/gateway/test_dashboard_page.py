"""The operator's page in a browser: signs in, shows what the server says, explains a request, and asks nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from browser import CHROMIUM, Page, browser
from gateway_site import forget_environment, site
from team_files import key, write_team

from headgate.gateway import keys
from headgate.gateway.api.dashboard import WATCHED
from headgate.gateway.dashboard.history import KEPT

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")

SECRET = "sk-ops-0123456789abcdef"
KEY = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
async def client(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestClient[Any, Any]]:
    forget_environment(monkeypatch)
    monkeypatch.setenv("OPS_KEY", SECRET)
    write_team(tmp_path / "teams", "red", key("ops", role="admin"), budgets={"daily_device_s": 3600})
    async with site(tiny_checkpoint, teams=tmp_path / "teams") as found:
        yield found


async def chat(client: TestClient[Any, Any], text: str) -> str:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0}
    reply = await client.post("/v1/chat/completions", json=body, headers=KEY)
    assert reply.status == 200, await reply.text()
    return reply.headers["x-request-id"]


@asynccontextmanager
async def signed_in(client: TestClient[Any, Any]) -> AsyncIterator[Page]:
    """The overview, as the operator sees it."""
    async with browser() as page:
        await page.size(1280, 900)
        await page.open(str(client.make_url("/dashboard")))
        await page.until("document.activeElement?.id === 'key'")
        await page.type(SECRET)
        await page.key("Enter")
        await page.until("document.querySelector('.figure .value b')?.textContent")
        yield page


async def looked(page: Page, times: int = 2) -> None:
    """The page has asked for what is new, so often, and shown what it was told before."""
    asked = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/admin/live')).length"
    await page.until(f"{asked} >= {await page.run(asked) + times}")


async def fits(page: Page) -> bool:
    """Whether nothing has to be pushed sideways to be seen."""
    return bool(await page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


async def test_an_operator_signs_in_and_sees_what_the_server_says(client: TestClient[Any, Any], tmp_path: Path) -> None:
    for text in ("one", "two", "two"):
        request_id = await chat(client, text)
    assert client.app is not None
    client.app[WATCHED].history.take()
    write_team(tmp_path / "teams", "broken", nonsense={})
    await client.app[keys.RELOADER].look()
    base = str(client.make_url("")).rstrip("/")
    async with browser() as page:
        await page.size(1280, 900)
        await page.prefer("light")
        await page.open(f"{base}/dashboard")

        # The key goes in by keyboard alone; a wrong one is refused in words.
        await page.until("document.activeElement?.id === 'key'")
        await page.type("sk-wrong")
        await page.key("Enter")
        await page.until("document.querySelector('[role=alert]') !== null")
        assert [text for text in page.complaints if "401" not in text] == []
        page.complaints.clear()
        await page.type(SECRET)
        await page.key("Enter")

        await page.until("document.querySelector('.figure .value b')?.textContent")
        live = await (await client.get("/admin/live", headers=KEY)).json()
        figures = await page.text(".figures")
        assert f"{live['traffic']['requests']} since the start" in figures
        assert f"{live['traffic']['generated_tokens']} generated, {live['traffic']['prompt_tokens']} read" in figures
        assert "tiny-2" in await page.text("[aria-label=Models]")
        assert "exact" in await page.text("[aria-label='Answer cache']")
        assert "red" in await page.text("[aria-label=Teams]")
        assert live["config"]["revision"] in await page.text("[aria-label=Configuration]")
        assert "broken.yaml" in await page.text(".problems")
        light = await page.picture()

        # The arrow keys tell the values of a moment in all charts.
        assert await page.text(".span time") == ""
        await page.run("document.querySelector('.chart').focus()")
        await page.key("ArrowLeft")
        assert await page.text(".span time") != ""
        cursors = "document.querySelectorAll('.cursor[visibility=visible]').length"
        assert await page.run(cursors) == await page.run("document.querySelectorAll('.chart').length")
        assert await fits(page)

        # One request is explained by its id.
        await page.run("location.hash = '#/requests'")
        await page.until("document.querySelector('.found a') !== null")
        assert await page.run("document.querySelectorAll('.found tbody tr').length") == 3
        await page.run("document.querySelector('.found a').click()")
        await page.until("document.querySelector('.way') !== null")
        told = await page.text(".request")
        assert request_id in told
        assert "The very same request was answered before." in told

        # By the system's wish and by the button, and on a phone.
        await page.run("location.hash = '#/'")
        await page.until("document.querySelector('.figure .value b')?.textContent")
        await page.prefer("dark")
        colour = "getComputedStyle(document.body.parentElement).backgroundColor"
        dark = await page.run(colour)
        assert await page.picture() != light
        await page.run("document.querySelector('#theme').click()")
        assert await page.run(colour) != dark
        for view in ("#/", "#/requests", f"#/requests/{request_id}"):
            await page.size(375, 812)
            await page.run(f"location.hash = '{view}'")
            await page.until("document.querySelector('.figures, .found, .way') !== null")
            assert await fits(page), view

        # The key left with the tab's storage, and nobody else was asked for anything.
        assert await page.run("JSON.stringify(sessionStorage)") == f'{{"headgate-admin-key":"{SECRET}"}}'
        assert SECRET not in await page.run("JSON.stringify(localStorage) + document.cookie + location.href")
        assert {url for url in page.asked if not url.startswith(f"{base}/")} == set()
        assert page.complaints == []


async def test_the_key_can_be_given_again_whatever_was_given_first(client: TestClient[Any, Any]) -> None:
    async with browser() as page:
        await page.open(str(client.make_url("/dashboard")))
        await page.until("document.activeElement?.id === 'key'")
        await page.type("sk-ops…–日本")
        await page.key("Enter")
        await page.until("document.querySelector('[role=alert]') !== null")
        assert "Incorrect API key provided" in await page.text("#why")

        # Whoever fetches the key from another tab finds the form as it was.
        await page.type("sk-ops")
        await page.run("document.dispatchEvent(new Event('visibilitychange'))")
        await page.run("fetch('/ready').then((reply) => reply.text())")
        assert await page.run("document.querySelector('#key').value") == "sk-ops"
        assert "Incorrect API key provided" in await page.text("#why")


@pytest.mark.parametrize(
    "how",
    [
        "get() { throw new DOMException('denied', 'SecurityError'); }",
        "value: null",
        "value: { getItem: () => null, setItem() { throw new DOMException('full', 'QuotaExceededError'); } }",
    ],
)
async def test_a_browser_that_keeps_nothing_shows_the_page_too(client: TestClient[Any, Any], how: str) -> None:
    async with browser() as page:
        for name in ("localStorage", "sessionStorage"):
            source = f"Object.defineProperty(window, '{name}', {{ {how} }})"
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
        await page.open(str(client.make_url("/dashboard")))
        await page.until("document.activeElement?.id === 'key'")
        await page.type(SECRET)
        await page.key("Enter")
        await page.until("document.querySelector('.figure .value b')?.textContent")
        await page.run("document.querySelector('#theme').click()")
        assert await page.run("document.documentElement.dataset.theme") == "light"
        assert page.complaints == []


async def test_the_list_goes_on_for_whoever_points_and_says_of_which_day(client: TestClient[Any, Any]) -> None:
    await chat(client, "one")
    async with signed_in(client) as page:
        await page.run("location.hash = '#/requests'")
        await page.until("document.querySelector('.found a') !== null")
        rows = "document.querySelectorAll('.found tbody tr').length"
        assert await page.run(rows) == 1
        x, y = await page.run(
            "(({ x, y }) => [x + 2, y + 2])(document.querySelector('.found td:nth-child(3)').getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        await chat(client, "two")
        await page.until(f"{rows} === 2")
        today = await page.text(".found td")
        assert len(today) == len("12:34:56")

        tomorrow = "class extends Date { constructor(...of) { of.length ? super(...of) : super(Date.now() + 864e5); } }"
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=f"globalThis.Date = {tomorrow}")
        await page.open("about:blank")
        await page.open(str(client.make_url("/dashboard#/requests")))
        await page.until("document.querySelector('.found a') !== null")
        assert (await page.text(".found td")).endswith(f", {today}")


async def test_a_moment_stays_the_same_while_the_oldest_leave(client: TestClient[Any, Any]) -> None:
    assert client.app is not None
    history = client.app[WATCHED].history
    for _ in range(KEPT):
        history.take()
    await chat(client, "one")
    history.take()
    history.take()
    async with signed_in(client) as page:
        await page.run("document.querySelector('.chart').focus()")
        chosen, rate = "", "0"
        while rate == "0":  # the server goes on taking points
            await page.key("ArrowLeft")
            rate, chosen = await page.text(".legend b"), await page.text(".span time")
        for _ in range(3):
            history.take()
        await looked(page)
        # From midnight on the day is said before it.
        assert (await page.text(".legend b"), (await page.text(".span time"))[-len(chosen) :]) == (rate, chosen)
        for _ in range(KEPT):
            history.take()
        await looked(page)
        assert await page.text(".span time") == "", "it has left"


async def test_long_names_do_not_push_the_page_aside(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    models = [{"id": letter * 100, "path": str(tiny_checkpoint), "tier": "small"} for letter in "mn"]
    away = {"id": "u" * 100, "base_url": "http://127.0.0.1:1/v1", "model": "m", "retries": {"most": 0}}
    async with site(tiny_checkpoint, models=models, upstreams=[away]) as client, browser() as page:
        body = {"model": away["id"], "messages": [{"role": "user", "content": "hello"}]}
        request_id = (await client.post("/v1/chat/completions", json=body)).headers["x-request-id"]
        await page.open(str(client.make_url("/dashboard")))
        for width in (1280, 375):
            await page.size(width, 812)
            for view in ("#/", "#/requests", f"#/requests/{request_id}"):
                await page.run(f"location.hash = '{view}'")
                await page.until("document.querySelector('.figures, .found, .way') !== null")
                assert await fits(page), (width, view)
            assert "unreachable" in await page.text(".way"), "what was tried in vain is told on a phone too"
