"""The files of the stack, read as their tools read them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROMETHEUS = ROOT / "config/prometheus"
RULES = PROMETHEUS / "rules/headgate.yml"
DASHBOARDS = ROOT / "config/grafana/dashboards"


def compose(**environment: str) -> dict[str, Any]:
    """The compose file with its merges and variables filled in."""
    text = (ROOT / "docker-compose.yml").read_text()

    def value(match: re.Match[str]) -> str:
        return environment.get(match["name"], match["default"])

    filled: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}", value, text))
    return filled


def alerts() -> list[dict[str, Any]]:
    """Every alert of the rule file."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    return {path.name: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression that Grafana or an alert asks Prometheus, with where it is; Grafana's variables filled in."""
    for alert in alerts():
        yield alert["alert"], alert["expr"]
    for name, board in dashboards().items():
        asked = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", ())]
        asked += [(annotation["name"], annotation["expr"]) for annotation in board["annotations"]["list"]]
        for title, expression in asked:
            filled = expression.replace("$__rate_interval", "1m").replace("$__range", "1h")
            yield f"{name}: {title}", re.sub(r"\$(instance|model|team)", ".*", filled)


def tool(name: str) -> str:
    """A program of Debian's package prometheus; skips the test where it is not there."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH; Debian's package prometheus brings it")
    return found
