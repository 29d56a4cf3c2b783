"""Alerts: promtool reads them and plays a case for and against each; what to do about each is written down."""

from __future__ import annotations

import re
import subprocess

import yaml
from stack_files import PROMETHEUS, ROOT, alerts, tool

CASES = PROMETHEUS / "tests/alerts.yml"


def promtool(*arguments: str) -> None:
    done = subprocess.run([tool("promtool"), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_can_use_its_configuration_and_rules() -> None:
    promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    promtool("test", "rules", str(CASES))
    firing: dict[bool, set[str]] = {True: set(), False: set()}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for check in case["alert_rule_test"]:
            firing["exp_alerts" in check].add(check["alertname"])
    names = {alert["alert"] for alert in alerts()}
    assert firing == {True: names, False: names}


def test_each_alert_says_how_grave_it_is_and_what_to_do() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in ("warning", "critical")
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert alert["alert"] in headings
        assert anchor == alert["alert"].lower()
