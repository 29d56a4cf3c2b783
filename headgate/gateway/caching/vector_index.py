"""The index of the semantic cache: which kind, and what keeps it in step with other gateways on one Redis."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.cache.index import FlatIndex

if TYPE_CHECKING:
    from headgate.cache.hnsw import HnswIndex
    from headgate.cache.store.feed import IndexFeed
    from headgate.cache.store.redis import RedisStore

PROGRESS_S = 2.0
"""How often a copy of what Redis holds says in the log how far it is."""

logger = logging.getLogger("headgate.gateway")


class SharedIndex:
    """An index for this process, and where there is a Redis the feed that brings in what other gateways store."""

    def __init__(
        self, dim: int, embedder: str, redis: RedisStore | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """An index of vectors `[dim]` that the model `embedder` makes; nothing is followed before `start`."""
        self._clock = clock
        self._told_at = clock()
        self._graph: HnswIndex | None = None
        self.feed: IndexFeed | None = None
        self.index: FlatIndex | HnswIndex
        if importlib.util.find_spec("faiss") is None:
            logger.info("faiss is not installed: similar questions are searched by comparing with all of a scope")
            self.index = FlatIndex(dim)
        else:
            from headgate.cache.hnsw import HnswIndex

            self.index = self._graph = HnswIndex(dim)
        if redis is not None:
            from headgate.cache.store.feed import IndexFeed

            self.feed = IndexFeed(redis, self.index, embedder, time.time, progress=self._tell)

    async def start(self) -> None:
        """Begin to follow the other gateways; Redis may be away."""
        if self.feed is not None:
            await self.feed.start()

    def _tell(self, copied: int) -> None:
        """A log line every few seconds of a long copy."""
        if self._clock() - self._told_at >= PROGRESS_S:
            self._told_at = self._clock()
            logger.info("%d vectors copied from Redis so far", copied)

    async def close(self) -> None:
        """Stop following and building. Call it before the store is closed."""
        if self.feed is not None:
            await self.feed.close()
        if self._graph is not None:
            await self._graph.close()
