"""Server-sent events: `data: {json}` and a blank line; chat completions end with `[DONE]`, others name their events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from headgate.gateway.wire.errors import ApiError

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    # Proxies in front would otherwise hold frames back.
    "X-Accel-Buffering": "no",
}
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it, and proxies see that the connection lives."""


def comment(text: str) -> bytes:
    """What clients skip and people read. `text` is one line."""
    return b": " + text.encode() + b"\n\n"


def frame(payload: bytes) -> bytes:
    """One event. `payload` is JSON on one line, as msgspec writes it."""
    return b"data: " + payload + b"\n\n"


def frames(payloads: Iterable[bytes]) -> bytes:
    """Several events as one write: what piled up while the client or the loop lagged goes out together."""
    return b"".join([frame(p) for p in payloads])


class Framing(Protocol):
    """How a protocol puts the events of a stream on the wire."""

    @property
    def done(self) -> bytes:
        """What ends a stream that is whole."""
        ...

    @property
    def alive(self) -> bytes:
        """What is sent into silence."""
        ...

    def frames(self, payloads: Iterable[bytes]) -> bytes:
        """Several events as one write."""
        ...

    def error(self, error: ApiError) -> bytes:
        """Says that the stream has failed; nothing follows."""
        ...


class OpenAIFraming:
    """Events without names."""

    done = DONE
    alive = KEEP_ALIVE

    def frames(self, payloads: Iterable[bytes]) -> bytes:
        """Each a `data:` line."""
        return frames(payloads)

    def error(self, error: ApiError) -> bytes:
        """The error's body as an event."""
        return frame(error.encode())


OPENAI: Final = OpenAIFraming()


def named(event: str, payload: bytes) -> bytes:
    """One event with a name."""
    return b"event: " + event.encode() + b"\n" + frame(payload)
