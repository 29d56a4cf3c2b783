"""`headgate chat`: a conversation in the terminal, over HTTP like any other client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from rich.console import Console
from rich.text import Text

_DONE = "[DONE]"


class ChatError(Exception):
    """The server is not there, or refuses."""


class ChatClient:
    """Streams answers from a server and keeps the headers of the last one."""

    def __init__(self, url: str, model: str, api_key: str | None, max_tokens: int | None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._options = {"model": model, "stream": True, **({"max_tokens": max_tokens} if max_tokens else {})}
        self.headers: Mapping[str, str] = {}

    async def answer(self, messages: list[dict[str, str]]) -> AsyncIterator[str]:
        """The pieces of the next answer; ChatError where there is none."""
        # An answer may take long; only a silent server is given up on, and it sends comments while it works.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=120)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session:
            try:
                async with session.post(
                    f"{self._url}/v1/chat/completions", json={**self._options, "messages": messages}
                ) as response:
                    self.headers = dict(response.headers)
                    if response.status != 200:
                        raise ChatError(_refusal(response.status, await response.text()))
                    async for line in response.content:
                        if (event := _event(line)) is not None:
                            yield event
            except aiohttp.ClientConnectorError:
                raise ChatError(
                    f"no server answers at {self._url}; start one with `headgate serve`, or name it with --url"
                ) from None
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ChatError(f"the connection to {self._url} failed: {error or type(error).__name__}") from None


async def converse(client: ChatClient, question: str | None) -> None:
    """Ask one question, or questions until the end of input."""
    console = Console(highlight=False)
    messages: list[dict[str, str]] = []
    if question is not None:
        await _turn(client, console, messages, question)
        return
    console.print("[dim]An empty line or Ctrl-D leaves.[/dim]")
    while asked := console.input("[bold]> [/bold]").strip():
        try:
            await _turn(client, console, messages, asked)
        except ChatError as error:
            # The conversation goes on without this turn: one refusal should not lose what was said before.
            messages.pop()
            if not messages:
                raise
            console.print(Text(str(error), style="red"))


async def _turn(client: ChatClient, console: Console, messages: list[dict[str, str]], asked: str) -> None:
    messages.append({"role": "user", "content": asked})
    said = ""
    async for piece in client.answer(messages):
        # Whole lines: the terminal wraps, and a pipe gets the text as it is.
        console.print(Text(piece), end="", soft_wrap=True)
        said += piece
    messages.append({"role": "assistant", "content": said})
    console.print()
    console.print(Text(_status(client.headers), style="dim"))


def _status(headers: Mapping[str, str]) -> str:
    fields = {name.lower(): value for name, value in headers.items()}
    model, route = fields.get("x-headgate-model", "?"), fields.get("x-headgate-route", "?")
    cache, similarity = fields.get("x-headgate-cache", "?"), fields.get("x-headgate-similarity")
    close = f" ({similarity})" if similarity else ""
    return f"{model} · route {route} · cache {cache}{close} · overhead {fields.get('x-headgate-overhead-ms', '?')} ms"


def _event(line: bytes) -> str | None:
    """The text in one line of the stream; None where it carries none. ChatError where the stream broke off."""
    text = line.decode("utf-8", "replace").strip()
    if not text.startswith("data:"):
        return None
    data = text.removeprefix("data:").strip()
    if data == _DONE:
        return None
    event: dict[str, Any] = json.loads(data)
    if "error" in event:
        raise ChatError(f"the answer broke off: {event['error']['message']}")
    choices = event.get("choices") or [{}]
    content = choices[0].get("delta", {}).get("content")
    return content or None


def _refusal(status: int, body: str) -> str:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = body[:200]
    return f"the server refused ({status}): {message}"
