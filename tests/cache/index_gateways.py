"""Gateways' shares of a cache in Redis: a store, an index and the feed between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from redis_process import NOW

from headgate.cache.hnsw import HnswIndex
from headgate.cache.index import FlatIndex, Place, Vector
from headgate.cache.store.feed import IndexFeed
from headgate.cache.store.redis import RedisStore
from headgate.cache.verdict import Entry, StoredChoice

DIM = 8

STREAM = "headgate:changes"

VECTOR = "headgate:vector:"


@dataclass
class Gateway:
    """One process's share of the cache."""

    store: RedisStore
    index: FlatIndex | HnswIndex
    feed: IndexFeed
    copied: list[int]

    async def put(self, key: str, *tags: str, embedder: str = "m", ttl: float = 600.0) -> None:
        assert await self.store.put(entry(key, ttl), frozenset(tags), Place("b", vector_of(key), embedder))

    def holds(self) -> set[str]:
        """The keys in the index, asked for one by one by their vectors."""
        return {key for key in map(str, range(1000)) if key in self.index}


Open = Callable[..., Gateway]


def vector_of(key: str) -> Vector:
    vector = np.random.default_rng(int(key)).standard_normal(DIM, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def entry(key: str, ttl: float = 600.0) -> Entry:
    return Entry(key, "q", (StoredChoice("a", "stop"),), "m", 1, 1, 0.1, NOW, NOW + ttl)


async def synced(*gateways: Gateway) -> None:
    async with asyncio.timeout(60):
        for gateway in gateways:
            await gateway.feed.synced()


async def start(*gateways: Gateway) -> None:
    for gateway in gateways:
        await gateway.feed.start()
    await synced(*gateways)
