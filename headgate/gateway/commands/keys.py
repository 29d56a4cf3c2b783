"""`headgate keys`: make, list, rotate and revoke API keys in the team files. A running server follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from headgate.gateway.commands.options import config_option, unusable
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import read_settings
from headgate.gateway.teams.iso_time import moment
from headgate.gateway.teams.key_store import KeyStore, KeyStoreError, MadeKey
from headgate.gateway.teams.sections import Role

T = TypeVar("T")

folder_option = click.option(
    "--teams", type=click.Path(path_type=Path), help="Folder of the team files, instead of teams.folder."
)


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke API keys in the team files."""


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--team", required=True, help="Whose key it is; the team's file is made with its first key.")
@click.option(
    "--role",
    type=click.Choice(["member", "admin"]),
    default="member",
    show_default=True,
    help="admin: the operator's page and /admin too.",
)
@click.option("--expires", help="From then on it is refused, such as 2027-06-30 or 2027-06-30T12:00:00+02:00.")
@config_option
@folder_option
def create(
    key_id: str, team: str, role: Role, expires: str | None, config_path: Path | None, teams: Path | None
) -> None:
    """Make the key ID and show its secret, this once. The file keeps a salted hash of it."""
    end = None if expires is None else _time(expires)
    _show(_done(lambda: _store(config_path, teams).create(team, key_id, role, end)))


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option(
    "--grace-s",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds the old secret still holds.",
)
@config_option
@folder_option
def rotate(key_id: str, grace_s: float, config_path: Path | None, teams: Path | None) -> None:
    """Give the key ID a new secret and show it, this once."""
    _show(_done(lambda: _store(config_path, teams).rotate(key_id, grace_s)))


@keys.command()
@click.argument("key_id", metavar="ID")
@config_option
@folder_option
def revoke(key_id: str, config_path: Path | None, teams: Path | None) -> None:
    """Take the key ID away. Requests that run end as they would have; the next one is refused."""
    path = _done(lambda: _store(config_path, teams).revoke(key_id))
    click.echo(f"The key {key_id} is gone from {path}.")


@keys.command("list")
@config_option
@folder_option
def list_keys(config_path: Path | None, teams: Path | None) -> None:
    """Every key of every team with its own limits, without secrets."""
    now = datetime.now(UTC)
    for team, key in _done(lambda: _store(config_path, teams).keys()):
        ends = (
            "" if key.expires is None else f"  {'expired' if key.expires <= now else 'expires'} {key.expires:%F %T%z}"
        )
        kept = "hash" if key.hash is not None else str(key.secret)
        limits = "".join(f"  {name}={limit}" for name, limit in key.limits.model_dump(exclude_none=True).items())
        click.echo(f"{team:<20} {key.id:<24} {key.role:<7} {kept}{ends}{limits}")


def _store(config_path: Path | None, teams: Path | None) -> KeyStore:
    settings = read_settings(config_path)
    if teams is not None:
        settings = settings.model_copy(update={"teams": settings.teams.model_copy(update={"folder": str(teams)})})
    return KeyStore(settings)


def _time(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is no time; expected such as 2027-06-30", param_hint="--expires") from None


def _done(work: Callable[[], T]) -> T:
    try:
        return work()
    except KeyStoreError as error:
        raise click.ClickException(str(error)) from None
    except ConfigError as error:
        raise unusable(error) from None


def _show(made: MadeKey) -> None:
    click.echo(f"{made.id} of {made.team}, in {made.file}. The key is shown this once:", err=True)
    click.echo(made.secret)
