"""Limits over HTTP: the headers of every reply, and a refusal that tells clients when to come again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site

from headgate.gateway.wire.headers import duration

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
DURATION = re.compile(r"(\d+m)?\d+(\.\d+)?m?s")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.0113, "12ms"), (1, "1s"), (1.5, "1.5s"), (60, "1m0s"), (90.25, "1m30.25s")]
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


async def test_every_reply_tells_how_the_limits_stand(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    limits = {"requests_per_minute": 3, "tokens_per_minute": 10_000}
    async with site(tiny_checkpoint, defaults={"limits": limits}) as client:
        first = await client.post(CHAT, json=HELLO)
        used = (await first.json())["usage"]["total_tokens"]
        assert first.headers["x-ratelimit-limit-requests"] == "3"
        assert first.headers["x-ratelimit-remaining-requests"] == "2"
        assert first.headers["x-ratelimit-limit-tokens"] == "10000"
        assert first.headers["x-ratelimit-remaining-tokens"] == str(10_000 - used)
        for name in ("requests", "tokens"):
            assert DURATION.fullmatch(first.headers[f"x-ratelimit-reset-{name}"])

        hit = await client.post(CHAT, json=HELLO)
        assert hit.headers["x-headgate-cache"] == "exact"
        assert hit.headers["x-ratelimit-remaining-requests"] == "1"
        assert hit.headers["x-ratelimit-remaining-tokens"] == str(10_000 - used)

        wrong = await client.post(CHAT, json={**HELLO, "max_tokens": 100_000})
        assert wrong.status == 400
        assert wrong.headers["x-ratelimit-remaining-requests"] == "0"

        unread = await client.post(CHAT, json=HELLO, headers={"x-headgate-timeout-ms": "soon"})
        assert (unread.status, (await unread.json())["error"]["param"]) == (400, "x-headgate-timeout-ms")

        refused = await client.post(CHAT, json=HELLO)
        assert refused.status == 429
        assert (await refused.json())["error"] == {
            "message": (await refused.json())["error"]["message"],
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        assert int(refused.headers["retry-after"]) <= 60
        assert 0 < int(refused.headers["retry-after-ms"]) <= 60_000
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_hundred_clients_at_once_pass_no_limit(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, defaults={"limits": {"requests_per_minute": 20, "tokens_per_minute": 200}}) as app:

        async def ask(number: int) -> tuple[int, int]:
            body = {**HELLO, "messages": [{"role": "user", "content": f"number {number}"}]}
            async with app.post(CHAT, json=body) as reply:
                answer = await reply.json()
                return reply.status, answer["usage"]["total_tokens"] if reply.status == 200 else 0

        replies = await asyncio.gather(*(ask(number) for number in range(100)))
        assert {status for status, _ in replies} == {200, 429}
        assert sum(status == 200 for status, _ in replies) <= 20
        assert 0 < sum(tokens for _, tokens in replies) <= 200


async def test_a_team_may_have_smaller_bodies(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    async with site(tiny_checkpoint, defaults={"limits": {"max_body_bytes": 300}}) as client:
        assert (await client.post(CHAT, json=HELLO)).status == 200
        long = {**HELLO, "messages": [{"role": "user", "content": "x" * 300}]}
        assert (await client.post(CHAT, json=long)).status == 413
        assert (await client.post(CHAT, data=_pieces(long), headers={"content-type": "application/json"})).status == 413


async def _pieces(body: dict[str, Any]) -> AsyncIterator[bytes]:
    """Without a length said before."""
    yield json.dumps(body).encode()
