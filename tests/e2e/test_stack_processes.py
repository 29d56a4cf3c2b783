"""The processes of docker-compose.yml without Docker: the gateway with the stack's configuration, Redis, Prometheus."""

from __future__ import annotations

import json
import re
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai import OpenAI
from prometheus_process import PrometheusProcess, running_prometheus
from redis_process import running_redis
from server_process import ServerProcess, run_server
from stack_files import ROOT, alerts, expressions

STACK = ROOT / "config/stack"
KEY = "the key of who runs the stack"
# For the metrics of upstreams. Nobody is there, and no question is so short that `auto` would try.
ELSEWHERE = {"id": "elsewhere", "base_url": "http://127.0.0.1:9/v1", "model": "m", "context_length": 2,
             "health": {"path": "/health"}}  # fmt: skip
ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@dataclass(frozen=True)
class Stack:
    """What runs."""

    gateway: ServerProcess
    prometheus: PrometheusProcess

    @property
    def client(self) -> OpenAI:
        """The official client with the admin key."""
        return self.gateway.client(KEY)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All of it, with addresses, folders and secrets of the test's own."""
    folder = tmp_path_factory.mktemp("stack")
    (teams := folder / "teams").mkdir()
    (folder / "headgate_admin_key").write_text(KEY + "\n")
    (folder / "headgate_cache_secret").write_text("what keys the fingerprints\n")
    operators = (STACK / "teams/operators.yaml").read_text()
    (teams / "operators.yaml").write_text(operators.replace("/run/secrets", str(folder)))
    with (
        running_redis(folder) as redis,
        run_server(
            folder,
            *("--config", str(STACK / "headgate.yaml"), "--host", "127.0.0.1"),
            HEADGATE_CACHE__REDIS=redis.url,
            HEADGATE_CACHE__REDIS_TIMEOUT_S="10",  # the machine may be busy
            HEADGATE_CACHE__SECRET=f"file:{folder / 'headgate_cache_secret'}",
            HEADGATE_TEAMS__FOLDER=str(teams),
            HEADGATE_UPSTREAMS=json.dumps([ELSEWHERE]),
        ) as gateway,
        running_prometheus(folder, gateway.url.removeprefix("http://")) as prometheus,
    ):
        yield Stack(gateway, prometheus)


def test_a_client_is_answered_and_prometheus_holds_the_figures(stack: Stack) -> None:
    with pytest.raises(openai.AuthenticationError):
        stack.gateway.client("another key").models.list()
    replies = [stack.client.chat.completions.with_raw_response.create(model="auto", messages=ASK) for _ in "ab"]
    answers = [reply.parse() for reply in replies]
    assert "Paris" in (answers[0].choices[0].message.content or "")
    assert [reply.headers["x-headgate-cache"] for reply in replies] == ["miss", "exact"], "the second is Redis' own"
    prometheus = stack.prometheus
    asked = 'sum(headgate_requests_total{endpoint="/v1/chat/completions", code="200"})'
    assert prometheus.becomes(asked, 2) == 2
    assert prometheus.value('headgate_requests_total{endpoint="/v1/models", code="401"}') == 1
    usage = answers[0].usage
    assert usage is not None
    generated = 'sum(headgate_usage_tokens_total{team="operators", cause="generated", kind="completion"})'
    assert prometheus.becomes(generated, usage.completion_tokens) == usage.completion_tokens
    assert prometheus.value('headgate_cache_lookups_total{verdict="exact", reason="stored"}') == 1


def test_prometheus_follows_the_gateway_and_evaluates_the_stacks_alerts(stack: Stack) -> None:
    assert stack.prometheus.becomes('up{job="headgate"}', 1) == 1
    (group,) = stack.prometheus.api("rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [alert["alert"] for alert in alerts()]
    assert not [rule for rule in group["rules"] if rule["health"] == "err"]
    assert stack.prometheus.value('count(ALERTS{alertstate="firing"})') == 0, "nothing is wrong with it"


def test_panels_and_alerts_ask_for_what_the_gateway_tells(stack: Stack) -> None:
    following = "count(headgate_cache_feed_staleness_seconds)"
    assert stack.prometheus.becomes(following, 1) == 1, "the index follows Redis once the embedding model is loaded"
    exposed = set(re.findall(r"^# TYPE (headgate_\w+)", stack.gateway.get("/metrics"), re.MULTILINE))
    for where, expression in expressions():
        try:
            stack.prometheus.api("query", query=expression)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{where}: {expression}: {error.read().decode()}") from None
        assert not _unknown(expression, exposed), where
    assert not _unknown((ROOT / "docs/operations.md").read_text(), exposed)


def _unknown(text: str, exposed: set[str]) -> set[str]:
    """Metrics named in a text that are not among the families exposed."""
    named = set(re.findall(r"\bheadgate_\w+", text))
    return {name for name in named if not {name, re.sub(r"_(bucket|sum|count)$", "", name)} & exposed}
