"""Runs a gateway before the faulty server, and writes down what clients see and what the ledger has."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from headgate.bench.faults.server import CONTENT, USAGE, FaultyServer, faulty_server, good
from headgate.bench.faults.table import FAULTS, WHOLE, Fault
from headgate.bench.serving.servers import no_settings
from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.settings import Settings
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage

KEY = "sk-bench-0123456789"
PRICE = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 10.0,
         "usd_per_million_cached_tokens": 0.5}  # fmt: skip
_SHORT_S, _LONG_S = 0.5, 20.0
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Billed:
    """What the ledger has of one request's generations."""

    answers: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    nano_usd: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One request before one fault."""

    fault: Fault
    streams: bool
    once: bool
    seen: str
    asked: int
    """Requests that the faulty server got."""
    billed: Billed
    leaked: bool
    """Whether the key was in the reply."""
    seconds: float

    @property
    def place(self) -> str:
        """The upstream's id."""
        return place(self.fault, streams=self.streams, once=self.once)

    @property
    def problems(self) -> list[str]:
        """What is not as it should be."""
        fault, wanted = self.fault, self.fault.seen(streams=self.streams, once=self.once)
        found = [] if self.seen == wanted else [f"seen {self.seen}, not {wanted}"]
        asked = 2 if fault.retries(streams=self.streams) else 1
        if fault.at == "server" and self.asked != asked:
            found.append(f"asked {self.asked} times, not {asked}")
        if self.billed != bill(fault, wanted):
            found.append(f"billed {self.billed}, not {bill(fault, wanted)}")
        if self.leaked:
            found.append("the key is in the reply")
        return found


def bill(fault: Fault, seen: str) -> Billed:
    """What a request has to cost that saw this: a whole answer its tokens, anything else nothing."""
    if seen != WHOLE:
        return Billed()
    if fault.name == "no-account":
        # About what the prompt is, and a token for each piece.
        return Billed(1, 7, 0, 3, 7 * 1_000 + 3 * 10_000)
    return Billed(1, 11, 4, 3, 7 * 1_000 + 4 * 500 + 3 * 10_000)


def place(fault: Fault, *, streams: bool, once: bool) -> str:
    """The id of the upstream that one kind of request is sent to, so that none changes how another fares."""
    return f"{fault.name}:{'once' if once else 'always'}-{'stream' if streams else 'plain'}"


async def run_wall(faults: Sequence[Fault] = FAULTS) -> tuple[list[Row], int]:
    """Every fault, for clients that stream and that do not, always and once; and how many requests went astray."""
    kinds = [(f, streams, once) for f in faults for streams in (True, False) for once in (False, True)]
    kinds = [(f, streams, once) for f, streams, once in kinds if not once or f.at == "server"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        async with faulty_server({f.name: f.script or good for f in faults}) as server, _closed() as closed:
            upstreams = [_section(place(f, streams=s, once=o), f, server, closed, folder) for f, s, o in kinds]
            async with _gateway(folder, upstreams) as url, aiohttp.ClientSession(url) as client:
                turns = asyncio.Semaphore(_AT_ONCE)

                async def ask(model: str, *, streams: bool) -> tuple[str, bool, float]:
                    async with turns:
                        return await _asked(client, model, streams=streams)

                seen = await asyncio.gather(*(ask(place(f, streams=s, once=o), streams=s) for f, s, o in kinds))
            billed = _billed(folder / FILE)
            rows = [
                Row(f, s, o, text, server.asked[at], billed.get(at, Billed()), leaked, seconds)
                for (f, s, o), (text, leaked, seconds) in zip(kinds, seen, strict=True)
                for at in (place(f, streams=s, once=o),)
            ]
            return rows, server.strayed


def _section(name: str, fault: Fault, server: FaultyServer, closed: int, folder: Path) -> dict[str, Any]:
    key = folder / "key"
    key.write_text(KEY)
    urls = {"server": server.url, "closed": f"http://127.0.0.1:{closed}", "tls": server.url.replace("http:", "https:")}
    timeouts = {
        name: _SHORT_S if name == fault.waits else _LONG_S for name in ("connect_s", "first_token_s", "stall_s")
    }
    return {
        "id": name,
        "base_url": f"{urls[fault.at]}/{name}/v1",
        "model": "m",
        "api_key": f"file:{key}",
        "price": PRICE,
        "timeouts": timeouts,
        "retries": {"most": 1, "first_wait_s": 0.01},
    }


@asynccontextmanager
async def _closed() -> AsyncIterator[int]:
    """A port that nobody listens at, and nobody else can take."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@asynccontextmanager
async def _gateway(folder: Path, upstreams: list[dict[str, Any]]) -> AsyncIterator[str]:
    sections: dict[str, Any] = {
        "models": (),
        "upstreams": upstreams,
        "cache": {"exact": {"enabled": False}, "redis": "off"},
        "embeddings": {"enabled": False},
        "storage": {"folder": str(folder)},
        "teams": {"folder": None},
        "logging": {"access": False},
    }
    with no_settings():
        app = make_app(Settings(**sections))
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await runner.app[keys.LIFECYCLE].wait_until_ready()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _asked(client: aiohttp.ClientSession, model: str, *, streams: bool) -> tuple[str, bool, float]:
    """What a client sees, whether it sees the key, and how long that takes."""
    began = time.monotonic()
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with client.post("/v1/chat/completions", json=body) as reply:
        text = await reply.text()
        seen = _streamed(text) if reply.content_type == "text/event-stream" else _plain(reply.status, text)
        return seen, KEY in text or KEY in str(reply.headers), time.monotonic() - began


def _plain(status: int, text: str) -> str:
    body = json.loads(text)
    if status != 200:
        return f"{status} {body['error']['code']}"
    (choice,) = body["choices"]
    whole = choice["message"]["content"] == "".join(CONTENT) and choice["finish_reason"] == "stop"
    return WHOLE if whole and _counted(body["usage"]) else f"200 {text}"


def _streamed(text: str) -> str:
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    done = events[-1:] == ["[DONE]"]
    bodies = [json.loads(event) for event in events if event != "[DONE]"]
    choices = [choice for body in bodies for choice in body.get("choices", ())]
    said = "".join(choice["delta"].get("content", "") for choice in choices)
    finishes = [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]
    failed = next((body["error"] for body in bodies if "error" in body), None)
    if failed is not None and not finishes and not done:
        return f"{said}, then error {failed['code']}"
    whole = said == "".join(CONTENT) and finishes == ["stop"] and done and failed is None
    return WHOLE if whole and _counted(bodies[-1]["usage"]) else text


def _counted(usage: dict[str, Any]) -> bool:
    """Whether tokens are counted: as the server says, or about, where it says nothing."""
    return bool(usage["completion_tokens"] == USAGE["completion_tokens"] and usage["prompt_tokens"] > 0)


def _billed(ledger: Path) -> dict[str, Billed]:
    return {
        str(row[0]): Billed(*(int(str(value)) for value in (row[1], row[2], row[3], row[4], row[6])))
        for row in read_usage(ledger, ("model",), None, None)
    }
