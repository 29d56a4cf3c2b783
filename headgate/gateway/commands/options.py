"""Options that several commands have, and what they say of a configuration that cannot be used."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.gateway.configuration.document import ConfigError
from headgate.gateway.configuration.reading import CONFIG_VARIABLE

config_option = click.option(
    "--config", "config_path", envvar=CONFIG_VARIABLE, type=click.Path(path_type=Path), help="Configuration file."
)
url_option = click.option(
    "--url",
    default="http://127.0.0.1:8000",
    show_default=True,
    callback=lambda _context, _option, url: url.rstrip("/"),
    help="The server.",
)
key_option = click.option(
    "--api-key", envvar="OPENAI_API_KEY", help="A key with the role admin; an open server needs none from its machine."
)
json_option = click.option("--json", "as_json", is_flag=True, help="As the server says it.")


def unusable(error: ConfigError) -> click.ClickException:
    """Every problem, a line each."""
    return click.ClickException("the configuration cannot be used:\n  " + "\n  ".join(error.problems))
