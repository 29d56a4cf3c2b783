"""A Redis server of a test's own, on a free port, with nothing on disk; and clocks that are moved by hand."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STOP_S = 20
NOW = 1_000_000.0


class Time:
    """The clocks of a store and a feed. A feed's own also goes on by itself, for it waits for a server that does."""

    def __init__(self) -> None:
        self.now = NOW
        self.monotonic = 50.0

    def running(self) -> float:
        return time.monotonic() + self.monotonic


class RedisProcess:
    """`redis-server` in a process that can be killed, paused and started again on the same port."""

    def __init__(self, binary: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._command = [
            binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "no",
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Gives back once connections are accepted."""
        clean = {name: value for name, value in os.environ.items() if name != "REDISCLI_AUTH"}
        self._process = subprocess.Popen(self._command, env=clean, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if "Ready to accept connections" in line:
                return
        raise AssertionError(f"redis-server ended with {self._process.wait(STOP_S)} and said:\n{said}")

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Connections are accepted by the kernel, but nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisProcess]:
    """A started server, gone afterwards. Skips the test where Redis is not installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not on the PATH; Debian's package redis-server brings it")
    process = RedisProcess(binary, folder)
    try:
        process.start()
        yield process
    finally:
        process.kill()
