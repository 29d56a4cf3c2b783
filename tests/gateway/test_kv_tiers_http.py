"""Tiers of the KV cache, over HTTP: what a server that was restarted finds of a prompt, and what its figures say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gateway_site import Client, forget_environment, gauges, site

CONTENT = "The mill stands where the river bends, and its wheel turns. " * 6
ASK = {"model": "tiny", "messages": [{"role": "user", "content": CONTENT}], "max_tokens": 6, "temperature": 0}


async def ask(client: Client) -> tuple[Any, int, int]:
    """The answer, and how many of its prompt's tokens were cached."""
    response = await client.post("/v1/chat/completions", json=ASK, headers={"Cache-Control": "no-cache"})
    assert response.status == 200
    body = await response.json()
    cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
    return body["choices"][0]["message"], body["usage"]["prompt_tokens"], cached


async def test_a_restarted_server_reads_what_the_one_before_computed(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    engine = {
        "device": "cpu", "threads": 1, "kv_bytes": 8 << 20, "kv_disk_path": str(tmp_path / "kv"),
        "kv_disk_bytes": "50MB", "kv_host_bytes": "1MB",
    }  # fmt: skip
    async with site(tiny_checkpoint, engine=engine) as client:
        message, tokens, cached = await ask(client)
        assert (cached, tokens > 100) == (0, True)
        assert (await gauges(client))["headgate_kv_tier_bytes"] > 0
    async with site(tiny_checkpoint, engine=engine) as client:
        whole = tokens // 16 * 16 - (16 if tokens % 16 == 0 else 0)
        assert await ask(client) == (message, tokens, whole)
        figures = await gauges(client)
        assert figures["headgate_kv_tier_loaded_tokens_total"] == whole
        assert (figures["headgate_kv_loads_total"], figures["headgate_kv_short_loads_total"]) == (1, 0)
        assert figures["headgate_kv_tier_blocks"] >= whole // 16
