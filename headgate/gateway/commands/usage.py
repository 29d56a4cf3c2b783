"""`headgate usage`: what teams used, from the ledger on disk, whether a server is running or not."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click
from rich.box import SIMPLE_HEAVY
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.gateway.commands.options import config_option, unusable
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import read_settings
from headgate.gateway.storage.folder import default_folder
from headgate.gateway.teams.costs import Cost
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import COUNTS, read_usage

_WIDE = 1000
BY = ("team", "key", "model", "cause", "day", "user")


_TITLES = {
    "requests": "requests",
    "prompt_tokens": "prompt\ntokens",
    "cached_tokens": "of these\ncached",
    "completion_tokens": "completion\ntokens",
    "drafted_tokens": "of these\ndrafted",
}
"""Of the ledger's counts, beside those of the cost, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Row:
    """The sums of one group. Hits of the cache cost nothing; their tokens are those of the stored answer."""

    labels: tuple[str, ...]
    counts: Mapping[str, int]
    """By the names of `_TITLES`."""
    cost: Cost

    @property
    def as_json(self) -> dict[str, object]:
        """The counts, by name."""
        return {**self.counts, "device_s": self.cost.device_us / 1e6, "usd": self.cost.nano_usd / 1e9}


@click.command()
@config_option
@click.option("--ledger", type=click.Path(path_type=Path), help=f"The ledger, instead of {FILE} in storage.folder.")
@click.option("--team", help="This team only.")
@click.option("--since", help="From this day on, such as 2026-11-22, in each team's time zone.")
@click.option(
    "--by", default="team,model,cause", show_default=True, help=f"Columns to sum by, of {', '.join(BY)}; with commas."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw tokens and dollars of each day to this file (PNG).")
def usage(
    config_path: Path | None,
    ledger: Path | None,
    team: str | None,
    since: str | None,
    by: str,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Print what teams used: requests, tokens, device time, dollars."""
    if since is not None and not _is_day(since):
        raise click.UsageError(f"--since is '{since}'; expected a day such as 2026-11-22")
    path = _ledger(config_path) if ledger is None else ledger
    columns = tuple(name.strip() for name in by.split(","))
    rows = rows_of(path, columns, team, since)
    if as_json:
        told = [{**dict(zip(columns, row.labels, strict=True)), **row.as_json} for row in rows]
        click.echo(json.dumps(told, indent=2))
    else:
        # Wider than a narrow terminal, if need be: a figure that is cut off says nothing.
        Console(width=_WIDE).print(table(columns, rows))
    if plot is not None:
        from headgate.gateway.commands.usage_plot import draw

        draw(rows_of(path, ("day", "cause"), team, since), plot)
        click.echo(f"{plot} shows each day.", err=True)


def rows_of(path: Path, columns: tuple[str, ...], team: str | None, since: str | None) -> list[Row]:
    """The groups, sorted. ClickException where there is no ledger, or no such column."""
    if not path.exists():
        raise click.ClickException(f"there is no usage ledger at {path}; a server with storage.folder writes one")
    try:
        found = read_usage(path, columns, team, since)
    except ValueError as error:
        raise click.UsageError(f"--by: {error}") from None
    except sqlite3.Error as error:
        raise click.ClickException(f"{path} cannot be read as a usage ledger: {error}") from None
    rows = []
    for values in found:
        counts = {name: int(str(count)) for name, count in zip(COUNTS, values[len(columns) :], strict=True)}
        labels, cost = tuple(map(str, values[: len(columns)])), Cost(counts["nano_usd"], counts["device_us"])
        rows.append(Row(labels, {name: counts[name] for name in _TITLES}, cost))
    return rows


def table(columns: tuple[str, ...], rows: list[Row]) -> Table:
    """The rows, and their sums, in columns as wide as what is in them."""
    shown = Table(show_footer=True, box=SIMPLE_HEAVY, show_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(columns):
        shown.add_column(name, "all" if index == 0 else "")
    for name, title in _TITLES.items():
        shown.add_column(title, f"{sum(row.counts[name] for row in rows):,}", justify="right")
    total = Cost(sum(r.cost.nano_usd for r in rows), sum(r.cost.device_us for r in rows))
    shown.add_column("device s", f"{total.device_us / 1e6:,.3f}", justify="right")
    shown.add_column("USD", total.usd, justify="right")
    for row in rows:
        counts = (f"{row.counts[name]:,}" for name in _TITLES)
        shown.add_row(*map(_shown, row.labels), *counts, f"{row.cost.device_us / 1e6:,.3f}", row.cost.usd)
    return shown


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _shown(label: str) -> Text:
    """As it is: a client may call its user `[/b]`, or what moves the cursor of a terminal."""
    return Text("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in label))


def _ledger(config_path: Path | None) -> Path:
    try:
        # The keys of teams are not needed for it, nor the variables that hold them.
        folder = read_settings(config_path).storage.folder
    except ConfigError as error:
        raise unusable(error) from None
    if folder is None:
        raise click.ClickException("storage.folder is off, so no usage ledger is kept; --ledger names one")
    try:
        return (default_folder(os.environ) if folder == "auto" else Path(folder)) / FILE
    except OSError as error:
        raise click.ClickException(str(error)) from None
