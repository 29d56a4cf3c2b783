"""`headgate models`: which models of a server sleep, and having one sleep or wake, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import click

from headgate.gateway.commands.admin_client import ask
from headgate.gateway.commands.options import json_option, key_option, url_option

_WITHIN_S = 1800.0
"""Weights of hundreds of gigabytes are read from a slow disk in less."""


@click.group()
def models() -> None:
    """Look at a server's own models, and have them sleep and wake."""


@models.command("list")
@url_option
@key_option
@json_option
def list_models(url: str, api_key: str | None, as_json: bool) -> None:
    """Every model of the server, and what it keeps for keys and values."""
    report = ask(f"{url}/admin/models", api_key, None)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for state in report["models"]:
        click.echo(_line(state))


@models.command()
@url_option
@key_option
@click.argument("model")
def sleep(url: str, api_key: str | None, model: str) -> None:
    """Have MODEL give its memory back until somebody wants it."""
    click.echo(_line(ask(f"{url}/admin/models/sleep", api_key, {"model": model}, _WITHIN_S)))


@models.command()
@url_option
@key_option
@click.argument("model")
def wake(url: str, api_key: str | None, model: str) -> None:
    """Have MODEL be there again, before somebody waits for it."""
    click.echo(_line(ask(f"{url}/admin/models/wake", api_key, {"model": model}, _WITHIN_S)))


def _line(state: dict[str, Any]) -> str:
    told = f"{state['model']:<24} {state['state'].replace('_', ' '):<14} {state['kv_bytes'] / 2**20:>9,.1f} MiB"
    return f"{told}  {state['wakes']} times woken, {state['last_wake_s']:.2f} s last" if state["wakes"] else told
