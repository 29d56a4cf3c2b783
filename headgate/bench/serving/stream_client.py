"""A client that costs as little as one can: raw sockets, one selector, nothing parsed but the ends of streams.

Run as a process of its own, so that its share of the machine is known: it reads requests as JSON from standard input
({"host", "port", "path", "bodies"}) and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Sequence

_END = b"0\r\n\r\n"
_TAIL_BYTES = 4096


class _Stream:
    """One connection: when its first event came, and the last bytes it brought."""

    def __init__(self, host: str, port: int, path: str, body: bytes) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.first_at = 0.0
        self.reads = 0
        self._tail = b""

    def send(self) -> None:
        self.socket.sendall(self._request)
        self.socket.setblocking(False)

    def read(self) -> bool:
        """Take what is there; True at the end of the stream."""
        piece = self.socket.recv(1 << 16)
        self.reads += 1
        if not piece:
            raise RuntimeError(f"the server closed the stream after {self._tail!r}")
        self._tail = (self._tail + piece)[-_TAIL_BYTES:]
        if not self.first_at and b"data: " in self._tail:
            self.first_at = time.perf_counter()
        if not self.first_at and not self._tail.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {self._tail!r}")
        return self._tail.endswith(_END)

    def tokens(self) -> int:
        """By the stream's own account, in the event before the last."""
        events = [part for part in self._tail.split(b"data: ") if part.startswith((b"{", b"[DONE]"))]
        if not events[-1].startswith(b"[DONE]"):
            raise RuntimeError(f"the stream was cut: it ends with {events[-1]!r}")
        account, _ = json.JSONDecoder().raw_decode(events[-2].decode())
        return int(account["usage"]["completion_tokens"])


def run(host: str, port: int, path: str, bodies: Sequence[bytes]) -> dict[str, float]:
    """All requests at once. Times in seconds; `cpu_s` is this process's own, `reads` how many pieces came."""
    streams = [_Stream(host, port, path, body) for body in bodies]
    selector = selectors.DefaultSelector()
    cpu, started = time.process_time(), time.perf_counter()
    for stream in streams:
        stream.send()
        selector.register(stream.socket, selectors.EVENT_READ, stream)
    open_streams = len(streams)
    while open_streams:
        for key, _ in selector.select():
            if key.data.read():
                selector.unregister(key.fileobj)
                open_streams -= 1
    seconds = time.perf_counter() - started
    cpu = time.process_time() - cpu
    for stream in streams:
        stream.socket.close()
    return {
        "seconds": seconds,
        "tokens": sum(stream.tokens() for stream in streams),
        "first_token_s": statistics.median(stream.first_at - started for stream in streams),
        "cpu_s": cpu,
        "reads": sum(stream.reads for stream in streams),
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(run(asked["host"], asked["port"], asked["path"], [b.encode() for b in asked["bodies"]])))
