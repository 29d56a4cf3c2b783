"""What the gateway itself takes for a request, by answers from the exact cache, beside a handler that does nothing.

The server has one core and the clients another. Each client has a connection and sends its next request when the answer
to the last is there; a thread-free protocol reads just enough of replies to know where they end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

KEY = "bench-key-0123456789"
BODY = json.dumps(
    {"model": "demo-student", "messages": [{"role": "user", "content": "What is 12 plus 30?"}], "max_tokens": 16}
).encode()
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TICKS = os.sysconf("SC_CLK_TCK")
_SERVER = {
    "HEADGATE_CACHE__SEMANTIC__ENABLED": "false",
    "HEADGATE_CACHE__REDIS": "off",
    "HEADGATE_LOGGING__ACCESS": "off",
    "OMP_NUM_THREADS": "1",
    "BENCH_KEY": KEY,
}

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


@dataclass(frozen=True, slots=True)
class Load:
    """One run of a server under load. Times are seconds."""

    requests: int
    seconds: float
    latencies: tuple[float, ...]
    """Sorted."""
    cpu_s: float
    """Of the server's process."""

    @property
    def per_second(self) -> float:
        """Requests answered in a second."""
        return self.requests / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Of the server for a request."""
        return self.cpu_s / self.requests * 1e3

    def percentile(self, share: float) -> float:
        """A latency that so many of them do not pass, in milliseconds."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))] * 1e3


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a process of its own, on a core of its own."""

    url: str
    pid: int

    @property
    def cpu_s(self) -> float:
        """What its process has computed so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def cores() -> tuple[int, int]:
    """One for the server, one for the clients."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RuntimeError("two cores are needed, one for the server and one for the clients; this process may use one")
    return usable[0], usable[1]


@contextmanager
def headgate_server(core: int, folder: Path) -> Iterator[Server]:
    """The gateway over the demo student: a key, limits that are counted and never met, ledger and metrics."""
    config, teams = folder / "headgate.yaml", folder / "teams"
    teams.mkdir()
    million = 1_000_000_000
    limits = {"requests_per_minute": million, "tokens_per_minute": million, "concurrency": 10_000}
    settings = {
        "models": [{"id": "demo-student", "path": "demo:student", "tier": "small"}],
        "teams": {"folder": str(teams)},
        "storage": {"folder": str(folder / "data")},
        "engine": {"threads": 1},
    }
    team = {
        "team": {"name": "bench"},
        "keys": [{"id": "bench", "secret": "env:BENCH_KEY"}],
        "limits": limits,
        "budgets": {"daily_usd": 1000.0},
    }
    (teams / "bench.yaml").write_text(json.dumps(team))
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", "0", "--config", str(config)]
    with _process(command, core, _SERVER, folder) as server:
        yield server


@contextmanager
def bare_server(core: int, folder: Path, answer: bytes) -> Iterator[Server]:
    """An aiohttp handler that finds the answer in a dict: what HTTP alone takes here."""
    command = [sys.executable, "-c", BARE, BODY.hex(), answer.hex()]
    with _process(command, core, {}, folder) as server:
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


def load(server: Server, core: int, concurrency: int, seconds: float) -> Load:
    """So many clients at a time, for so long. Call it in a process whose cores do not matter to anybody else."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        import uvloop

        run: Load = uvloop.run(_load(server, concurrency, seconds))
        return run
    finally:
        os.sched_setaffinity(0, before)


class _Client(asyncio.Protocol):
    """Sends the request again and again until told to stop."""

    def __init__(self, request: bytes, latencies: list[float]) -> None:
        self._request = request
        self._latencies = latencies
        self._buffer = b""
        self._sent = 0.0
        self.stopping = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop's transports are of no common class with asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """The server closed: there is no other reason."""
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Some of a reply; the next request goes out when all of it is there."""
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        found = _LENGTH.search(self._buffer, 0, head)
        if found is None or len(self._buffer) < head + 4 + int(found[1]):
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self._buffer[:2000].decode()))
            return
        self._latencies.append(time.perf_counter() - self._sent)
        self._buffer = b""
        if self.stopping:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)


async def _load(server: Server, concurrency: int, seconds: float) -> Load:
    host, _, port = server.url.removeprefix("http://").partition(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    cpu, began = server.cpu_s, time.perf_counter()
    clients = [
        (await loop.create_connection(lambda: _Client(head.encode() + BODY, latencies), host, int(port)))[1]
        for _ in range(concurrency)
    ]
    await asyncio.wait([client.done for client in clients], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for client in clients:
        client.stopping = True
    await asyncio.gather(*(client.done for client in clients))
    took = time.perf_counter() - began
    return Load(len(latencies), took, tuple(sorted(latencies)), server.cpu_s - cpu)


@contextmanager
def _process(command: list[str], core: int, environment: dict[str, str], folder: Path) -> Iterator[Server]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            env={**clean, **environment},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"the server did not start:\n{(folder / 'server.log').read_text()}")
        yield Server(found.group(), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()
