"""`/metrics` says how much is remembered of requests that have ended, and how near to its bound that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site

from headgate.bench.soak.looks import look
from headgate.cache.audits.label_log import LabelLog
from headgate.cache.embedding.embedder import SentenceEmbedder


async def test_each_store_tells_its_things_and_its_bound(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    kept: dict[str, Any] = {
        "feedback": {"most": 4},
        "dashboard": {"requests": 8},
        "responses": {"max_bytes": "1MiB"},
    }
    async with site(tiny_checkpoint, **kept) as client:
        for text in ("hello", "hello", "well"):
            body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
            assert (await client.post("/v1/chat/completions", json=body)).status == 200
        reply = await client.post("/v1/responses", json={"model": "tiny", "input": "hi", "max_output_tokens": 2})
        assert reply.status == 200
        stores = look(1, await (await client.get("/metrics")).text(), 4).stores
    assert stores["bodies"] == (2, pytest.approx(2 * 8192 / 16 / 2**20, rel=0.1))
    assert stores["requests"] == (4, 0.5)
    assert stores["ratable"] == (4, 1.0)
    assert stores["tabs"] == (0, 0.0)
    count, full = stores["responses"]
    assert count == 1
    assert 0 < full < 0.01
    count, full = stores["retries"]
    assert count == 3, "one of them was there already"
    assert 0 < full < 0.001


def test_parts_that_have_nothing_to_remember_say_so() -> None:
    assert SentenceEmbedder("nowhere", cache_size=0).remembered == (0, 0.0)
    assert LabelLog(capacity=3).remembered == (0, 0.0)
