"""The engine's figures under vLLM's names: all that are promised, of the right type, and true."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gateway_site import forget_environment, site
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello there"}]}
TYPES = {
    "num_requests_running": "gauge", "num_requests_waiting": "gauge", "kv_cache_usage_perc": "gauge",
    "prefix_cache_queries": "counter", "prefix_cache_hits": "counter", "num_preemptions": "counter",
    "prompt_tokens": "counter", "generation_tokens": "counter", "request_success": "counter",
    "time_to_first_token_seconds": "histogram", "inter_token_latency_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram", "request_queue_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram", "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram", "iteration_tokens_total": "histogram",
    "request_params_n": "histogram", "request_params_max_tokens": "histogram", "cache_config_info": "gauge",
}  # fmt: skip
"""The names that operators of vLLM chart and that routers read."""


class Page:
    """What /metrics says under vLLM's names."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = text_string_to_metric_families(text)
        self.families: dict[str, Metric] = {f.name[5:]: f for f in found if f.name.startswith("vllm:")}

    def value(self, name: str, model: str = "tiny", **labels: str) -> float:
        """The one sample of that name."""
        family = self.families[name.removesuffix("_total").removesuffix("_sum").removesuffix("_count")]
        wanted = {"model_name": model, **labels}
        (value,) = [s.value for s in family.samples if s.name == f"vllm:{name}" and wanted.items() <= s.labels.items()]
        return value


def linted(text: str) -> list[str]:
    """What Prometheus' own linter says of names and types; nothing where it is not installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return []
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return [*checked.stdout.splitlines(), *checked.stderr.splitlines()]


async def test_what_an_engine_did_has_vllms_names(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)
    models = [{"id": "tiny", "path": str(tiny_checkpoint)}]  # alone: nothing is measured at the start
    options: dict[str, Any] = {"models": models, "telemetry": {"vllm_names": True}, "logging": {"access": "off"}}
    prompt = completion = 0
    async with site(tiny_checkpoint, **options) as client:
        for number, fields in enumerate(
            ({"n": 3, "max_tokens": 5}, {"max_tokens": 9, "stream": True}, {"max_tokens": 9})
        ):
            body = {**ASK, "temperature": 1, "seed": number, "ignore_eos": True, **fields}
            reply = await client.post(CHAT, json=body)
            assert reply.status == 200
            if "stream" in fields:
                await reply.read()
                continue
            usage = (await reply.json())["usage"]
            prompt, completion = usage["prompt_tokens"], completion + usage["completion_tokens"]
        await client.post(CHAT, json={**ASK, "temperature": 1, "seed": 2, "ignore_eos": True, "max_tokens": 9})
        page = Page(await (await client.get("/metrics")).text())

    assert {name: family.type for name, family in page.families.items()} == TYPES
    for family in page.families.values():
        assert all(sample.labels["engine"] == "0" for sample in family.samples), family.name
    assert page.value("request_success_total", finished_reason="length") == 5, "the last one came from the cache"
    assert page.value("request_success_total", finished_reason="abort") == 0
    assert page.value("generation_tokens_total") == completion + 9
    assert page.value("prompt_tokens_total") == 5 * prompt
    assert (page.value("request_params_n_count"), page.value("request_params_n_sum")) == (3, 5)
    assert (page.value("request_params_max_tokens_count"), page.value("request_params_max_tokens_sum")) == (3, 23)
    for name in ("e2e_request_latency", "request_queue_time", "request_inference_time", "time_to_first_token"):
        assert page.value(f"{name}_seconds_count") == 5
    parts = [page.value(f"request_{part}_time_seconds_sum") for part in ("queue", "prefill", "decode")]
    assert page.value("e2e_request_latency_seconds_sum") == pytest.approx(sum(parts))
    assert page.value("time_to_first_token_seconds_sum") == pytest.approx(parts[0] + parts[1])
    assert 0 < page.value("inter_token_latency_seconds_count") <= completion + 9 - 5
    assert 0 < page.value("inter_token_latency_seconds_sum") <= parts[2], "a sequence ends just after its last token"
    computed = 5 * prompt - page.value("prefix_cache_hits_total")
    assert page.value("iteration_tokens_total_sum") == pytest.approx(computed + completion + 9 - 5)
    assert page.value("kv_cache_usage_perc") == 0
    assert page.value("cache_config_info", block_size="16", enable_prefix_caching="True") == 1

    assert not [line for line in await asyncio.to_thread(linted, page.text) if not line.startswith("vllm:")]
