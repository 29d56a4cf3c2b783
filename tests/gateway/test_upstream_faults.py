"""The fault wall: what clients see of an upstream that fails, and what the ledger has of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from gateway_site import forget_environment

from headgate.bench.faults.command import table
from headgate.bench.faults.table import FAULTS
from headgate.bench.faults.wall import Row, run_wall

Ran = tuple[list[Row], int]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ran(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ran]:
    own = tmp_path_factory.mktemp("ledger")
    with pytest.MonkeyPatch.context() as patch:
        forget_environment(patch)
        patch.setenv("HEADGATE_STORAGE__FOLDER", str(own))
        yield await run_wall()
    assert not list(own.iterdir()), "nothing is billed in the ledger of the gateway that the shell has settings for"


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_clients_see_and_pay_what_they_should(ran: Ran, name: str) -> None:
    rows = [row for row in ran[0] if row.fault.name == name]
    assert len(rows) in (2, 4)
    assert {row.place: row.problems for row in rows} == {row.place: [] for row in rows}


def test_no_redirect_was_followed(ran: Ran) -> None:
    assert ran[1] == 0


def test_the_documentation_shows_this_table(ran: Ran) -> None:
    shown = Path("docs/upstreams.md").read_text(encoding="utf-8")
    assert "\n".join(table(ran[0])) in shown
