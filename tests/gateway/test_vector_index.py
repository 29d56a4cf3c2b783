"""The index of a gateway that starts on a Redis in which others have stored."""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from redis_process import running_redis

from headgate.cache.index import Place
from headgate.cache.store.redis import RedisStore
from headgate.cache.verdict import Entry, StoredChoice
from headgate.gateway.caching.vector_index import PROGRESS_S, SharedIndex


async def test_a_long_copy_says_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_redis(tmp_path) as server:
        store = RedisStore(server.url, time.time, timeout_s=20.0)
        now = time.time()
        for number in range(400):
            vector = np.eye(4, dtype=np.float32)[number % 4]
            entry = Entry(str(number), "q", (StoredChoice("a", "stop"),), "m", 1, 1, 0.1, now, now + 600.0)
            await store.put(entry, frozenset(), Place("b", vector, "m"))
        ticks = count()
        shared = SharedIndex(4, "m", store, clock=lambda: next(ticks) * PROGRESS_S / 2)
        with caplog.at_level(logging.INFO, logger="headgate"):
            await shared.start()
            assert shared.feed is not None
            async with asyncio.timeout(20):
                await shared.feed.synced()
        said = [record.message for record in caplog.records]
        told = [int(line.split()[0]) for line in said if line.endswith("vectors copied from Redis so far")]
        assert told
        assert told == sorted(told)
        assert told[0] <= 400
        assert any(line.startswith("the index has 400 vectors") for line in said)
        assert len(shared.index) == 400
        await shared.close()
        await store.close()
