"""Takes the pictures of the operator's page in docs/images, of a server under traffic of every kind.

`make pictures`, with Chromium installed. The figures in them are of that moment on that machine, and measure nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from browser import Page, browser
from PIL import Image
from server_process import run_server
from team_files import write_team
from upstream_server import finish_event, text_event, upstream_server

from headgate.engine.demo.tasks.generator import generate
from headgate.engine.demo.tasks.sample import Sample
from headgate.engine.demo.tasks.variants import variants

SECRETS = {"OPS_KEY": "sk-ops-pictures", "RESEARCH_KEY": "sk-research-pictures", "SUPPORT_KEY": "sk-support-pictures"}
PLAIN, CHATS = "What is the capital of France?", "/v1/chat/completions"
LINES, BAD_EVERY = 6000, 40
CLIENTS, EVERY_S = 3, 0.35
"""Clients at a time, and how long each waits between its requests at most."""


async def paced(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
    """What a hosted server would take for an answer; every eighth or so fails."""
    if random.random() < 0.12:
        raise web.HTTPServiceUnavailable(headers={"retry-after-ms": "40"})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await asyncio.sleep(0.05)
    await response.prepare(request)
    for word in ("A", "hosted", "model", "answers", "word", "by", "word."):
        await response.write(text_event(f"{word} "))
        await asyncio.sleep(0.012)
    await response.write(finish_event() + b"data: [DONE]\n\n")
    return response


def configured(folder: Path, hosted: str) -> Path:
    """A main file with an upstream that answers and one that cannot be reached, and teams with budgets."""
    secret = {name: {"id": name.lower()[:-4], "secret": f"env:{name}"} for name in SECRETS}
    teams = folder / "teams"
    write_team(teams, "platform", {**secret["OPS_KEY"], "role": "admin"})
    write_team(
        teams,
        "research",
        secret["RESEARCH_KEY"],
        budgets={"daily_usd": 0.05, "monthly_device_s": 900},
        cache={"share": "team"},
    )
    write_team(
        teams, "support", secret["SUPPORT_KEY"], budgets={"daily_device_s": 20}, limits={"requests_per_minute": 40}
    )
    main = folder / "headgate.yaml"
    price = {"usd_per_million_prompt_tokens": 1.25, "usd_per_million_completion_tokens": 10}
    tree = {
        "teams": {"folder": str(teams)},
        "engine": {"usd_per_device_hour": 1.2},
        "upstreams": [
            {"id": "hosted", "base_url": hosted, "model": "big", "price": price},
            # Nobody listens there.
            {"id": "hosted-eu", "base_url": "http://127.0.0.1:1/v1", "model": "big", "price": price, "tier": "large"},
        ],
    }
    main.write_text(yaml.safe_dump(tree))
    return main


class Traffic:
    """Clients of three teams."""

    def __init__(self, session: aiohttp.ClientSession, seed: int = 5) -> None:
        self._session = session
        self._rng = random.Random(seed)
        self._asked: list[list[dict[str, str]]] = []
        self._variants = variants(20_000, seed=seed)
        self.hosted: list[str] = []
        """Requests that the other server answered."""

    async def run(self, seconds: float) -> None:
        """Ask for so long."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client(until))

    async def _client(self, until: float) -> None:
        while time.monotonic() < until:
            await self._one()
            await asyncio.sleep(self._rng.random() * EVERY_S)

    async def _one(self) -> None:
        draw = self._rng.random()
        if draw < 0.05:
            await self.ask("RESEARCH_KEY", "/v1/embeddings", {"model": "all-minilm-l6-v2", "input": PLAIN})
        elif draw < 0.12:
            body = {"model": "small", "max_tokens": 60, "messages": self._messages()}
            await self.ask("RESEARCH_KEY", "/v1/messages", body)
        elif draw < 0.22:
            chosen = "hosted" if draw < 0.2 else "hosted-eu"
            headers = await self.chat("RESEARCH_KEY", model=chosen)
            if chosen == "hosted" and headers.get("x-headgate-model") == "hosted":
                self.hosted.append(headers["x-request-id"])
        elif draw < 0.3:
            await self.chat("RESEARCH_KEY", temperature=1)
        elif draw < 0.36:
            await self.chat("RESEARCH_KEY", model="large")
        elif draw < 0.55:
            await self.chat("SUPPORT_KEY", stream=True)
        else:
            await self.chat("RESEARCH_KEY", stream=draw < 0.9)

    async def chat(self, key: str, **fields: Any) -> Mapping[str, str]:
        body = {"model": "auto", "temperature": 0, "max_tokens": 120, "messages": self._messages(), **fields}
        return await self.ask(key, CHATS, body)

    async def ask(self, key: str, path: str, body: dict[str, Any]) -> Mapping[str, str]:
        """The reply's headers, once it was read."""
        headers = {"Authorization": f"Bearer {SECRETS[key]}"}
        async with self._session.post(path, json=body, headers=headers) as reply:
            await reply.read()
            return reply.headers

    def _messages(self) -> list[dict[str, str]]:
        """Something asked before, or a question with another in the same sense and one that only looks the same."""
        if self._asked and self._rng.random() < 0.5:
            return self._rng.choice(self._asked[-30:])
        triple = next(self._variants)
        new = [_messages(sample) for sample in (triple.original, triple.paraphrase, triple.near_miss)]
        self._asked += new
        return new[0]


