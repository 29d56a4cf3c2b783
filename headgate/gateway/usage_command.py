"""`headgate usage`: what teams used, from the ledger on disk, whether a server is running or not."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click
from rich.box import SIMPLE_HEAVY
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.gateway.command_parts import config_option, unusable
from headgate.gateway.config import read_settings
from headgate.gateway.document import ConfigError
from headgate.gateway.storage.folder import default_folder
from headgate.gateway.teams.costs import Cost
from headgate.gateway.teams.ledger import FILE
from headgate.gateway.teams.ledger_file import read_usage

_WIDE = 1000
BY = ("team", "key", "model", "cause", "day", "user")


@dataclass(frozen=True, slots=True)
class Row:
    """The sums of one group. Hits of the cache cost nothing; their tokens are those of the stored answer."""

    labels: tuple[str, ...]
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    cost: Cost

    @property
    def as_json(self) -> dict[str, object]:
        """The counts, by name."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "drafted_tokens": self.drafted_tokens,
            "device_s": self.cost.device_us / 1e6,
            "usd": self.cost.nano_usd / 1e9,
        }


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
        from headgate.gateway.usage_plot import draw

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
        labels, counts = values[: len(columns)], [int(str(count)) for count in values[len(columns) :]]
        requests, prompt, cached, completion, device_us, nano_usd, drafted = counts
        cost = Cost(nano_usd, device_us)
        rows.append(Row(tuple(str(v) for v in labels), requests, prompt, cached, completion, drafted, cost))
    return rows


def table(columns: tuple[str, ...], rows: list[Row]) -> Table:
    """The rows, and their sums, in columns as wide as what is in them."""
    shown = Table(show_footer=True, box=SIMPLE_HEAVY, show_edge=False, padding=(0, 1, 0, 0))
    total = Cost(sum(r.cost.nano_usd for r in rows), sum(r.cost.device_us for r in rows))
    for index, name in enumerate(columns):
        shown.add_column(name, "all" if index == 0 else "")
    footers = (
        ("requests", f"{sum(r.requests for r in rows):,}"),
        ("prompt\ntokens", f"{sum(r.prompt_tokens for r in rows):,}"),
        ("of these\ncached", f"{sum(r.cached_tokens for r in rows):,}"),
        ("completion\ntokens", f"{sum(r.completion_tokens for r in rows):,}"),
        ("of these\ndrafted", f"{sum(r.drafted_tokens for r in rows):,}"),
        ("device s", f"{total.device_us / 1e6:,.3f}"),
        ("USD", total.usd),
    )
    for name, footer in footers:
        shown.add_column(name, footer, justify="right")
    for row in rows:
        shown.add_row(
            *map(_shown, row.labels),
            f"{row.requests:,}",
            f"{row.prompt_tokens:,}",
            f"{row.cached_tokens:,}",
            f"{row.completion_tokens:,}",
            f"{row.drafted_tokens:,}",
            f"{row.cost.device_us / 1e6:,.3f}",
            row.cost.usd,
        )
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
