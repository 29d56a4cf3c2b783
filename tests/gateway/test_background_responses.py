"""Responses that are made while nobody waits: how they stand, who may end them, and what other processes see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis_process import RedisProcess, running_redis

from headgate.cache.store.base import StoreDownError
from headgate.cache.store.redis import RedisStore
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.responses.background import BackgroundResponses, Making
from headgate.gateway.responses.shared import SharedResponses
from headgate.gateway.responses.stored import StoredResponse, StoredResponses
from headgate.gateway.road.request import CacheControl, Chunk, Usage
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError, context_exceeded
from headgate.gateway.wire.identity import Identity
from headgate.gateway.wire.responses.reply import ResponsesReply
from headgate.gateway.wire.responses.request import read_responses, to_respond


class Gateway:
    """One process's responses, each of two pieces of text; the second comes when it is let."""

    def __init__(self, redis: RedisStore | None = None) -> None:
        self.now = 1000.0
        self.stored = SharedResponses(StoredResponses(3600.0, 100_000), 3600.0, 100_000)
        self.stored.share(redis)
        self.ended: list[int] = []
        self.lifecycle = Lifecycle()
        self.background = BackgroundResponses(
            self.stored, self.lifecycle, lambda record: self.ended.append(record.status), lambda: self.now
        )
        self.let = asyncio.Event()
        self.left = 0

    async def begin(self, name: str = "resp_1", *, error: ApiError | None = None, late: bool = False) -> Making:
        wire = read_responses(json.dumps({"model": "m", "input": "hi", "background": True}).encode())
        asked = to_respond(wire, CacheControl(), None)
        reply = ResponsesReply(
            Identity(name, 7, "m", ""), asked, stored=True, keep=lambda body: making.become(body)
        )  # fmt: skip
        making = Making("red", name, reply, b"[]", stream=True)

        async def make(_: Making) -> AsyncIterator[Sequence[bytes]]:
            if error is not None and not late:
                raise error
            try:
                yield reply.opening(range(1))
                yield reply.chunk(Chunk(0, "One "))
                await self.let.wait()
                if error is not None:
                    raise error
                yield reply.chunk(Chunk(0, "two", finish_reason="stop"))
                yield [reply.usage(Usage(3, 2, 0))]
            finally:
                self.left += 1

        self.background.begin(making, make, RequestRecord("req", "/v1/responses"))
        await making.begun(None)
        return making

    async def stands(self, name: str = "resp_1") -> dict[str, Any] | None:
        found = await self.background.get("red", name)
        return None if found is None else json.loads(found.body)

    async def status(self, name: str = "resp_1") -> str:
        body = await self.stands(name)
        assert body is not None
        return str(body["status"])


async def until_ended(making: Making) -> None:
    while not making.ended:
        await making.changed(None)


async def test_it_is_made_to_its_end_and_its_events_stay() -> None:
    gateway = Gateway()
    making = await gateway.begin()
    assert await gateway.status() == "in_progress"
    assert await gateway.background.get("blue", "resp_1") is None
    assert gateway.lifecycle.in_flight == 1, "a server that drains waits for it"
    gateway.let.set()
    await until_ended(making)
    body = await gateway.stands()
    assert body is not None
    assert (body["status"], body["background"]) == ("completed", True)
    assert body["output"][0]["content"][0]["text"] == "One two"
    found = await gateway.background.get("red", "resp_1")
    assert found is not None
    assert list(found.events) == making.events
    assert (gateway.ended, gateway.lifecycle.in_flight) == ([200], 0)
    # What has ended cannot be cancelled any more.
    again = await gateway.background.cancel("red", "resp_1")
    assert again is not None
    assert json.loads(again.body) == body
    assert await gateway.background.cancel("red", "resp_9") is None


async def test_who_cancels_it_frees_what_it_held() -> None:
    gateway = Gateway()
    making = await gateway.begin()
    found = await gateway.background.cancel("red", "resp_1")
    assert found is not None
    assert json.loads(found.body)["status"] == "cancelled"
    assert (gateway.left, making.ended, gateway.ended) == (1, True, [499])
    assert await gateway.status() == "cancelled"
    await gateway.begin("resp_2")
    assert await gateway.background.delete("red", "resp_2")
    assert await gateway.stands("resp_2") is None
    assert not await gateway.background.delete("red", "resp_2")


