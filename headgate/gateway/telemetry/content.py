"""What was said, for teams that want it in the log: as it was, or without what tells who people are."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any, Literal

from headgate.gateway.request import ChatRequest, Chunk
from headgate.gateway.telemetry.record import RequestRecord

LOGGER = "headgate.content"
ContentLevel = Literal["off", "redacted", "full"]

_HIDDEN = (
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "[email]"),
    (re.compile(r"\b\w+://\S+"), "[url]"),
    # A key or token: long, of letters and digits mixed.
    (re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{16,}(?![\w-])"), "[secret]"),
    # Telephone, card and account numbers, dates and addresses of machines; short numbers stay.
    (re.compile(r"(?<!\w)\+?\d(?:[ ().:/-]{0,3}\d){4,}(?!\w)"), "[number]"),
)


class Heard:
    """The texts of an answer as they go by, by choice."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}

    def add(self, chunk: Chunk) -> None:
        """The next piece of its choice."""
        self._pieces.setdefault(chunk.index, []).append(chunk.text)

    @property
    def texts(self) -> list[str]:
        """What was said so far, by index."""
        return ["".join(pieces) for _, pieces in sorted(self._pieces.items())]


def write_content_line(
    logger: logging.Logger, record: RequestRecord, asked: Sequence[ChatRequest], answers: list[str], *, redact: bool
) -> None:
    """One JSON line with the id of the request's line in the access log."""
    said: list[Any] = [
        [message.for_template() for message in request.messages] if request.messages else request.prompt
        for request in asked
    ]
    fields = {"id": record.request_id, "team": record.team, "asked": said, "answers": answers}
    logger.info(json.dumps(_without(fields) if redact else fields, ensure_ascii=False))


def redacted(text: str) -> str:
    """The text without addresses, numbers of five digits or more, and what looks like a key."""
    for pattern, shown in _HIDDEN:
        text = pattern.sub(shown, text)
    return text


def _without(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner) for inner in value]
    if isinstance(value, tuple):
        # Token ids are text to whoever has the tokenizer.
        return f"[{len(value)} tokens]"
    return redacted(value) if isinstance(value, str) and name not in ("id", "team", "role") else value
