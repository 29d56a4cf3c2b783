"""The account of an answer that is passed on: tokens or seconds, where it says how many. Knows no network."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct

from headgate.gateway.road.request import Usage
from headgate.gateway.upstream.events import MAX_EVENT_BYTES, EventTooLong

MAX_PASSED_EVENT_BYTES = 16 * MAX_EVENT_BYTES
"""Pictures come as events, too."""
_MOST = 1_000_000_000
"""Tokens or seconds of one account: more is a count that fell below 0 somewhere."""
_ENDS = (b"\n\n", b"\r\n\r\n")


class _Account(Struct):
    prompt_tokens: int | None = None
    input_tokens: int | None = None
    completion_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    seconds: float | None = None


class _Answer(Struct):
    usage: Raw = Raw()
    duration: Raw = Raw()
    error: Any = None


_ANSWER = msgspec.json.Decoder(_Answer)
_ACCOUNT = msgspec.json.Decoder(_Account)
_SECONDS = msgspec.json.Decoder(float, strict=False)


@dataclass(slots=True)
class Metered:
    """What an answer says that it took; nothing where it does not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Of sound that was heard."""

    def read(self, payload: bytes | memoryview) -> Any:
        """Take the account in a JSON object, if there is one. Returns the error that it tells; None: none, or nothing.

        msgspec.DecodeError where it is no JSON object.
        """
        answer = _ANSWER.decode(payload)
        if (raw := bytes(answer.usage)) not in (b"", b"null"):
            # Somebody else's idea of an account says nothing here.
            with suppress(msgspec.DecodeError):
                self._take(_ACCOUNT.decode(raw))
        if not self.seconds and (raw := bytes(answer.duration)):
            self.seconds = _seconds(raw)
        return answer.error or None

    def usage(self, beside_nano_usd: int) -> Usage:
        """As it is billed; `beside_nano_usd` for what is not paid by the token."""
        return Usage(self.prompt_tokens, self.completion_tokens, 0, beside_nano_usd=beside_nano_usd)

    def _take(self, account: _Account) -> None:
        completion = account.completion_tokens or account.output_tokens or 0
        prompt = account.prompt_tokens or account.input_tokens or max(0, (account.total_tokens or 0) - completion)
        if 0 <= prompt <= _MOST and 0 <= completion <= _MOST:
            self.prompt_tokens, self.completion_tokens = prompt, completion
        if account.seconds is not None and 0 <= account.seconds <= _MOST:
            self.seconds = account.seconds


class Events:
    """Server-sent events on their way through: whole ones only, so that a stream may end behind each with an error."""

    def __init__(self, metered: Metered, longest: int = MAX_PASSED_EVENT_BYTES) -> None:
        """`metered` learns of the account; `longest`: bytes that an event may have."""
        self._metered = metered
        self._longest = longest
        self._rest = bytearray()
        self.error: Any = None
        """That an event has told."""

    def feed(self, data: bytes) -> bytes:
        """The events that are whole now, as they came. EventTooLong where one grows beyond the bound."""
        rest = self._rest
        # The end of an event may have begun in what came before.
        since = max(0, len(rest) - 3)
        rest += data
        end = max(found + len(mark) if (found := rest.rfind(mark, since)) >= 0 else 0 for mark in _ENDS)
        if len(rest) - end > self._longest:
            raise EventTooLong(f"an event is longer than {self._longest} bytes")
        if not end:
            return b""
        whole = bytes(rest[:end])
        del rest[:end]
        self._look(whole)
        return whole

    def end(self) -> bytes:
        """At the end of the bytes: what is left of them, which may be an event without its blank line."""
        left = bytes(self._rest)
        self._rest.clear()
        self._look(left)
        return left

    def _look(self, events: bytes) -> None:
        if not _of_interest(events):
            return
        for line in events.splitlines():
            if line.startswith(b"data:") and _of_interest(line):
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self.error = self._metered.read(line[5:]) or self.error


def _of_interest(text: bytes) -> bool:
    return b'"usage"' in text or b'"error"' in text


def _seconds(raw: bytes) -> float:
    try:
        found = _SECONDS.decode(raw)
    except msgspec.DecodeError:
        return 0.0
    return found if 0 <= found <= _MOST else 0.0