async def test_only_what_was_made_in_the_background_can_be_cancelled() -> None:
    gateway = Gateway()
    making = await gateway.begin()
    gateway.let.set()
    await until_ended(making)
    found = await gateway.background.get("red", "resp_1")
    assert found is not None
    whole = found.body.replace(b'"background":true', b'"background":false')
    gateway.stored.keep("red", "resp_0", type(found)(whole, b"[]"))
    with pytest.raises(ValueError, match="background"):
        await gateway.background.cancel("red", "resp_0")


async def test_what_fails_says_why() -> None:
    gateway = Gateway()
    refused = await gateway.begin(error=context_exceeded(10, 20, None))
    assert (refused.error is not None, refused.events) == (True, [])
    body = await gateway.stands()
    assert body is not None
    assert (body["status"], body["error"]["code"]) == ("failed", "invalid_prompt")
    gateway.let.set()
    making = await gateway.begin("resp_2", error=ApiError(500, "It broke."), late=True)
    await until_ended(making)
    assert b"response.failed" in making.events[-1]
    body = await gateway.stands("resp_2")
    assert body is not None
    assert (body["status"], body["error"]) == ("failed", {"code": "server_error", "message": "It broke."})


async def test_a_server_that_stops_says_so_of_what_it_was_making() -> None:
    gateway = Gateway()
    gateway.background.start()
    await gateway.begin()
    await gateway.background.close()
    assert (gateway.left, await gateway.status()) == (1, "failed")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with running_redis(tmp_path) as running:
        yield running


def pass_in_redis(redis: RedisProcess, name: str, seconds: int) -> None:
    """Have a response become so much older there."""
    with Redis(port=redis.port) as client:
        key = f"headgate:response:3:red:{name}"
        left_ms = client.pttl(key)
        assert isinstance(left_ms, int)
        client.pexpire(key, left_ms - seconds * 1000)


async def test_processes_that_share_a_redis_share_responses(redis: RedisProcess) -> None:
    stores = [RedisStore(redis.url, lambda: 1000.0, timeout_s=10.0) for _ in range(2)]
    one, two = (Gateway(store) for store in stores)
    try:
        making = await one.begin()
        await one.stored.written("red", "resp_1")
        assert await two.status() == "in_progress"
        # Cancelled there, it is made no further here, and nothing brings it back.
        assert await two.background.cancel("red", "resp_1") is not None
        await two.stored.close()
        await one.background.follow()
        await until_ended(making)
        assert (one.left, await one.status(), await two.status()) == (1, "cancelled", "cancelled")
        # Not even where it ended before this process heard of it.
        making = await one.begin("resp_4")
        await one.stored.written("red", "resp_4")
        assert await two.background.cancel("red", "resp_4") is not None
        await two.stored.close()
        one.let.set()
        await until_ended(making)
        await one.stored.close()
        one.let.clear()
        for gateway in (one, two):
            body = await gateway.stands("resp_4")
            assert body is not None
            assert body["status"] == "cancelled"
        # Forgotten there, too.
        making = await one.begin("resp_2")
        await one.stored.written("red", "resp_2")
        assert await two.background.delete("red", "resp_2")
        await one.background.follow()
        await until_ended(making)
        assert (await one.stands("resp_2"), await two.stands("resp_2")) == (None, None)
        # As long as a process says that it goes on, it does; one that says nothing is gone.
        making = await one.begin("resp_3")
        await one.stored.written("red", "resp_3")
        pass_in_redis(redis, "resp_3", 20)
        one.now = 1020.0
        await one.background.follow()
        await one.stored.written("red", "resp_3")
        pass_in_redis(redis, "resp_3", 25)
        body = await two.stands("resp_3")
        assert body is not None
        assert body["status"] == "in_progress"
        pass_in_redis(redis, "resp_3", 6)
        body = await two.stands("resp_3")
        assert body is not None
        assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
        # Without Redis it stays with who made it.
        redis.kill()
        one.let.set()
        await until_ended(making)
        await one.stored.close()
        body = await one.stands("resp_3")
        assert body is not None
        assert body["status"] == "completed"
        with pytest.raises(StoreDownError):
            await two.stands("resp_3")
    finally:
        for store in stores:
            await store.close()


@pytest.fixture
async def stores(redis: RedisProcess) -> AsyncIterator[list[RedisStore]]:
    """Of two processes."""
    found = [RedisStore(redis.url, lambda: 1000.0, timeout_s=10.0) for _ in range(2)]
    yield found
    for store in found:
        await store.close()


async def begin_anew(redis: RedisProcess, stores: list[RedisStore]) -> None:
    """Start a Redis that was killed, and have the processes notice."""
    redis.start()
    for store in stores:
        while await store.ping() is not None:
            pass  # it was a connection that is closed


