"""Who passes requests on in `headgate bench proxy`, each started on a core of its own in front of the same mock."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate.bench.http_load import Server, announced, process

KEY = "sk-bench-key-0123456789"
MODELS = ("fixed", "flood", "paced")
LITELLM = "litellm/bin/litellm"
PORTKEY = "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
INSTALL: Mapping[str, tuple[str, str]] = {
    "litellm": (LITELLM, "python3 -m venv litellm && litellm/bin/pip install 'litellm[proxy]==1.109.1'"),
    "portkey": (PORTKEY, "npm install --prefix portkey @portkey-ai/gateway@1.15.2"),
}
"""By peer: a file under the peers' folder that is there once the command was run in that folder."""
_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Entrant:
    """A proxy that runs, and the headers it wants."""

    server: Server
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def mock(core: int, log: Path) -> Iterator[Entrant]:
    """The server behind all of them."""
    with announced([sys.executable, "-m", "headgate.bench.proxy.mock"], core, {}, log) as server:
        yield Entrant(server)


@contextmanager
def relay(core: int, upstream: str, log: Path) -> Iterator[Entrant]:
    """Bytes passed on, by aiohttp."""
    with announced([sys.executable, "-m", "headgate.bench.proxy.relay", upstream], core, {}, log) as server:
        yield Entrant(server)


@contextmanager
def headgate(core: int, upstream: str, folder: Path) -> Iterator[Entrant]:
    """The gateway: a key, limits that are counted and never met, prices, a budget, ledger and metrics."""
    config, teams = folder / "headgate.yaml", folder / "teams"
    teams.mkdir()
    million = 1_000_000_000
    price = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 2.0}
    settings = {
        "models": [],
        "upstreams": [
            {"id": name, "base_url": f"{upstream}/v1", "model": name, "price": price, "context_length": 8192}
            for name in MODELS
        ],
        "teams": {"folder": str(teams)},
        "storage": {"folder": str(folder / "data")},
        "cache": {"semantic": {"enabled": False}, "redis": "off"},
        "embeddings": {"enabled": False},
        "logging": {"access": "off"},
    }
    limits = {"requests_per_minute": million, "tokens_per_minute": million, "concurrency": 10_000}
    team = {
        "team": {"name": "bench"},
        "keys": [{"id": "bench", "secret": "env:BENCH_KEY"}],
        "limits": limits,
        "budgets": {"daily_usd": 100_000.0},
    }
    (teams / "bench.yaml").write_text(json.dumps(team))
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "headgate.gateway.cli", "serve", "--port", "0", "--config", str(config)]
    with announced(command, core, {"BENCH_KEY": KEY}, folder / "headgate.log") as server:
        yield Entrant(server, {"Authorization": f"Bearer {KEY}"})


@contextmanager
def litellm(core: int, upstream: str, folder: Path, peers: Path) -> Iterator[Entrant]:
    """LiteLLM's proxy: one worker, a master key."""
    port, config = _free_port(), folder / "litellm.yaml"
    listed = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": f"{upstream}/v1", "api_key": "x"},
        }
        for name in MODELS
    ]
    config.write_text(json.dumps({"model_list": listed, "general_settings": {"master_key": KEY}}))
    command = [str(peers / LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with process(command, core, quiet, folder / "litellm.log") as running:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/health/liveliness", folder / "litellm.log")
        yield Entrant(Server(url, running.pid), {"Authorization": f"Bearer {KEY}"})


@contextmanager
def portkey(core: int, upstream: str, folder: Path, peers: Path) -> Iterator[Entrant]:
    """Portkey's gateway, which takes the upstream from the request's headers."""
    port = _free_port()
    command = ["node", str(peers / PORTKEY), "--headless", f"--port={port}"]
    with process(command, core, {}, folder / "portkey.log") as running:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, folder / "portkey.log")
        custom = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{upstream}/v1"}
        yield Entrant(Server(url, running.pid), {"Authorization": f"Bearer {KEY}", **custom})


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(url: str, log: Path) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as error:
            if time.monotonic() > until:
                raise RuntimeError(f"{url} does not answer ({error}):\n{log.read_text()[-2000:]}") from None
            time.sleep(0.2)
