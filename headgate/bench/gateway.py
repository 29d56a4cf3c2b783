"""What the gateway itself takes for a request, by answers from the exact cache, beside a handler that does nothing."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headgate.bench.http_load import Request
from headgate.bench.servers import Server, announced, gateway

KEY = "bench-key-0123456789"
BODY = json.dumps(
    {"model": "demo-student", "messages": [{"role": "user", "content": "What is 12 plus 30?"}], "max_tokens": 16}
).encode()
REQUEST = Request("/v1/chat/completions", {"Authorization": f"Bearer {KEY}"}, BODY)
_SEED = b"1234567890123456"
FRESH = replace(
    REQUEST, body=BODY.replace(b'"model"', b'"temperature": 0, "seed": ' + _SEED + b', "model"'), fresh=_SEED
)
"""Each request with a seed of its own, which changes no answer at temperature 0: the same answer to a new body."""
BARE = """
import asyncio, sys
import uvloop
from aiohttp import web

answers = {}

async def handler(request):
    body = await request.read()
    return web.Response(body=answers[body], content_type="application/json")

async def main():
    answers[bytes.fromhex(sys.argv[1])] = bytes.fromhex(sys.argv[2])
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()

uvloop.run(main())
"""


@contextmanager
def headgate_server(core: int, folder: Path) -> Iterator[Server]:
    """The gateway over the demo student, with everything counted."""
    settings = {
        "models": [{"id": "demo-student", "path": "demo:student", "tier": "small"}],
        "engine": {"threads": 1},
        "cache": {"semantic": {"enabled": False}, "redis": "off"},
        "logging": {"access": "off"},
    }
    with gateway(settings, folder, core, {"OMP_NUM_THREADS": "1"}, key=KEY) as server:
        yield server


@contextmanager
def bare_server(core: int, folder: Path, answer: bytes) -> Iterator[Server]:
    """An aiohttp handler that finds the answer in a dict: what HTTP alone takes here."""
    with announced([sys.executable, "-c", BARE, BODY.hex(), answer.hex()], folder / "bare.log", core) as server:
        yield server


def first_answer(server: Server) -> bytes:
    """Have the answer made and stored; the body of its reply from the cache."""
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        BODY,
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    for _ in range(2):
        with urllib.request.urlopen(request, timeout=120) as reply:
            body, verdict = reply.read(), reply.headers["x-headgate-cache"]
    if verdict != "exact":
        raise RuntimeError(f"the answer was asked for twice and not found in the cache: {verdict}")
    return bytes(body)
