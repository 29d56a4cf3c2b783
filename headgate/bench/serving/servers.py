"""Servers that are measured: how their processes are started, waited for and ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PREFIX = "HEADGATE_"
_NO_SETTING = "HEADGATE_VECTORS"
"""Which instructions a process uses: all that are compared have to use the same."""
_TICKS = os.sysconf("SC_CLK_TCK")
_START_S = 120.0
_LEAVE_S = 60.0
_NEVER_MET = {"requests_per_minute": 1_000_000_000, "tokens_per_minute": 1_000_000_000, "concurrency": 10_000}


def without_settings() -> dict[str, str]:
    """This environment without a gateway's settings: those would win over what one that is measured is started with."""
    return {n: value for n, value in os.environ.items() if not n.startswith(_PREFIX) or n == _NO_SETTING}


@contextmanager
def no_settings() -> Iterator[None]:
    """Inside, this process has none: for gateways that are made in it."""
    left = without_settings()
    held = {name: os.environ.pop(name) for name in os.environ.keys() - left.keys()}
    try:
        yield
    finally:
        os.environ.update(held)


def free_port() -> int:
    """A TCP port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a process of its own. `log` has what it said on standard error."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    @property
    def cpu_s(self) -> float:
        """What its process has computed so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def wait_for(self, path: str, wanted: Callable[[bytes], bool] = lambda _: True) -> None:
        """Wait until it answers at this path, and with what is wanted.

        Raises:
            RuntimeError: it has ended, or took two minutes; the message ends with its log.
        """
        until = time.monotonic() + _START_S
        while self.process.poll() is None and time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as reply:
                    if wanted(reply.read()):
                        return
            except OSError:
                pass  # it does not listen yet, or refuses
            time.sleep(0.05)
        raise RuntimeError(f"{self.url}{path} was not answered:\n{self.log.read_text()[-2000:]}")

    def wait_until_ready(self) -> None:
        """The same for a gateway and all of its parts that come up by themselves."""
        self.wait_for("/ready", lambda said: all(p["state"] != "loading" for p in json.loads(said)["parts"].values()))


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End a server when the context is left: politely, then for certain."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def started(
    command: Sequence[str], log: Path, core: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A server, on one core if that is named, until the context is left; `environment` is added to this one's."""
    on_core = [] if core is None else ["taskset", "-c", str(core)]
    with log.open("a") as said:
        process = subprocess.Popen(
            [*on_core, *command],
            env={**without_settings(), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    assert process.stdout is not None
    try:
        with ended(process):
            yield process
    finally:
        process.stdout.close()


@contextmanager
def announced(
    command: Sequence[str], log: Path, core: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A server that prints its URL on its first line."""
    with started(command, log, core, environment) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"the server did not start:\n{log.read_text()}")
        yield Server(found.group(), process, log)


@contextmanager
def gateway(
    settings: Mapping[str, object],
    folder: Path,
    core: int | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    key: str | None = None,
) -> Iterator[Server]:
    """`headgate serve`, which listens and may still load its models.

    Args:
        settings: its configuration.
        folder: gets that, a log and what the server keeps.
        core: that it has for itself.
        environment: that is added to this one's, of which no setting is left.
        key: of a team with limits and a budget that are counted and never met, and a ledger; None: whatever the
            settings say.
    """
    more = dict(environment or {})
    if key is not None:
        teams = folder / "teams"
        teams.mkdir()
        team = {
            "team": {"name": "bench"},
            "keys": [{"id": "bench", "secret": "env:BENCH_KEY"}],
            "limits": _NEVER_MET,
            "budgets": {"daily_usd": 100_000.0},
        }
        (teams / "bench.yaml").write_text(json.dumps(team))
        settings = {**settings, "teams": {"folder": str(teams)}, "storage": {"folder": str(folder / "data")}}
        more["BENCH_KEY"] = key
    config = folder / "headgate.yaml"
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", "0", "--config", str(config)]
    with announced(command, folder / "headgate.log", core, more) as server:
        yield server
