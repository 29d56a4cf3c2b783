"""`headgate adapters`: the adapters of a server's models, and adding and removing some while it answers, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from headgate.gateway.commands.admin_client import ask
from headgate.gateway.commands.options import json_option, key_option, url_option

_WITHIN_S = 1800.0
"""A hub may have to be asked for it, or a model to be woken."""


@click.group()
def adapters() -> None:
    """Look at the LoRA adapters of a server's models, add some and remove some."""


@adapters.command("list")
@url_option
@key_option
@json_option
def list_adapters(url: str, api_key: str | None, as_json: bool) -> None:
    """Every adapter, and whether it is of the configuration or was added."""
    report = ask(f"{url}/admin/adapters", api_key, None)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for state in report["adapters"]:
        click.echo(_line(state))


@adapters.command()
@url_option
@key_option
@click.argument("model")
@click.argument("adapter_id", metavar="ID")
@click.argument("path")
@click.option("--tier", type=click.Choice(["small", "large"]), help="Which of these names may mean it.")
@click.option("--lacks", multiple=True, type=click.Choice(["tools", "vision", "json"]), help="May be given repeatedly.")
@click.option("--price", type=float, nargs=2, metavar="PROMPT COMPLETION", help="US dollars a million tokens.")
@click.option("--replace", is_flag=True, help="One of this id makes room for it.")
def add(
    url: str,
    api_key: str | None,
    model: str,
    adapter_id: str,
    path: str,
    tier: str | None,
    lacks: tuple[str, ...],
    price: tuple[float, float] | None,
    replace: bool,
) -> None:
    """Serve the adapter of MODEL in PATH, a folder on the server or a hub id, as the model ID."""
    body: dict[str, Any] = {"model": model, "id": adapter_id, "path": path, "replace": replace}
    if Path(path).is_dir():
        body["path"] = str(Path(path).resolve())  # the server may run elsewhere on this machine
    if tier is not None:
        body["tier"] = tier
    if lacks:
        body["lacks"] = list(lacks)
    if price is not None:
        body["price"] = {
            "usd_per_million_prompt_tokens": price[0],
            "usd_per_million_completion_tokens": price[1],
        }
    _tell(ask(f"{url}/admin/adapters", api_key, body, _WITHIN_S))


@adapters.command()
@url_option
@key_option
@click.argument("adapter_id", metavar="ID")
def remove(url: str, api_key: str | None, adapter_id: str) -> None:
    """Serve the adapter ID no more; requests that run end as they would have."""
    _tell(ask(f"{url}/admin/adapters/remove", api_key, {"id": adapter_id}))


def _tell(state: dict[str, Any]) -> None:
    click.echo(_line(state))
    if not state["lasts"]:
        click.echo("The next start does not know of this: the server has no data folder (storage.folder).", err=True)


def _line(state: dict[str, Any]) -> str:
    told = f"{state['id']:<24} {state['model']:<24} {state['state']:<8} {state['source']:<14} {state['path']}"
    return f"{told}: {state['why']}" if state["why"] else told
