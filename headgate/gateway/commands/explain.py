"""`headgate explain`: where a request would go, and why."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from headgate.gateway.commands.admin_client import ask
from headgate.gateway.commands.options import json_option, key_option, unusable
from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import CONFIG_VARIABLE, load_settings
from headgate.gateway.local.added_adapters import read_added, with_added
from headgate.gateway.teams.files import read_roster


@click.command()
@click.option(
    "--request",
    "request_file",
    type=click.File("rb"),
    required=True,
    help="The JSON body of a POST /v1/chat/completions; - reads it from standard input.",
)
@click.option("--url", help="Ask this server, which knows its queues and caches; else go by the configuration alone.")
@key_option
@click.option(
    "--config", "config_path", envvar=CONFIG_VARIABLE, type=click.Path(path_type=Path), help="Without --url: the file."
)
@click.option("--team", help="As if this team asked.")
@click.option("--key", "key_id", help="As if the API key of this id asked.")
@json_option
def explain(
    request_file: Any,
    url: str | None,
    api_key: str | None,
    config_path: Path | None,
    team: str | None,
    key_id: str | None,
    as_json: bool,
) -> None:
    """Say where a request would go: task, qualities, prices, the rule that decides, and what would change it.

    Nothing is generated. Without --url no server is needed: the models count as idle, and their speed is guessed from
    their size.
    """
    body: bytes = request_file.read()
    if url is None:
        report = _by_configuration(config_path, body, team, key_id)
    else:
        who = {name: value for name, value in (("team", team), ("key", key_id)) if value is not None}
        try:
            parsed = json.loads(body)
        except ValueError as error:
            raise click.ClickException(f"{request_file.name}: not JSON: {error}") from None
        report = ask(f"{url.rstrip('/')}/admin/route{'?' if who else ''}{urlencode(who)}", api_key, parsed)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for line in report["lines"]:
        click.echo(line)


def _by_configuration(path: Path | None, body: bytes, team: str | None, key_id: str | None) -> dict[str, Any]:
    try:
        settings = load_settings(path)
        settings = with_added(settings, read_added(settings, os.environ))
    except ConfigError as error:
        raise unusable(error) from None
    # Imported here: torch takes seconds.
    import msgspec

    from headgate.engine.errors import EngineError
    from headgate.engine.text.folder import TokenizerError
    from headgate.gateway.parts import StartError, embedder_folder
    from headgate.gateway.road.request import CacheControl
    from headgate.gateway.routing.explain import configured_routes, explained
    from headgate.gateway.teams.admission import capped
    from headgate.gateway.teams.overrides import as_team
    from headgate.gateway.wire.chat import parse_chat
    from headgate.gateway.wire.errors import ApiError

    async def decided() -> dict[str, Any]:
        routes = await configured_routes(settings, embedder_folder(settings)[0])
        roster = read_roster(settings, os.environ)
        who = roster.principal(team, key_id)
        request, _ = as_team(parse_chat(body, CacheControl()), who, routes.destinations)
        request = capped(request, who.policy.limits)
        report: dict[str, Any] = msgspec.to_builtins(await explained(routes, request, who, roster.revision))
        return report

    try:
        return asyncio.run(decided())
    except (ApiError, EngineError, TokenizerError, StartError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    except LookupError as error:
        raise click.ClickException(error.args[0]) from None
