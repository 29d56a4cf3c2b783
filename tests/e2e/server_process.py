"""A real server process for the official client."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI

START_S = 60
STOP_S = 30


@dataclass
class ServerProcess:
    """`headgate serve` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def client(self, api_key: str = "any", max_retries: int = 0) -> OpenAI:
        """The official client, pointed here."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=api_key, max_retries=max_retries, timeout=60)

    def get(self, path: str) -> str:
        """A page of the server."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as response:
            return str(response.read().decode())

    def terminate(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_S)


Start = Callable[..., AbstractContextManager[ServerProcess]]


@contextmanager
def run_server(folder: Path, *arguments: str, **environment: str) -> Iterator[ServerProcess]:
    log = folder / "server.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", "0", *arguments]
    root = Path(__file__).parents[2]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command,
            cwd=root,
            # A Redis that happens to run on this machine is not used, nor the user's data folder.
            env={
                **clean,
                "HEADGATE_CACHE__REDIS": "off",
                "HEADGATE_STORAGE__FOLDER": str(folder / "data"),
                "OMP_NUM_THREADS": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http://\S+", first)
        assert found is not None, f"the server said {first!r} and logged:\n{log.read_text()}"
        # A request waits for the models, so that nothing else has to be waited for.
        yield ServerProcess(process, found.group(), log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=STOP_S)
        process.stdout.close() if process.stdout is not None else None
