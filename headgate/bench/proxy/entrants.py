"""Who passes requests on in `headgate bench proxy`, each started on a core of its own in front of the same mock."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate.bench.serving.servers import Server, announced, free_port, gateway, started

KEY = "sk-bench-key-0123456789"
MODELS = ("fixed", "flood", "paced")
LITELLM = "litellm/bin/litellm"
PORTKEY = "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
INSTALL: Mapping[str, tuple[str, str]] = {
    "litellm": (LITELLM, "python3 -m venv litellm && litellm/bin/pip install 'litellm[proxy]==1.109.1'"),
    "portkey": (PORTKEY, "npm install --prefix portkey @portkey-ai/gateway@1.15.2"),
}
"""By peer: a file under the peers' folder that is there once the command was run in that folder."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A proxy that runs, and the headers it wants."""

    server: Server
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def mock(core: int, log: Path) -> Iterator[Entrant]:
    """The server behind all of them."""
    with announced([sys.executable, "-m", "headgate.bench.proxy.mock"], log, core) as server:
        yield Entrant(server)


@contextmanager
def relay(core: int, upstream: str, log: Path) -> Iterator[Entrant]:
    """Bytes passed on, by aiohttp."""
    with announced([sys.executable, "-m", "headgate.bench.proxy.relay", upstream], log, core) as server:
        yield Entrant(server)


@contextmanager
def headgate(core: int, upstream: str, folder: Path) -> Iterator[Entrant]:
    """The gateway, with prices and everything counted."""
    price = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_completion_tokens": 2.0}
    settings = {
        "models": [],
        "upstreams": [
            {"id": name, "base_url": f"{upstream}/v1", "model": name, "price": price, "context_length": 8192}
            for name in MODELS
        ],
        "cache": {"semantic": {"enabled": False}, "redis": "off"},
        "embeddings": {"enabled": False},
        "logging": {"access": "off"},
    }
    with gateway(settings, folder, core, key=KEY) as server:
        yield Entrant(server, {"Authorization": f"Bearer {KEY}"})


@contextmanager
def litellm(core: int, upstream: str, folder: Path, peers: Path) -> Iterator[Entrant]:
    """LiteLLM's proxy: one worker, a master key."""
    port, config = free_port(), folder / "litellm.yaml"
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
    with started(command, folder / "litellm.log", core, quiet) as process:
        server = Server(f"http://127.0.0.1:{port}", process, folder / "litellm.log")
        server.wait_for("/health/liveliness")
        yield Entrant(server, {"Authorization": f"Bearer {KEY}"})


@contextmanager
def portkey(core: int, upstream: str, folder: Path, peers: Path) -> Iterator[Entrant]:
    """Portkey's gateway, which takes the upstream from the request's headers."""
    port = free_port()
    command = ["node", str(peers / PORTKEY), "--headless", f"--port={port}"]
    with started(command, folder / "portkey.log", core) as process:
        server = Server(f"http://127.0.0.1:{port}", process, folder / "portkey.log")
        server.wait_for("")
        custom = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{upstream}/v1"}
        yield Entrant(server, {"Authorization": f"Bearer {KEY}", **custom})
