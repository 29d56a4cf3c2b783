"""Asking a running server's administration over HTTP, for the command line."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import click

_TIMEOUT_S = 60.0

key_option = click.option(
    "--api-key", envvar="OPENAI_API_KEY", help="A key with the role admin; an open server needs none from its machine."
)


def ask(url: str, api_key: str | None, body: dict[str, Any] | None) -> dict[str, Any]:
    """The server's JSON; ClickException where it is not there or refuses."""
    try:
        answer: dict[str, Any] = json.loads(read(url, api_key, body))
    except ValueError as error:
        raise click.ClickException(f"{url} cannot be asked: {error}") from None
    return answer


def read(url: str, api_key: str | None, body: dict[str, Any] | None) -> bytes:
    """The body of the server's answer; ClickException where it is not there or refuses."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            page: bytes = response.read()
            return page
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
