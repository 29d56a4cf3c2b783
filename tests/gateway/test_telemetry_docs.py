"""docs/telemetry.md has every metric that a server publishes, as it publishes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gateway_site import forget_environment, site
from prometheus_client.parser import text_string_to_metric_families
from team_files import key, write_team

DOCS = Path(__file__).parents[2] / "docs" / "telemetry.md"
ROW = re.compile(r"\| `(?P<name>headgate_[a-z_0-9]+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\|")

ELSEWHERE = ("headgate_cache_feed_", "headgate_cache_index_", "headgate_cache_audit", "headgate_cache_wrong_",
             "headgate_cache_quarantined_", "headgate_otel_")  # fmt: skip
"""Only with Redis or a collector, or where hits by meaning are audited."""


class Described(NamedTuple):
    type: str
    labels: frozenset[str]


def described() -> Iterator[tuple[str, Described]]:
    for row in ROW.finditer(DOCS.read_text(encoding="utf-8")):
        yield row["name"], Described(row["type"], frozenset(re.findall(r"`(\w+)`", row["labels"])))


async def test_the_page_has_every_metric(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    monkeypatch.setenv("RED_KEY", "secret-of-red")
    write_team(tmp_path / "teams", "red", key("red"), budgets={"daily_usd": 1.0, "monthly_device_s": 1.0})
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    parts: dict[str, Any] = {
        "storage": {"folder": str(tmp_path / "data")},
        # Nobody listens on that port.
        "upstreams": [{"id": "up", "base_url": "http://127.0.0.1:1/v1", "model": "theirs", "retries": {"most": 0}}],
    }
    async with site(tiny_checkpoint, teams=tmp_path / "teams", **parts) as client:
        for model in ("auto", "auto", "up"):
            asked = {**body, "model": model}
            await client.post("/v1/chat/completions", json=asked, headers={"Authorization": "Bearer secret-of-red"})
        page = await (await client.get("/metrics")).text()
    told = dict(described())
    published = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(page)
        if not family.name.startswith(("process_", "python_gc_"))
    }
    assert {name for name in told if not name.startswith(ELSEWHERE)} == set(published)
    for name, family in published.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert told[name].type == family.type, name
        assert not family.samples or labels == told[name].labels, name
