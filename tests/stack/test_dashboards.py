"""Dashboards as Grafana reads them. What their expressions ask for is tested where a gateway and Prometheus run."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from stack_files import ROOT, compose, dashboards

BOARDS = dashboards()
WIDTH = 24


def test_each_dashboard_is_known_by_an_id_of_its_own() -> None:
    assert BOARDS
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_a_place_an_id_and_something_to_show(name: str) -> None:
    panels: list[dict[str, Any]] = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < WIDTH
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
        assert panel["title"]
        assert panel["type"] in ("row", "alertlist") or panel["targets"]


@pytest.mark.parametrize("name", BOARDS)
def test_variables_that_panels_use_are_the_dashboards_own(name: str) -> None:
    board = BOARDS[name]
    known = {variable["name"] for variable in board["templating"]["list"]}
    used = {v for panel in board["panels"] for t in panel.get("targets", ()) for v in re.findall(r"\$(\w+)", t["expr"])}
    assert known == used - {"__rate_interval", "__range"}


def test_grafana_is_told_where_prometheus_and_the_dashboards_are() -> None:
    provisioning = ROOT / "config/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/headgate.yml").read_text())["providers"]
    services = compose()["services"]
    assert source["url"] == "http://prometheus:9090"
    assert f"./config/grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    assert services["grafana"]["networks"] == services["prometheus"]["networks"]
    scraped = yaml.safe_load((ROOT / "config/prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    asked = {t["datasource"]["uid"] for b in BOARDS.values() for p in b["panels"] for t in p.get("targets", ())}
    assert asked == {source["uid"]}
