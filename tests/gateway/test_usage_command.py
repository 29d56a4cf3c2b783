"""`headgate usage` over a ledger: sums by columns, as table, JSON and picture, and what it says where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace
from team_files import write_team

from headgate.gateway.cli import main
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import Entry, Intent, LedgerFile, Settled

ENTRY = Entry(
    "2026-11-22", 0, "red", "laptop", "small", "generated", "", "", "r1",
    prompt_tokens=1000, cached_tokens=400, completion_tokens=50, device_us=2_500_000, nano_usd=1_500_000_000,
    drafted_tokens=20,
)  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    file = LedgerFile(path)
    entries = [ENTRY, replace(ENTRY, team="blue", day="2026-11-20"), replace(ENTRY, cause="rejected")]
    file.write([op for n, entry in enumerate(entries) for op in (Intent(n, entry), Settled(n, entry))])
    file.write([replace(ENTRY, cause="exact", requests=7, device_us=0, nano_usd=0)])
    file.close()
    return path


def test_a_table_sums_by_columns(ledger: Path) -> None:
    result = CliRunner().invoke(main, ["usage", "--ledger", str(ledger), "--by", "team"], env={"COLUMNS": "40"})
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["blue", "1", "1,000", "400", "50", "20", "2.500", "1.5"] in lines
    assert ["red", "9", "3,000", "1,200", "150", "60", "5.000", "3"] in lines
    assert ["all", "10", "4,000", "1,600", "200", "80", "7.500", "4.5"] in lines


def test_users_are_shown_as_they_call_themselves(tmp_path: Path) -> None:
    path = tmp_path / "a#b?c"
    file = LedgerFile(path)
    for number, user in enumerate(("[/b]", "[red]x[/red]", "a:smile:b", "two\nlines", "\x1b[31mred", "日本")):
        file.write([Intent(number, ENTRY), Settled(number, replace(ENTRY, user=user))])
    file.close()
    result = CliRunner().invoke(main, ["usage", "--ledger", str(path), "--by", "user"])
    assert result.exit_code == 0, result.output
    shown = [line.split()[0] for line in result.output.splitlines() if "1,000" in line]
    assert shown == [r"\x1b[31mred", "[/b]", "[red]x[/red]", "a:smile:b", r"two\nlines", "日本"]
    assert not (tmp_path / "a").exists(), "no other file was opened"


def test_the_ledger_of_a_configuration_is_read_without_its_secrets(tmp_path: Path, ledger: Path) -> None:
    ledger.rename(tmp_path / FILE)
    write_team(tmp_path / "teams", "red", {"id": "a", "secret": "env:NOT_SET_HERE"})
    main_file = tmp_path / "headgate.yaml"
    main_file.write_text(
        yaml.safe_dump({"storage": {"folder": str(tmp_path)}, "teams": {"folder": str(tmp_path / "teams")}})
    )
    result = CliRunner().invoke(main, ["usage", "--config", str(main_file), "--by", "team"])
    assert result.exit_code == 0, result.output
    assert "blue" in result.output


def test_json_and_the_days_and_teams_that_are_wanted(ledger: Path) -> None:
    command = ["usage", "--ledger", str(ledger), "--by", "cause", "--json", "--since", "2026-11-21", "--team", "red"]
    rows = json.loads(CliRunner().invoke(main, command).output)
    assert [(row["cause"], row["requests"], row["usd"]) for row in rows] == [
        ("exact", 7, 0.0), ("generated", 1, 1.5), ("rejected", 1, 1.5),
    ]  # fmt: skip


def test_a_picture_is_drawn(ledger: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "usage.png"
    result = CliRunner().invoke(main, ["usage", "--ledger", str(ledger), "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    for name, why in (("nowhere/usage.png", "No such file or directory"), ("usage.xyz", "supported formats")):
        result = CliRunner().invoke(main, ["usage", "--ledger", str(ledger), "--plot", str(tmp_path / name)])
        assert (result.exit_code, f"{name} cannot be written: " in result.output) == (1, True), result.output
        assert why in result.output


def test_a_ledger_is_read_whatever_its_name_and_where_nothing_can_be_written(ledger: Path) -> None:
    copy = ledger.rename(ledger.with_name("50%25 of #1?"))
    # First what SQLite wants to write beside it cannot be.
    (beside := copy.with_name(f"{copy.name}-shm")).mkdir()
    for _ in range(2):
        result = CliRunner().invoke(main, ["usage", "--ledger", str(copy), "--by", "team", "--json"])
        assert result.exit_code == 0, result.output
        assert [row["requests"] for row in json.loads(result.output)] == [1, 9]
        if beside.is_dir():
            beside.rmdir()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by", "colour"], "'colour' is no column to sum by; expected some of team, key, model, cause, day, user"),
        (["--since", "yesterday"], "--since is 'yesterday'; expected a day such as 2026-11-22"),
        (["--since", "2026-13-45"], "--since is '2026-13-45'; expected a day such as 2026-11-22"),
        (["--ledger", "nowhere"], "there is no usage ledger at nowhere"),
    ],
)
def test_what_cannot_be_shown_is_said(ledger: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["usage", "--ledger", str(ledger), *arguments])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
