"""Nothing stays of a request that has ended: memory after thousands of them is what it was before."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession
from gateway_site import forget_environment, site

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
ROUND = 400
"""Requests between two looks at the memory."""


@contextmanager
def traced() -> Iterator[None]:
    """With what is there by now left alone, as a server does when its models are loaded: nobody looks through it."""
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.unfreeze()


async def mixed(client: ClientSession, count: int) -> None:
    """Answers from the cache, whole and streamed, fresh ones, refusals, and clients that leave."""

    async def said(asked: Any) -> tuple[int, bytes]:
        async with asked as reply:
            return reply.status, await reply.read()

    async def leave(reply: ClientResponse) -> None:
        await reply.content.readline()
        reply.close()

    async def one(number: int) -> None:
        kind = number % 12
        if kind == 0:
            status, body = await said(client.post(CHAT, json={**ASK, "max_tokens": 1, "temperature": 1.0}))
            assert status == 200
        elif kind == 1:
            status, body = await said(client.post(CHAT, json={**ASK, "model": f"none-{number}"}))
            assert status == 404
        elif kind == 2:
            status, body = await said(client.post(CHAT, json={**ASK, "top_p": -number}))
            assert status == 400
        elif kind == 3:
            status, body = await said(client.get(f"/v1/nowhere/{number}"))
            assert status == 404
        elif kind == 4:
            endless = {**ASK, "stream": True, "max_tokens": 400, "ignore_eos": True, "temperature": 1.0}
            await leave(await client.post(CHAT, json=endless))
        elif kind % 2:
            status, body = await said(client.post(CHAT, json={**ASK, "stream": True}))
            assert b"[DONE]" in body
        else:
            status, body = await said(client.post(CHAT, json=ASK))
            assert b"chat.completion" in body

    for start in range(0, count, 4):
        await asyncio.gather(*(one(start + at) for at in range(4)))


async def settled() -> tuple[int, int]:
    """Bytes and objects that are there when nothing is going on."""
    for _ in range(3):
        await asyncio.sleep(0.05)
        gc.collect()
    return tracemalloc.get_traced_memory()[0], len(gc.get_objects())


async def test_memory_does_not_grow_with_requests(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    # The client of aiohttp's tests keeps every reply; a plain one does not.
    # The operator's page remembers the last requests and minutes, and answers can be rated for a while: up to bounds
    # that have tests of their own.
    kept: dict[str, Any] = {"dashboard": {"enabled": False}, "feedback": {"most": 20}}
    async with (
        site(tiny_checkpoint, storage={"folder": str(tmp_path)}, **kept) as served,
        ClientSession(served.make_url("/")) as client,
    ):
        await mixed(client, ROUND)
        looks = []
        with traced():
            for _ in range(4):
                await mixed(client, ROUND)
                looks.append(await settled())
    grown = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(looks)]
    # A round or two may fill a buffer, the next does not: what every request leaves would be in all. The least that is
    # left of a request is an object in a container, of 56 bytes or more.
    assert min(size for size, _ in grown) < ROUND * 48, f"bytes and objects of {ROUND} requests: {grown}"
    assert min(objects for _, objects in grown) < ROUND // 20, f"bytes and objects of {ROUND} requests: {grown}"
