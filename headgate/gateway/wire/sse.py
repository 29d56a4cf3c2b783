"""Server-sent events as OpenAI's clients read them: `data: {json}`, a blank line, and `[DONE]` at the end."""

from __future__ import annotations

from collections.abc import Iterable

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    # Proxies in front would otherwise hold frames back.
    "X-Accel-Buffering": "no",
}
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it, and proxies see that the connection lives."""


def frame(payload: bytes) -> bytes:
    """One event. `payload` is JSON on one line, as msgspec writes it."""
    return b"data: " + payload + b"\n\n"


def frames(payloads: Iterable[bytes]) -> bytes:
    """Several events as one write: what piled up while the client or the loop lagged goes out together."""
    return b"".join([frame(p) for p in payloads])
