"""What a running server takes over of its main file, and what it says of the rest."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient
from gateway_site import forget_environment, site
from pydantic import BaseModel

from headgate.gateway import keys
from headgate.gateway.configuration.live import LIVE, MainFile, taken_over
from headgate.gateway.configuration.reading import read_settings
from headgate.gateway.settings import Settings

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture(autouse=True)
def _same_level() -> Iterator[None]:
    """What a server sets for the whole process is as it was."""
    logger = logging.getLogger("headgate")
    level = logger.level
    yield
    logger.setLevel(level)


def test_live_keys_are_keys() -> None:
    for key in LIVE:
        reduce(lambda section, name: getattr(section, name), key.split("."), Settings())


def test_live_keys_are_taken_over_and_the_others_named(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    before = Settings()
    running = before.model_copy(update={"server": before.server.model_copy(update={"port": 1})})
    now = Settings(
        defaults={"limits": {"max_n": 3}, "budgets": {"daily_usd": 1}},
        routing={"threshold": 0.5, "breaker": {"failures": 9}, "cascade": {"enabled": True}},
        cache={"exact": {"ttl_s": 5, "max_bytes": 1000}},
        models=[{"id": "m", "path": "x"}],
        logging={"level": "debug"},
    )
    found, waiting = taken_over(running, before, now)
    assert set(waiting) == {"models", "routing.breaker.failures", "cache.exact.max_bytes"}
    assert found.server.port == 1, "what the command line said stays"
    assert (found.defaults, found.routing.cascade, found.logging) == (now.defaults, now.routing.cascade, now.logging)
    assert (found.routing.threshold, found.cache.exact.ttl_s) == (0.5, 5)
    assert (found.models, found.routing.breaker) == (before.models, before.routing.breaker)
    assert found.cache.exact.max_bytes == before.cache.exact.max_bytes
    assert taken_over(running, before, before) == (running, ())
    assert isinstance(found.defaults, BaseModel)
    assert found.defaults.model_dump(exclude_unset=True) == now.defaults.model_dump(exclude_unset=True)


async def test_a_running_server_follows_its_main_file(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_environment(monkeypatch)
    path = tmp_path / "headgate.yaml"
    async with site(tiny_checkpoint, main=path) as client:
        tree = yaml.safe_load(path.read_text())

        async def changed(**sections: Any) -> str:
            path.write_text(yaml.safe_dump({**tree, **sections}))
            await client.app[keys.RELOADER].look()
            return await part(client)

        async def verdict(**fields: Any) -> str:
            reply = await client.post(CHAT, json={**HELLO, **fields})
            return reply.headers.get("x-headgate-cache", str(reply.status))

        await client.app[keys.RELOADER].look()
        assert [await verdict(), await verdict(), await verdict(n=2)] == ["miss", "exact", "miss"]
        revision = client.app[keys.TEAMS].roster.revision
        shared = {**tree["cache"], "share": "user"}
        limits = {"limits": {"max_n": 1}}
        said = await changed(cache=shared, defaults=limits, server={"port": 1}, engine={**tree["engine"], "threads": 2})
        assert said == "needs a restart: server.port, engine.threads"
        assert said in caplog.text
        assert client.app[keys.TEAMS].roster.revision != revision
        assert [await verdict(), await verdict(), await verdict(n=2)] == ["miss", "exact", "400"]
        assert "headgate_config_restart_keys 2.0" in await (await client.get("/metrics")).text()

        path.write_text("")  # as in the middle of being written
        await client.app[keys.RELOADER].look()
        ready = (await (await client.get("/ready")).json())["parts"]["teams"]
        assert (ready["state"], f"{path}: is empty now" in ready["detail"]) == ("failed", True)
        assert await verdict(n=2) == "400", "what held still holds"

        path.write_text("defaults: {limits: {max_m: 1}}\n")
        await client.app[keys.RELOADER].look()
        ready = (await (await client.get("/ready")).json())["parts"]["teams"]
        assert ready["state"] == "failed"
        assert "unknown key 'defaults.limits.max_m'" in ready["detail"]
        assert await verdict(n=2) == "400", "what held still holds"

        assert await changed() == str(path)
        assert client.app[keys.TEAMS].roster.revision == revision
        assert [await verdict(), await verdict(n=2)] == ["exact", "exact"]


def test_a_main_file_that_can_be_read_once_holds_on() -> None:
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as file:
        file.write("defaults: {limits: {max_n: 3}}")
        file.close()
        path = Path(f"/dev/fd/{read}")
        settings = read_settings(path)
        assert settings.defaults.limits.max_n == 3
        assert MainFile(path, settings, settings).read() == (settings, ())


async def part(client: TestClient[Any, Any]) -> str:
    return str((await (await client.get("/ready")).json())["parts"]["main file"]["detail"])
