"""A whole server over a tiny model, for tests of the application."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from headgate.gateway import keys
from headgate.gateway.app import make_app
from headgate.gateway.live_settings import MainFile
from headgate.gateway.settings import ENV_PREFIX, Settings


def forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the machine must not configure a server under test."""
    for name in list(os.environ):
        if name.startswith(ENV_PREFIX) or name == "REDIS_URL":
            monkeypatch.delenv(name)


@asynccontextmanager
async def site(
    checkpoint: Path, *, teams: Path | None = None, main: Path | None = None, **sections: Any
) -> AsyncIterator[TestClient[Any, Any]]:
    """A server with the checkpoint under the ids `tiny` (small) and `tiny-2` (large), ready, and a client of it.

    `teams` is a folder of team files; `main` is where the settings are written to, as a file that is followed. No
    embedding model is loaded. A Redis that happens to run on this machine is not used, nor the user's data folder.
    """
    defaults: dict[str, Any] = {
        "models": [
            {"id": "tiny", "path": str(checkpoint), "tier": "small"},
            {"id": "tiny-2", "path": str(checkpoint), "tier": "large"},
        ],
        "cache": {"semantic": {"enabled": False}},
        "embeddings": {"enabled": False},
        "storage": {"folder": None},
        "engine": {"device": "cpu", "kv_bytes": 8 * 1024 * 1024, "threads": 1},
        "teams": {"folder": None if teams is None else str(teams)},
    }
    chosen = {**defaults, **sections}
    tree = {**chosen, "cache": {"redis": "off", **chosen["cache"]}}
    settings = Settings(**tree)
    if main is not None:
        main.write_text(yaml.safe_dump(tree))  # noqa: ASYNC240  nothing else runs yet
    app = make_app(settings, None if main is None else MainFile(main, settings, settings))
    # Like `run_server`, aiohttp's test server cancels the handler of a client that leaves.
    async with TestClient(TestServer(app)) as client:
        await app[keys.LIFECYCLE].wait_until_ready()
        yield client