async def test_clocks_that_differ_end_no_response(stores: list[RedisStore]) -> None:
    one, two = map(Gateway, stores)
    two.now += 120.0
    making = await one.begin()
    await one.stored.written("red", "resp_1")
    assert await two.status() == "in_progress"
    one.let.set()
    await until_ended(making)
    await one.stored.close()
    assert (await one.status(), await two.status()) == ("completed", "completed")


async def test_it_is_made_on_though_redis_forgot_it(redis: RedisProcess, stores: list[RedisStore]) -> None:
    one, two = map(Gateway, stores)
    making = await one.begin()
    await one.stored.written("red", "resp_1")
    assert await two.status() == "in_progress"
    redis.kill()
    await begin_anew(redis, stores)
    await one.background.follow()
    await one.stored.close()
    assert (await one.status(), await two.status()) == ("in_progress", "in_progress")
    one.let.set()
    await until_ended(making)
    await one.stored.close()
    assert (one.ended, await one.status(), await two.status()) == ([200], "completed", "completed")


async def test_redis_is_told_later_of_what_ended_while_it_was_away(
    redis: RedisProcess, stores: list[RedisStore]
) -> None:
    one, two = map(Gateway, stores)
    for name, asked in (("resp_1", one), ("resp_2", two)):
        one.let.clear()
        making = await one.begin(name)
        await one.stored.written("red", name)
        assert await two.status(name) == "in_progress"
        with Redis(port=redis.port) as client:
            had = client.get(f"headgate:response:3:red:{name}")
            assert isinstance(had, bytes)
            redis.kill()
            one.let.set()
            await until_ended(making)
            await one.stored.close()
            await begin_anew(redis, stores)
            client.set(f"headgate:response:3:red:{name}", had)  # as a server has it that kept its data
        one.now = two.now = 1100.0
        if asked is two:
            await one.background.follow()
        body = await asked.stands(name)
        assert body is not None
        assert body["status"] == "completed"
        assert body == await two.stands(name)


async def test_a_full_redis_still_hears_that_nobody_wants_it(redis: RedisProcess, stores: list[RedisStore]) -> None:
    one, two = map(Gateway, stores)
    for name in ("resp_1", "resp_2"):
        await one.begin(name)
        await one.stored.written("red", name)
    with Redis(port=redis.port) as client:
        client.config_set("maxmemory", 1)
    assert await one.background.cancel("red", "resp_1") is not None
    assert await one.status() == "cancelled"
    assert await two.background.delete("red", "resp_2")
    await one.background.follow()
    assert (await one.stands("resp_2"), one.left) == (None, 2)
    assert await one.status() == "cancelled"


async def test_large_responses_have_the_time_that_they_take(
    stores: list[RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = map(Gateway, stores)
    carried: list[int] = []
    for store in stores:

        async def ask(*args: Any, ask: Callable[..., Awaitable[Any]] = store.ask, carries: int = 0) -> Any:
            carried.append(carries)
            return await ask(*args, carries=carries)

        monkeypatch.setattr(store, "ask", ask)
    one.stored.keep("red", "resp_1", StoredResponse(b'{"status": "completed"}', b"x" * 90_000))
    await one.stored.written("red", "resp_1")
    found = await two.stored.get("red", "resp_1")
    assert found is not None
    assert len(found.items) == 90_000
    assert [carries >= 90_000 for carries in carried] == [True, False, True], "told, looked up, and read"
    assert await two.stored.get("red", "resp_2") is None


async def test_what_another_process_deleted_does_not_come_back(
    stores: list[RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = map(Gateway, stores)
    ask = stores[0].ask

    async def unheard(command: Callable[[], Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        await ask(command, *args, **kwargs)
        raise StoreDownError("no answer in time, though it was done")

    for name, begun in (("resp_1", False), ("resp_2", True)):
        if begun:
            await one.begin(name)
            await one.stored.written("red", name)
            assert await two.background.cancel("red", name) is not None
            await two.stored.written("red", name)
        with monkeypatch.context() as patched:
            patched.setattr(stores[0], "ask", unheard)
            one.stored.keep("red", name, StoredResponse(b'{"status": "completed", "background": true}', b"[]"))
            await one.stored.written("red", name)
        assert await two.status(name) == "completed"
        assert await two.background.delete("red", name)
        await one.background.follow()
        await one.stored.close()
        assert (await one.stands(name), await two.stands(name)) == (None, None)
