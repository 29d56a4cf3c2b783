"""Two gateways on one Redis: how soon what one stores is served by the other, and what a killed Redis costs."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import aiohttp
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoRedis

from headgate.bench.serving.servers import free_port, gateway
from headgate.engine.demo.tasks import generate

Phase = Literal["before", "killed", "restarted"]
PHASES: tuple[Phase, ...] = ("before", "killed", "restarted")
_START_S = 120.0
_POLL_S = 0.005
_SERVED_S = 1.0
SETTLE_S = 60.0
"""That gateways have to use Redis again after its restart, and their indexes to hold what it holds after the load."""
# fmt: off
_PLACES = (
    "France", "Spain", "Italy", "Poland", "Norway", "Sweden", "Finland", "Greece", "Portugal", "Austria", "Hungary",
    "Romania", "Bulgaria", "Ireland", "Denmark", "Belgium", "Egypt", "Kenya", "Morocco", "Ghana", "Japan",
    "Thailand", "Vietnam", "Nepal", "Chile", "Peru", "Cuba", "Canada", "Mexico", "Brazil",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Shown:
    """Seconds from one gateway's answer until the other served it."""

    exact: tuple[float, ...]
    """For the same words."""
    semantic: tuple[float, ...]
    """For other words."""
    unserved: int
    """Questions in other words that the rule did not serve within a second, for whatever reason."""
    unserved_exact: int
    """Questions in the same words that were not."""


@dataclass(slots=True)
class PhaseFigures:
    """What the clients saw in one phase of the fault run."""

    seconds: list[float] = field(default_factory=list)
    """Of each request, in order of their ends."""
    verdicts: dict[str, int] = field(default_factory=dict)
    """By `x-headgate-cache`."""
    failed: dict[str, int] = field(default_factory=dict)
    """Requests without an answer, by status or error."""


@dataclass(frozen=True, slots=True)
class FaultFigures:
    """A run under load in which Redis is killed and, later, started again with nothing in it."""

    phases: dict[Phase, PhaseFigures]
    recovered_s: tuple[float | None, ...]
    """Seconds from Redis' restart until each gateway said that it uses it again; None: not within a minute."""
    indexed: tuple[int, ...]
    """Texts in each gateway's index, after the load."""
    stored: int
    """Vectors in Redis then."""
    settled_s: float | None
    """Seconds after the load until each index held what Redis held; None if they still did not after a minute."""


