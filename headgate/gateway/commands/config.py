"""`headgate config`: check what the files say, compare it, and describe what they may say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from headgate.gateway.commands.options import unusable
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import CONFIG_VARIABLE, check_settings, read_settings
from headgate.gateway.configuration.reference import reference
from headgate.gateway.local.added_adapters import read_added, with_added
from headgate.gateway.settings import Settings
from headgate.gateway.teams.files import read_files, read_roster
from headgate.gateway.teams.sections import TeamFile

file_argument = click.argument("file", required=False, envvar=CONFIG_VARIABLE, type=click.Path(path_type=Path))


@click.group()
def config() -> None:
    """Check, compare and describe the configuration."""


@config.command()
@file_argument
def check(file: Path | None) -> None:
    """Say what is wrong with FILE, the team files and the environment, or that nothing is."""
    try:
        settings = check_settings(file)
        roster = read_roster(with_added(settings, read_added(settings, os.environ)), os.environ)
    except ConfigError as error:
        raise unusable(error) from None
    source = str(file) if file is not None else "the default configuration"
    models = ", ".join(m.id for m in settings.named)
    count = sum(len(team.keys) for team in roster.teams.values())
    told = f"{_many(settings.named, 'model')} ({models}), {_many(roster.teams, 'team')}, {_many(range(count), 'key')}"
    click.echo(f"{source} is valid: {told}. Its revision is {roster.revision}.")


@config.command()
@click.option("--team", is_flag=True, help="Of a team file, instead of the main file.")
def schema(*, team: bool) -> None:
    """Print the JSON Schema of the main file or of a team file, for editors."""
    click.echo(json.dumps((TeamFile if team else Settings).model_json_schema(), indent=2))


@config.command()
@file_argument
@click.option("--against", type=click.Path(path_type=Path), help="An older main file, instead of the defaults.")
def diff(file: Path | None, against: Path | None) -> None:
    """Say in what FILE and its team files differ from the defaults, or from the main file --against and its team files.

    A line a value: `-` before, `+` now. Hashes of keys are not shown.
    """
    try:
        before = _flat_all(None if against is None else read_settings(against))
        now = _flat_all(read_settings(file))
    except ConfigError as error:
        raise unusable(error) from None
    for name in sorted(before.keys() | now.keys()):
        for sign, values in (("-", before), ("+", now)):
            if name in values and before.get(name) != now.get(name):
                click.echo(f"{sign} {name}: {_shown(name, values[name])}")


@config.command("reference")
def print_reference() -> None:
    """Print docs/configuration.md: every key of the main file and of team files."""
    click.echo(reference(), nl=False)


def _many(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _flat_all(settings: Settings | None) -> dict[str, Any]:
    """Values by their dotted names, those of team files under the team's name; None: the defaults alone."""
    if settings is None:
        return dict(_flat("", Settings.model_construct()))
    found = dict(_flat("", settings))
    for _, file in read_files(settings):
        found |= _flat(f"team {file.team.name}: ", file, only_set=True)
    return found


def _flat(prefix: str, section: BaseModel, *, only_set: bool = False) -> Iterator[tuple[str, Any]]:
    for name in type(section).model_fields:
        if only_set and name not in section.model_fields_set:
            continue
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _flat(f"{prefix}{name}.", value, only_set=only_set)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for item in value:
                yield from _flat(f"{prefix}{name}[{getattr(item, 'id', '')}].", item, only_set=only_set)
        else:
            yield f"{prefix}{name}", value


def _shown(name: str, value: object) -> str:
    if name.endswith(".hash"):
        return "another hash"
    if name.endswith(".headers") and isinstance(value, dict):
        return json.dumps(dict.fromkeys(sorted(value), "…"), ensure_ascii=False)
    if isinstance(value, str) and "://" in value:
        return f"{value.partition('://')[0]}://…"
    plain = sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value
    return json.dumps(plain, default=str, ensure_ascii=False)
