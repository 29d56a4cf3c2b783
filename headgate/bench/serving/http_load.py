"""Load on an HTTP server that has a core of its own, and what its process takes for it.

The clients have the other core. Each has a connection and sends its next request when the answer to the last is there;
a thread-free protocol reads just enough of replies to know where they end.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from headgate.bench.output import at_share
from headgate.bench.serving.servers import Server

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding: *chunked", re.IGNORECASE)
_EVENT = b"data: {"
_LAST = b"\r\n0\r\n\r\n"
_TAIL = 64
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Request:
    """What clients send, again and again.

    Attributes:
        path: where to.
        headers: beside those that every request has.
        body: JSON.
        mark: what an answer's first piece has in it.
        fresh: digits in the body; each request has others there, as many, which none had before.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    mark: bytes = _EVENT
    fresh: bytes = b""

    def encoded(self, host: str) -> bytes:
        """As it goes over the wire."""
        fields = {"Host": host, "Content-Type": "application/json", "Content-Length": len(self.body), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


@dataclass(frozen=True, slots=True)
class Load:
    """One run of a server under load. Times are seconds."""

    requests: int
    seconds: float
    latencies: tuple[float, ...]
    cpu_s: float
    """Of the server's process."""
    events: int = 0
    """Of streams, all together."""
    firsts: tuple[float, ...] = ()
    """From sending to the first piece of an answer."""

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
        return at_share(self.latencies, share) * 1e3

    def first_ms(self, share: float) -> float:
        """The same of first pieces."""
        return at_share(self.firsts, share) * 1e3


def cores() -> tuple[int, int]:
    """One for the server, one for the clients."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RuntimeError("two cores are needed, one for the server and one for the clients; this process may use one")
    return usable[0], usable[1]


def load(server: Server, core: int, concurrency: int, seconds: float, request: Request) -> Load:
    """So many clients at a time, for so long. Call it in a process whose cores do not matter to anybody else."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        import uvloop

        run: Load = uvloop.run(_load(server, concurrency, seconds, request))
        return run
    finally:
        os.sched_setaffinity(0, before)


class _Runs:
    """What the clients of a run have seen together."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.firsts: list[float] = []
        self.events = 0


class _Client(asyncio.Protocol):
    """Sends the request again and again until told to stop."""

    def __init__(self, requests: Iterator[bytes], mark: bytes, runs: _Runs) -> None:
        self._requests = requests
        self._mark = mark
        self._runs = runs
        self._head, self._tail, self._counted = b"", b"", 0
        self._left: int | None = None
        self._begun, self._sent = False, 0.0
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
        if self._left is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[:end], self._head[end + 4 :]
            if not head.startswith(b"HTTP/1.1 200"):
                self.done.set_exception(RuntimeError(self._head[:2000].decode(errors="replace")))
                self._transport.close()
                return
            self._left = _length(head)
        seen, self._tail = self._tail + data, (self._tail + data)[-_TAIL:]
        if not self._begun and self._mark in seen:
            self._begun = True
            self._runs.firsts.append(time.perf_counter() - self._sent)
        # What is in the tail was counted with the piece before.
        self._runs.events += seen.count(_EVENT) - self._counted
        self._counted = self._tail.count(_EVENT)
        if self._left == _UNKNOWN:
            whole = self._tail.endswith(_LAST)
        else:
            self._left -= len(data)
            whole = self._left <= 0
        if not whole:
            return
        self._runs.latencies.append(time.perf_counter() - self._sent)
        if self.stopping:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._send()

    def _send(self) -> None:
        self._head, self._tail, self._counted = b"", b"", 0
        self._left = None
        request = next(self._requests)
        self._begun, self._sent = False, time.perf_counter()
        self._transport.write(request)


def _length(head: bytes) -> int:
    """Of the body by its head, in bytes; `_UNKNOWN` where it comes in chunks."""
    found = _LENGTH.search(head)
    if found is not None:
        return int(found[1])
    if _CHUNKED.search(head) is None:
        raise RuntimeError(f"where this reply ends cannot be known: {head.decode()}")
    return _UNKNOWN


def _requests(request: Request, address: str) -> Iterator[bytes]:
    """What clients send one after the other. Numbers go on where a run before has ended."""
    encoded = request.encoded(address)
    if not request.fresh:
        yield from itertools.repeat(encoded)
    before, found, after = encoded.partition(request.fresh)
    assert found, "the digits are in the body"
    for number in itertools.count(time.time_ns() // 1000 % 10 ** (len(request.fresh) - 1)):
        yield b"%s1%0*d%s" % (before, len(request.fresh) - 1, number, after)


async def _load(server: Server, concurrency: int, seconds: float, request: Request) -> Load:
    address = server.url.removeprefix("http://")
    host, _, port = address.partition(":")
    runs, requests = _Runs(), _requests(request, address)
    loop = asyncio.get_running_loop()
    cpu, began = server.cpu_s, time.perf_counter()
    clients = [
        (await loop.create_connection(lambda: _Client(requests, request.mark, runs), host, int(port)))[1]
        for _ in range(concurrency)
    ]
    await asyncio.wait([client.done for client in clients], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for client in clients:
        client.stopping = True
    await asyncio.gather(*(client.done for client in clients))
    took = time.perf_counter() - began
    latencies, firsts = tuple(runs.latencies), tuple(runs.firsts)
    return Load(len(latencies), took, latencies, server.cpu_s - cpu, runs.events, firsts)