class RedisServer:
    """A `redis-server` of our own, with nothing on disk."""

    def __init__(self, folder: Path) -> None:
        """Raises `FileNotFoundError` where Redis is not installed."""
        binary = shutil.which("redis-server")
        if binary is None:
            raise FileNotFoundError("redis-server is not on the PATH; Debian's package redis-server brings it")
        self.port = free_port()
        self._command = [
            *(binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)),
            *("--save", "", "--appendonly", "no"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Gives back once it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220  it takes a moment
        # It does not try again by itself: it would wait longer than it takes.
        client = Redis(port=self.port, retry=Retry(NoBackoff(), 0))
        try:
            async with asyncio.timeout(_START_S):
                while True:
                    try:
                        await client.ping()
                        return
                    except (OSError, NoRedis):
                        await asyncio.sleep(_POLL_S)
        except BaseException:
            self.kill()
            raise
        finally:
            await client.aclose()

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def vectors(self) -> int:
        """Vectors it holds."""
        client = Redis(port=self.port)
        try:
            return sum([1 async for _ in client.scan_iter("*:vector:*", count=1000)])
        finally:
            await client.aclose()


class Site:
    """Gateways with the demo student, on one Redis."""

    def __init__(self, urls: Sequence[str], session: aiohttp.ClientSession, redis: RedisServer) -> None:
        self.urls = tuple(urls)
        self.redis = redis
        self._session = session

    async def ask(self, url: str, text: str, **headers: str) -> tuple[int, str]:
        """The status of a short chat, and what the cache said."""
        body = {"model": "small", "messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0}
        async with self._session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()
            return response.status, response.headers.get("x-headgate-cache", "none")

    async def page(self, url: str, path: str) -> dict[str, Any]:
        """A JSON page."""
        async with self._session.get(f"{url}{path}") as response:
            page: dict[str, Any] = await response.json()
            return page

    async def uses_redis(self, url: str) -> bool:
        """Whether the gateway says so."""
        return bool((await self.page(url, "/ready"))["parts"]["redis"]["state"] == "ready")

    async def indexed(self, url: str) -> int:
        """Texts in the gateway's index."""
        return int((await self.page(url, "/admin/cache"))["indexed"])


@asynccontextmanager
async def site(folder: Path, gateways: int = 2) -> AsyncIterator[Site]:
    """Starts Redis and gateway processes that share it; all are gone afterwards.

    Raises:
        FileNotFoundError: Redis is not installed.
        RuntimeError: a gateway did not become ready; the message holds its log.
    """
    redis = RedisServer(folder)
    await redis.start()
    settings = {
        "models": [{"id": "student", "path": "demo:student", "tier": "small"}],
        # The machine is shared with the load: what is slow by that is not down.
        "cache": {"redis": redis.url, "redis_timeout_s": 1.0, "secret": "env:BENCH_SECRET"},
        # Neither the teams of the folder it runs in nor the user's ledger have a part in it.
        "teams": {"folder": None},
        "storage": {"folder": None},
        "logging": {"level": "error", "access": False},
    }
    secret = {"BENCH_SECRET": "one secret for both gateways"}
    with ExitStack() as stack:
        stack.callback(redis.kill)
        folders = [folder / f"gateway-{number}" for number in range(gateways)]
        for own in folders:
            own.mkdir()
        with ThreadPoolExecutor() as threads:  # side by side: a start takes seconds
            starts = (gateway(settings, own, environment=secret) for own in folders)
            servers = list(threads.map(stack.enter_context, starts))
        for server in servers:
            server.wait_until_ready()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield Site([server.url for server in servers], session, redis)


async def shown(made: Site, pairs: int) -> Shown:
    """Ask one gateway, then the other until it serves that answer: to the same words, then to other words.

    Raises:
        RuntimeError: the first gateway has no answer.
    """
    asked, other = made.urls[0], made.urls[1]
    exact, semantic = list[float | None](), list[float | None]()
    for place in _PLACES[:pairs]:
        question = f"What is the capital of {place}?"
        status, _ = await made.ask(asked, question)
        answered = time.perf_counter()
        if status != 200:
            raise RuntimeError(f"a gateway answered {question!r} with {status}")
        exact.append(await _until(made, other, question, "exact", answered))
        semantic.append(await _until(made, other, f"What's the capital city of {place}?", "semantic", answered))
    same, others = (tuple(seconds for seconds in kind if seconds is not None) for kind in (exact, semantic))
    return Shown(same, others, semantic.count(None), exact.count(None))


async def _until(made: Site, url: str, question: str, verdict: str, since: float) -> float | None:
    """Seconds from `since` on until it is served; None where it is not soon."""

    async def served() -> bool:
        # Nothing may be generated: it would be stored, and found instead.
        return (await made.ask(url, question, **{"cache-control": "only-if-cached"}))[1] == verdict

    return await _passed(since, _SERVED_S, served)


async def _passed(since: float, most_s: float, done: Callable[[], Awaitable[bool]]) -> float | None:
    """Seconds from `since` on until it is done; None where it is not after so many."""
    while time.perf_counter() - since < most_s:
        if await done():
            return time.perf_counter() - since
        await asyncio.sleep(_POLL_S)
    return None


async def faults(made: Site, seconds: float, clients: int, seed: int) -> FaultFigures:
    """Load both gateways while Redis is killed after a third of the time and restarted, empty, after two thirds."""
    phases: dict[Phase, PhaseFigures] = {phase: PhaseFigures() for phase in PHASES}
    now: list[Phase] = ["before"]
    # Every second request asks one of a few texts, again and again.
    texts = [sample.prompt for sample in generate(4000, seed=seed)]
    stop = asyncio.Event()

    async def client(number: int) -> None:
        count = number
        while not stop.is_set():
            count += clients
            text = texts[count % 16] if count % 2 == 0 else texts[16 + count % (len(texts) - 16)]
            phase, begun = phases[now[0]], time.perf_counter()
            try:
                status, verdict = await made.ask(made.urls[count // 2 % len(made.urls)], text)
            except (aiohttp.ClientError, TimeoutError) as error:
                _count(phase.failed, type(error).__name__)
            else:
                phase.seconds.append(time.perf_counter() - begun)
                _count(phase.verdicts, verdict)
                if status != 200:
                    _count(phase.failed, str(status))

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))
        await asyncio.sleep(seconds / 3)
        now[0] = "killed"
        made.redis.kill()
        await asyncio.sleep(seconds / 3)
        await made.redis.start()
        now[0] = "restarted"
        back = time.perf_counter()
        recovered = [group.create_task(_passed(back, SETTLE_S, partial(made.uses_redis, url))) for url in made.urls]
        await asyncio.sleep(seconds / 3)
        stop.set()
    stored, indexed = 0, tuple[int, ...]()

    async def settled() -> bool:
        nonlocal stored, indexed
        stored = await made.redis.vectors()
        indexed = tuple([await made.indexed(url) for url in made.urls])
        return set(indexed) == {stored}

    after = await _passed(time.perf_counter(), SETTLE_S, settled)
    return FaultFigures(phases, tuple(task.result() for task in recovered), indexed, stored, after)


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
