"""Dashboards as Grafana reads them. What their expressions ask for is tested where a gateway and Prometheus run."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from pydantic import ConfigDict, TypeAdapter
from stack_files import ROOT, compose, dashboards

BOARDS = dashboards()
WIDTH = 24


def wrong(place: str, value: Any) -> Iterator[str]:
    """Where something that Grafana's own types describe has another type than they say, or a word they do not know."""
    if isinstance(value, list | dict):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from wrong(f"{place}[{name}]", one)
    elif hasattr(value, "to_json") and not isinstance(value, enum.Enum):
        hints = get_type_hints(type(value))
        for name, one in vars(value).items():
            try:
                TypeAdapter(hints[name], config=ConfigDict(arbitrary_types_allowed=True)).validate_python(one)
            except ValueError:
                yield f"{place}.{name}: {one!r} is no {hints[name]}"
            yield from wrong(f"{place}.{name}", one)


def kept(board: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What Grafana's types take of a dashboard, and what they find wrong with it."""
    register_default_plugins()
    read = Dashboard.from_json(board)
    return json.loads(json.dumps(read, cls=JSONEncoder)), list(wrong("dashboard", read))


def unknown(place: str, said: Any, taken: Any) -> list[str]:
    """What was said and is not among what was taken, which may have defaults besides."""
    if isinstance(said, dict) and isinstance(taken, dict):
        return [one for key in said for one in unknown(f"{place}.{key}", said[key], taken.get(key))]
    if isinstance(said, list) and isinstance(taken, list) and len(said) == len(taken):
        return [
            one for at, pair in enumerate(zip(said, taken, strict=True)) for one in unknown(f"{place}[{at}]", *pair)
        ]
    return [] if said == taken else [f"{place}: {said!r}"]


@pytest.mark.parametrize("name", BOARDS)
def test_grafanas_types_know_all_that_a_dashboard_says(name: str) -> None:
    taken, problems = kept(BOARDS[name])
    assert problems == []
    assert unknown("", BOARDS[name], taken) == []


def test_what_grafana_would_not_know_is_found() -> None:
    board = json.loads(json.dumps(BOARDS["overview.json"]))
    panel = next(panel for panel in board["panels"] if panel["type"] == "timeseries")
    panel["options"]["legend"] |= {"displayMode": "lizt", "plaecment": "bottom"}
    taken, problems = kept(board)
    assert len(problems) == 1
    assert "'lizt'" in problems[0]
    (lost,) = unknown("", board, taken)
    assert lost.endswith(".options.legend.plaecment: 'bottom'")


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