def _messages(sample: Sample) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in sample.messages]


async def batch(session: aiohttp.ClientSession, lines: int) -> None:
    """Begin a batch of so many lines, of which some cannot be answered."""
    asks = []
    for number, sample in enumerate(generate(lines, seed=lines, split="test")):
        model = "nobody-knows" if number % BAD_EVERY == 7 else "auto"
        body = {"model": model, "max_tokens": 200, "temperature": 0, "messages": _messages(sample)}
        asks.append({"custom_id": f"ask-{number}", "method": "POST", "url": CHATS, "body": body})
    headers = {"Authorization": f"Bearer {SECRETS['RESEARCH_KEY']}"}
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", "\n".join(map(json.dumps, asks)), filename="asks.jsonl")
    async with session.post("/v1/files", data=form, headers=headers) as reply:
        file = (await reply.json())["id"]
    begun = {"input_file_id": file, "endpoint": CHATS, "completion_window": "24h"}
    async with session.post("/v1/batches", json=begun, headers=headers) as reply:
        reply.raise_for_status()


async def retried(session: aiohttp.ClientSession, requests: Sequence[str]) -> str:
    """The latest of these requests before whose answer an attempt failed."""
    for request in reversed(requests):
        headers = {"Authorization": f"Bearer {SECRETS['OPS_KEY']}"}
        async with session.get(f"/admin/requests/{request}", headers=headers) as reply:
            if reply.ok and (await reply.json())["failed"]:
                return request
    raise SystemExit("no attempt has failed: let it run longer")


async def wide(page: Page, most: int) -> Image.Image:
    """The page as far down as it goes, up to so many pixels."""
    await page.size(1280, min(most, await page.run("document.documentElement.scrollHeight")))
    return await seen(page)


async def narrow(page: Page, places: Sequence[str]) -> Image.Image:
    """Screens of a phone side by side, each scrolled to one of these places."""
    screens = []
    for place in places:
        await page.run(f"document.querySelector({place!r}).scrollIntoView()")
        await page.run("scrollBy(0, -64 - document.querySelector('.top').offsetHeight * (scrollY > 0))")
        screens.append(await seen(page))
    gap = 48
    together = Image.new("RGB", (sum(one.width + gap for one in screens) - gap, screens[0].height), "white")
    for number, one in enumerate(screens):
        together.paste(one, (number * (one.width + gap), 0))
    return together


async def seen(page: Page) -> Image.Image:
    """What is seen once the page has had time to ask again."""
    await page.run("new Promise((done) => setTimeout(done, 2500))")
    return Image.open(io.BytesIO(await page.picture())).convert("RGB")


def keep(picture: Image.Image, path: Path) -> None:
    """In as many colours as a palette has."""
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size // 1024} KiB")


async def take_all(url: str, folder: Path, request: str) -> None:
    """The views, light and dark, wide and on a phone."""
    async with browser() as page:
        await page.size(1280, 900)
        await page.open(f"{url}/dashboard")
        await page.until("document.activeElement?.id === 'key'")
        await page.type(SECRETS["OPS_KEY"])
        await page.key("Enter")

        async def view(scheme: str, address: str, there: str) -> None:
            await page.prefer(scheme)
            await page.run(f"location.hash = '{address}'")
            await page.until(f"document.querySelector({there!r}) !== null")

        await view("light", "#/", "[aria-label=Batches] .dot.first")
        keep(await wide(page, 2080), folder / "dashboard-light.png")
        await view("dark", "#/", ".figures")
        keep(await wide(page, 900), folder / "dashboard-dark.png")
        await view("light", "#/requests", ".found a")
        keep(await wide(page, 700), folder / "dashboard-requests.png")
        await view("dark", f"#/requests/{request}", ".way")
        keep(await wide(page, 2000), folder / "dashboard-request.png")
        await page.size(390, 844, scale=2)
        await view("light", "#/", "[aria-label=Batches]:not([hidden])")
        keep(
            await narrow(page, ("html", "[aria-label=Models]", "[aria-label=Batches]")),
            folder / "dashboard-phone.png",
        )


async def main(seconds: float, folder: Path) -> None:
    """Serve, ask, and take the pictures while it goes on."""
    with tempfile.TemporaryDirectory(prefix="headgate-pictures-") as name:
        async with upstream_server() as hosted:
            hosted.script = paced
            main_file = configured(Path(name), hosted.url)
            with run_server(Path(name), "--config", str(main_file), **SECRETS) as server:
                async with aiohttp.ClientSession(server.url) as session, asyncio.TaskGroup() as group:
                    traffic = Traffic(session)
                    asking = group.create_task(traffic.run(seconds + 120))
                    await batch(session, 60)
                    await asyncio.sleep(seconds)
                    await batch(session, LINES)
                    await asyncio.sleep(6)
                    await take_all(server.url, folder, await retried(session, traffic.hosted))
                    asking.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="how long there is traffic before")
    parser.add_argument("--folder", type=Path, default=Path("docs/images"), help="where the pictures go")
    given = parser.parse_args()
    asyncio.run(main(given.seconds, given.folder))
