"""A Prometheus server of a test's own, with the configuration of the stack."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CONFIG = Path(__file__).parents[1] / "config/prometheus/prometheus.yml"
START_S = 30
WAIT_S = 20
STOP_S = 20


@dataclass(frozen=True)
class PrometheusProcess:
    """`prometheus` in a process, asked over HTTP."""

    url: str

    def api(self, path: str, **query: str) -> Any:
        """The data of a reply of its API; `HTTPError` where it refuses, as it does an expression it cannot read."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as reply:
            return json.load(reply)["data"]

    def value(self, expression: str) -> float:
        """What an expression of one sample says now; 0 where there is none."""
        found = self.api("query", query=expression)["result"]
        assert len(found) < 2, found
        return float(found[0]["value"][1]) if found else 0.0

    def becomes(self, expression: str, wanted: float) -> float:
        """Asks until the value is the one wanted, for some scrapes at most; gives the last one."""
        end = time.monotonic() + WAIT_S
        while (found := self.value(expression)) != wanted and time.monotonic() < end:
            time.sleep(0.1)
        return found


@contextmanager
def running_prometheus(folder: Path, gateway: str) -> Iterator[PrometheusProcess]:
    """The stack's own configuration, but for where the gateway is and how often it is asked."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not on the PATH; Debian's package prometheus brings it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = yaml.safe_load(CONFIG.read_text())
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(CONFIG.parent / pattern) for pattern in config["rule_files"]]
    places = {"gateway:8000": gateway, "localhost:9090": address}
    for job in config["scrape_configs"]:
        for static in job["static_configs"]:
            static["targets"] = [places[target] for target in static["targets"]]
    (own := folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        binary, f"--config.file={own}", f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={address}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = (folder / "prometheus.log").open("w")
    try:
        assert process.stderr is not None
        for line in process.stderr:
            log.write(line)
            if "Server is ready to receive web requests" in line:
                break
        else:
            raise AssertionError((folder / "prometheus.log").read_text())
        yield PrometheusProcess(f"http://{address}")
    finally:
        process.kill()
        process.communicate(timeout=STOP_S)
        log.close()
