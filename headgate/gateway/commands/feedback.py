"""`headgate feedback`: what apps said of a server's answers."""

from __future__ import annotations

from urllib.parse import urlencode

import click

from headgate.gateway.commands.admin_client import read
from headgate.gateway.commands.options import key_option, url_option


@click.command()
@url_option
@key_option
@click.option("--team", help="This team only.")
def feedback(url: str, api_key: str | None, team: str | None) -> None:
    """Print what was said of answers, a JSON object a line, the oldest first."""
    query = "" if team is None else f"?{urlencode({'team': team})}"
    click.echo(read(f"{url}/admin/feedback{query}", api_key, None).decode(), nl=False)
