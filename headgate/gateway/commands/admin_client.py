"""Asking a running server's administration over HTTP, for the command line."""

from __future__ import annotations

import ipaddress
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import click

_TIMEOUT_S = 60.0


class _NoFollowing(urllib.request.HTTPRedirectHandler):
    """The key is for the server that was named, not for where that leads."""

    def redirect_request(self, *_: object) -> None:
        """None: what leads elsewhere is a refusal."""


def ask(url: str, api_key: str | None, body: dict[str, Any] | None, within_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """The server's JSON object; ClickException where it is not there, refuses, or takes longer."""
    try:
        answer = json.loads(read(url, api_key, body, within_s))
    except ValueError as error:
        raise click.ClickException(f"{url} cannot be asked: {error}") from None
    if not isinstance(answer, dict):
        raise click.ClickException(f"{url} cannot be asked: it answers with no JSON object")
    return answer


def read(url: str, api_key: str | None, body: dict[str, Any] | None, within_s: float = _TIMEOUT_S) -> bytes:
    """The body of the server's answer; ClickException where it is not there, refuses, or takes longer."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {_sendable(api_key)}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with _opener(url).open(request, timeout=within_s) as response:
            page: bytes = response.read()
            return page
    except urllib.error.HTTPError as error:
        raise click.ClickException(_refusal(error)) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            message = f"{url} has not answered within {within_s:g} s; what it was asked for may still come to be"
            raise click.ClickException(message) from None
        raise click.ClickException(
            f"no server answers at {url} ({reason}); start one with `headgate serve`, or name it with --url"
        ) from None
    except (ValueError, HTTPException) as error:
        told = str(error).strip() or type(error).__name__
        raise click.ClickException(f"{url} cannot be asked: {told}") from None


def _sendable(api_key: str) -> str:
    """The key as a header holds it, without the line end of the file that it came from; ClickException, which does not
    show it, where a header cannot."""
    key = api_key.strip()
    wrong = next((at for at, sign in enumerate(key) if sign < " " or sign == "\x7f"), None)
    if wrong is not None:
        message = f"its character {wrong + 1} of {len(key)} is {key[wrong]!a}; expected none that controls a terminal"
        raise click.ClickException(f"the API key cannot be sent: {message}")
    # The server reads it as UTF-8, where the client takes what is Latin-1.
    return key.encode("utf-8", "surrogateescape").decode("latin-1")


def _opener(url: str) -> urllib.request.OpenerDirector:
    """By the proxies of the environment, but for this machine: what is at a proxy's 127.0.0.1 is another server."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
        here = address.is_loopback or address.is_unspecified
    except ValueError:
        here = host == "localhost"
    return urllib.request.build_opener(_NoFollowing, *([urllib.request.ProxyHandler({})] if here else []))


def _refusal(error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        return (
            f"the server answers with {error.code} and leads to {error.headers.get('Location')}; name that with --url"
        )
    try:
        message = json.loads(error.read())["error"]["message"]
    except (ValueError, LookupError, TypeError, OSError, HTTPException):
        message = error.reason
    return f"the server refuses with {error.code}: {message}"
