"""However many names, keys and paths strangers try, the number of series stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from gateway_site import forget_environment, site
from team_files import key, write_team

MESSAGE = {"role": "user", "content": "hello"}
ASKS = (
    ("/v1/chat/completions", {"messages": [MESSAGE]}),
    ("/v1/completions", {"prompt": "hello"}),
    ("/v1/messages", {"messages": [MESSAGE], "max_tokens": 4}),
    ("/v1/responses", {"input": "hello"}),
    ("/v1/embeddings", {"input": "hello"}),
)


def call(line: str, secret: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    kind = "" if body is None else "Content-Type: application/json\r\n"
    head = (
        f"{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {secret}\r\n{kind}Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def strangers(numbers: Iterable[int]) -> Iterable[bytes]:
    """Of each kind one request per number: a key, paths and models that do not exist."""
    for number in numbers:
        path, body = ASKS[number % len(ASKS)]
        yield call("GET /v1/models", f"wrong-{number}")
        yield call(f"GET /v1/nothing/{number}", "secret-of-red")
        yield call(f"GET /{number}?q={number}", "secret-of-red")
        yield call(f"POST {path}", "secret-of-red", {**body, "model": f"model-{number}"})
        yield call(f"GET /v1/models/model-{number}", "secret-of-red")


async def flood(port: int, calls: Iterable[bytes]) -> int:
    """Send all of them on one connection without waiting; the number of replies."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        for one in calls:
            writer.write(one)
            await writer.drain()
        writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

    sending = asyncio.create_task(send())
    replies = await reader.read()
    await sending
    writer.close()
    return replies.count(b"HTTP/1.1 ")


async def test_a_flood_of_strange_names_makes_no_series(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "secret-of-red")
    write_team(tmp_path, "red", key("red"))
    async with site(tiny_checkpoint, teams=tmp_path, logging={"access": "off"}) as client:
        port = client.server.port
        assert port is not None

        async def series() -> set[str]:
            page = await (await client.get("/metrics")).text()
            return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}

        assert await flood(port, strangers(range(len(ASKS)))) == 26
        before = await series()
        before = await series()  # the first scrape is a request that the second one counts
        parts = [flood(port, strangers(range(part, part + 1000))) for part in (1000, 2000)]
        assert sum(await asyncio.gather(*parts)) == 10_002
        assert await series() == before
        assert not [line for line in before if "model-" in line or "wrong-" in line or "nothing" in line]
        assert [line for line in before if 'code="404"' in line and 'team="red"' in line], "they are counted"
