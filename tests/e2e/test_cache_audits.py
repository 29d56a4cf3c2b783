"""What audits find, over restarts and for operators: two `headgate serve` on one Redis, the client and the commands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest
from click.testing import CliRunner
from redis import Redis
from redis_process import RedisProcess, running_redis
from server_process import ServerProcess, run_server

from headgate.gateway.cli import main

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="no embedding package")

SPAIN, AGAIN, OTHERWISE = "What is the capital of Spain?", "what's the capital of Spain", "Whats the capital of Spain?"
WAIT_S = 60
Serve = Callable[[], AbstractContextManager[ServerProcess]]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with running_redis(tmp_path) as running:
        yield running


@pytest.fixture
def serve(redis: RedisProcess, tmp_path: Path) -> Serve:
    environment = {"HEADGATE_CACHE__REDIS": redis.url, "HEADGATE_CACHE__SECRET": "env:S", "S": "a secret for them all"}
    patient = {"HEADGATE_CACHE__REDIS_TIMEOUT_S": "10"}
    return partial(run_server, tmp_path, **environment, **patient)


def ask(server: ServerProcess, text: str, **headers: str) -> tuple[str, str, str]:
    """What the cache said, the answer, and its key."""
    raw = server.client().chat.completions.with_raw_response.create(
        model="small", messages=[{"role": "user", "content": text}], max_tokens=16, extra_headers=headers
    )
    said = raw.parse().choices[0].message.content or ""
    return raw.headers["x-headgate-cache"], said, raw.headers.get("x-headgate-cache-key", "")


def command(server: ServerProcess, *arguments: str) -> str:
    done = CliRunner().invoke(main, ["cache", *arguments, "--url", server.url])
    assert done.exit_code == 0, done.output
    return done.stdout


def plant(redis: RedisProcess, key: str, text: str) -> None:
    """Have the stored answer be another one."""
    with Redis(port=redis.port) as client:
        stored = msgspec.msgpack.decode(client.get(f"headgate:answer:{key}"))
        stored["choices"] = [{**stored["choices"][0], "text": text, "token_ids": []}]
        client.set(f"headgate:answer:{key}", msgspec.msgpack.encode(stored), keepttl=True)


def until(condition: Callable[[], bool]) -> None:
    """Ask until it holds; bounded by time."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ready(server: ServerProcess) -> bool:
    try:
        parts = json.loads(server.get("/ready"))["parts"]
    except HTTPError:
        # Models are loading.
        return False
    return bool(parts["semantic cache"]["state"] == "ready")


def audits(server: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.get("/admin/cache/audits"))
    return found


def test_what_one_gateway_finds_and_decides_holds_for_the_other_and_over_a_restart(
    serve: Serve, redis: RedisProcess, tmp_path: Path
) -> None:
    only = {"cache-control": "only-if-cached"}
    # A data folder is one server's alone.
    with serve() as one, serve(HEADGATE_STORAGE__FOLDER=str(tmp_path / "other")) as other:
        until(lambda: ready(one) and ready(other))
        _, _, key = ask(one, SPAIN)
        plant(redis, key, "The capital of Spain is Oslo.")
        assert ask(one, AGAIN) == ("semantic", "The capital of Spain is Oslo.", key), "nobody waits for the audit"
        until(lambda: len(audits(one)["quarantine"]) == 1)
        assert "headgate_cache_quarantined_entries 1.0" in one.get("/metrics")
        assert [entry["key"] for entry in audits(other)["quarantine"]] == [key]
        # Another epoch finds none of it.
        assert "The epoch is 'v2'" in command(one, "invalidate", "--epoch", "v2")
        until(lambda: json.loads(other.get("/admin/cache"))["epoch"] == "v2")
        verdict, said, _ = ask(other, SPAIN)
        assert (verdict, "Oslo" in said) == ("miss", False)
        assert ask(one, SPAIN, **only)[0] == "exact"
        one.terminate()
        other.terminate()
    with serve() as later:
        until(lambda: ready(later) and "headgate_cache_index_entries 2.0" in later.get("/metrics"))
        assert json.loads(later.get("/admin/cache"))["epoch"] == "v2"
        assert ask(later, SPAIN, **only)[0] == "exact"
        command(later, "invalidate", "--epoch", "")
        assert "Oslo" in ask(later, SPAIN, **only)[1], "the first epoch's answers are found again"
        assert "headgate_cache_quarantined_entries 1.0" in later.get("/metrics")
        verdict, said, _ = ask(later, OTHERWISE)
        assert (verdict, "Oslo" in said) == ("near", False)
        assert 'reason="quarantine",verdict="near"' in later.get("/metrics")
        assert key in command(later, "audits")
        (line,) = [line for line in map(json.loads, command(later, "labels").splitlines()) if line["source"] == "audit"]
        assert (line["key"], line["right"]) == (key, False)
        assert line["evidence"]["similarity"] == pytest.approx(line["similarity"], abs=1e-3)
        assert line["log_odds"] is not None
        assert command(later, "lift", "--key", key) == "1 answer served again.\n"
        assert audits(later)["quarantine"] == []
        assert ask(later, "what's the capital of  Spain?")[0] == "semantic"
        assert command(later, "lift", "--threshold") == "The threshold had not risen.\n"
