"""`headgate cache`: look at a server's answer cache and forget parts of it, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import click

_TIMEOUT_S = 60.0

url_option = click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server.")
key_option = click.option(
    "--api-key", envvar="OPENAI_API_KEY", help="A key with `admin: true`; an open server needs none from its machine."
)


@click.group()
def cache() -> None:
    """Look at a server's answer cache and forget parts of it."""


@cache.command()
@url_option
@key_option
@click.option("--key", help="The answer of this x-headgate-cache-key.")
@click.option("--tag", help="The answers stored under this tag, of --team or of all teams.")
@click.option("--team", help="The answers of this team.")
@click.option("--all", "everything", is_flag=True, help="Every answer.")
def invalidate(
    url: str, api_key: str | None, key: str | None, tag: str | None, team: str | None, everything: bool
) -> None:
    """Forget stored answers: one of --key, --tag, --team and --all."""
    given = {"key": key, "tag": tag, "team": team, "all": everything or None}
    wanted = {name: value for name, value in given.items() if value is not None}
    if len(wanted) != 1 and set(wanted) != {"tag", "team"}:
        raise click.UsageError("give one of --key, --tag, --team and --all, or --tag with --team")
    gone = _ask(f"{url.rstrip('/')}/admin/cache/invalidate", api_key, wanted)["invalidated"]
    click.echo(f"{gone} {'answer' if gone == 1 else 'answers'} forgotten.")


@cache.command()
@url_option
@key_option
@click.option("--json", "as_json", is_flag=True, help="As the server says it.")
def stats(url: str, api_key: str | None, as_json: bool) -> None:
    """What the cache holds, and what it did since the server started."""
    report = _ask(f"{url.rstrip('/')}/admin/cache", api_key, None)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        if isinstance(value, dict):
            told = ", ".join(f"{part} {count:g}" for part, count in sorted(value.items())) or "none"
            click.echo(f"{name:<12} {told}")
        elif value is not None:
            click.echo(f"{name:<12} {value}")


def _ask(url: str, api_key: str | None, body: dict[str, Any] | None) -> dict[str, Any]:
    """The server's JSON; ClickException where it is not there or refuses."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        raise click.ClickException(_refusal(error)) from None
    except ValueError as error:
        raise click.ClickException(f"{url} cannot be asked: {error}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise click.ClickException(
            f"no server answers at {url} ({reason}); start one with `headgate serve`, or name it with --url"
        ) from None


def _refusal(error: urllib.error.HTTPError) -> str:
    try:
        message = json.loads(error.read())["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = error.reason
    return f"the server refuses with {error.code}: {message}"
