"""A Redis server for the tests of what is kept in one, and the shipped judge with the encoder it was fitted on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from index_gateways import DIM, Gateway, Open
from redis import Redis
from redis_process import RedisProcess, Time, running_redis

from headgate.cache.embedding.encoder import BertEncoder
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.hnsw import HnswIndex
from headgate.cache.index import FlatIndex
from headgate.cache.judge import Judge
from headgate.cache.store.feed import IndexFeed
from headgate.cache.store.redis import RedisStore


@pytest.fixture(scope="session")
def judge() -> Judge:
    return Judge.load()


@pytest.fixture(scope="session")
def encoder() -> BertEncoder:
    folder = default_folder()
    assert folder is not None
    return BertEncoder(folder)


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """The server that tests share; see `server`."""
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def server(process: RedisProcess) -> Iterator[Redis]:
    """The shared server, emptied, seen past the stores."""
    with Redis(port=process.port) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that a test may kill. What is saved is there when it starts again."""
    with running_redis(tmp_path) as running:
        yield running


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def open_store(
    process: RedisProcess,
    server: Redis,  # noqa: ARG001  it is to be empty
    time: Time,
) -> AsyncIterator[Callable[..., RedisStore]]:
    """Opens stores on the server. They wait long, for a busy machine must not look like an outage."""
    async with AsyncExitStack() as stack:

        def open_store(url: str = process.url, timeout_s: float = 20.0, **options: Any) -> RedisStore:
            store = RedisStore(url, lambda: time.now, timeout_s=timeout_s, monotonic=lambda: time.monotonic, **options)
            stack.push_async_callback(store.close)
            return store

        yield open_store


@pytest.fixture
async def open_gateway(
    process: RedisProcess,
    server: Redis,  # noqa: ARG001  it is to be empty
    time: Time,
) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_gateway(
            url: str = process.url, index: FlatIndex | HnswIndex | None = None, embedder: str = "m", **store: Any
        ) -> Gateway:
            copied: list[int] = []
            opened = RedisStore(url, lambda: time.now, timeout_s=30.0, monotonic=lambda: time.monotonic, **store)
            view = FlatIndex(DIM) if index is None else index
            feed = IndexFeed(
                opened, view, embedder, lambda: time.now, block_s=0.01, pause_s=0.01, answer_s=30.0,
                monotonic=time.running, progress=lambda _: copied.append(feed.copying or 0),
            )  # fmt: skip
            opened.on_forget(view.remove)
            stack.push_async_callback(opened.close)
            stack.push_async_callback(feed.close)
            return Gateway(opened, view, feed, copied)

        yield open_gateway
