"""docs/metrics.md has every metric that a server publishes, as it publishes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gateway_site import forget_environment, site
from prometheus_client.parser import text_string_to_metric_families
from team_files import key, write_team

from headgate.gateway.cli import main
from headgate.gateway.telemetry.metrics.catalogue import SECTIONS, families

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
TOLD = [family for _, section in SECTIONS for family in families(section)]

ELSEWHERE = ("headgate_cache_feed_", "headgate_cache_index_", "headgate_cache_audit", "headgate_cache_wrong_",
             "headgate_cache_quarantined_", "headgate_otel_")  # fmt: skip
"""Only with Redis or a collector, or where hits by meaning are audited."""


def test_the_page_is_current() -> None:
    printed = CliRunner().invoke(main, ["metrics", "reference"]).output
    assert DOCS.read_text(encoding="utf-8") == printed, "run: headgate metrics reference > docs/metrics.md"
    row = "| `headgate_requests_queued` | gauge | `model`, `priority` | Requests whose answer has not begun,"
    assert row in printed


def test_names_are_told_once_and_say_their_type() -> None:
    names = [family.name for family in TOLD]
    assert len(names) == len(set(names))
    ours = [family for family in TOLD if family.name.startswith("headgate_")]
    assert all(family.name.endswith("_total") == (family.type == "counter") for family in ours)
    assert all(family.text.endswith(".") for family in TOLD)


async def test_a_server_publishes_what_is_told(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "secret-of-red")
    write_team(tmp_path / "teams", "red", key("red"), budgets={"daily_usd": 1.0, "monthly_device_s": 1.0})
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    parts: dict[str, Any] = {
        "storage": {"folder": str(tmp_path / "data")},
        "telemetry": {"vllm_names": True},
        # Nobody listens on that port.
        "upstreams": [{"id": "up", "base_url": "http://127.0.0.1:1/v1", "model": "theirs", "retries": {"most": 0}}],
    }
    async with site(tiny_checkpoint, teams=tmp_path / "teams", **parts) as client:
        for model in ("auto", "auto", "up"):
            asked = {**body, "model": model}
            await client.post("/v1/chat/completions", json=asked, headers={"Authorization": "Bearer secret-of-red"})
        page = await (await client.get("/metrics")).text()
    told = {family.name: family for family in TOLD}
    published = {
        # The parser leaves the ending of counters out.
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(page)
        if not family.name.startswith(("process_", "python_gc_"))
    }
    assert {name for name in told if not name.startswith(ELSEWHERE)} == set(published)
    for name, family in published.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert told[name].type == family.type, name
        assert told[name].text == family.documentation, name
        assert not family.samples or labels == set(told[name].labels), name
