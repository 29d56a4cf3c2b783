"""The load table, with the demo student for both tiers: arrivals, variants and figures."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from headgate.bench.routing.arrivals import arrivals
from headgate.bench.routing.load import load_table
from headgate.bench.routing.load_report import LoadFigure, LoadTable, print_load
from headgate.bench.routing.set_ups import SETUPS, Devices
from headgate.engine.demo import checkpoint
from headgate.routing.types import Quality, RouteFeatures


class Half:
    """Half of the texts are for the small model."""

    wants_state = False

    def estimate(self, features: RouteFeatures, _task: str) -> Quality:
        return Quality(float(len(features.text) % 2), 0.9, "embedding")


def test_arrivals_are_the_same_for_the_same_seed_and_come_at_the_rate() -> None:
    come = arrivals(300, 50.0, 1)
    assert come == arrivals(300, 50.0, 1)
    assert come != arrivals(300, 50.0, 2)
    assert [a.at for a in come] == sorted(a.at for a in come)
    assert 3.0 < come[-1].at < 12.0
    third = next(a for a in come if len(a.messages) == 6)
    earlier = next(a for a in come if a.session == third.session and len(a.messages) == 4)
    assert third.messages[:4] == earlier.messages, "a turn begins with the turns before it"
    assert {a.at for a in arrivals(30, math.inf, 1)} == {0.0}


@pytest.mark.parametrize("devices", ["two", "copies"])
def test_every_variant_answers_the_same_arrivals(devices: Devices) -> None:
    folders = dict.fromkeys(("student", "teacher", "slow"), checkpoint("student"))
    table = load_table(Half(), loads=(0.5,), devices=(devices,), seconds=0.1, folders=folders, least=12, new_tokens=4)
    assert table.capacity[devices] > 0
    assert [f.variant for f in table.figures] == list(SETUPS[devices].variants)
    assert len({f.requests for f in table.figures}) == 1
    for figure in table.figures:
        assert 0 < figure.p50_s <= figure.p95_s
        assert 0 <= figure.by_price <= figure.second <= 1
        assert (figure.others_p95_s is not None) == (devices == "copies")
        assert (figure.right is None) == (devices == "copies")
        assert figure.variant != "in turn" or 0 < figure.second < 1


def test_the_table_says_what_the_signals_save() -> None:
    figures = tuple(
        LoadFigure("two", 0.95, variant, 100, 0.1, p95, 0.8, 0.2, 0.1, 40.0, None)
        for variant, p95 in zip(SETUPS["two"].variants, (0.6, 1.0, 0.7, 1.2), strict=True)
    )
    table = LoadTable({"two": 20.0}, {"two": 3.0}, figures)
    assert table.gain("two", 0.95) == 0.5
    assert round(table.gain("two", 0.95, "no queue"), 3) == 0.4
    console = Console(width=130, record=True)
    print_load(console, table)
    assert "against neither: +50 % at 0.95; +50 % over all loads" in console.export_text()
