"""What was said, for teams that want it in the log: as it was, or without what tells who people are."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, cast

from headgate.gateway.road.request import ChatRequest, Chunk, Message
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.telemetry.tracing import genai

LOGGER = "headgate.content"
logger = logging.getLogger(LOGGER)

ContentLevel = Literal["off", "redacted", "full"]

_DATA_HEAD = 256
"""Characters within which a data URL says of which type it is."""

# Texts may be JSON, such as the arguments of a call: its escapes hide nothing.
_HIDDEN = (
    # Possessive, and what is no address is taken as a whole: else each letter of a long word begins anew.
    (
        re.compile(r"[\w.+-]++((?:@|\\u0040)[\w-]+(?:\.[\w-]+)+)?"),
        lambda match: "[email]" if match[1] else match[0],
    ),
    (re.compile(r"\b\w+://\S+"), "[url]"),
    # A key or token: long, of letters and digits mixed.
    (re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{16,}(?![\w-])"), "[secret]"),
    # Telephone, card and account numbers, dates and addresses of machines; short numbers stay.
    (re.compile(r"(?:(?<!\w)|(?<=\\[bfnrt]))\+?\d(?:[ ().:/-]{0,3}\d){4,}(?!\w)"), "[number]"),
)


class Heard:
    """The texts of an answer as they go by, by choice."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}
        self._finishes: dict[int, str] = {}

    def add(self, chunk: Chunk) -> None:
        """The next piece of its choice."""
        self._pieces.setdefault(chunk.index, []).append(chunk.text)
        if chunk.finish_reason is not None:
            self._finishes[chunk.index] = chunk.finish_reason

    @property
    def texts(self) -> list[str]:
        """What was said so far, by index."""
        return ["".join(pieces) for _, pieces in sorted(self._pieces.items())]

    @property
    def finishes(self) -> list[str]:
        """Why those ended that have, by index."""
        return [reason for _, reason in sorted(self._finishes.items())]


def span_content(asked: Sequence[ChatRequest], heard: Heard, *, redact: bool) -> dict[str, Any]:
    """What was said, by the attribute of a span, as OpenTelemetry's conventions have messages."""
    turns = [message for request in asked for message in request.messages]
    prompts = [Message("user", r.prompt) for r in asked if isinstance(r.prompt, str)]
    system = [{"type": "text", "content": m.content} for m in turns if m.role == "system" and m.content]
    answers = [
        {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": finish}
        for text, finish in zip_longest(heard.texts, heard.finishes, fillvalue="")
    ]
    content: dict[str, Any] = {
        genai.SYSTEM_INSTRUCTIONS: system,
        genai.INPUT_MESSAGES: [_parts(m) for m in (*turns, *prompts) if m.role != "system"],
        genai.OUTPUT_MESSAGES: answers,
        genai.TOOL_DEFINITIONS: [tool.for_template()["function"] for request in asked for tool in request.tools],
    }
    content = {name: value for name, value in content.items() if value}
    return cast(dict[str, Any], _without(content)) if redact else content


def _parts(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {
            "role": "tool",
            "parts": [
                {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content},
                *({"type": kind} for kind in _attached(message)),
            ],
        }
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.content}] if message.content else []
    parts += [{"type": kind} for kind in _attached(message)]
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": parts}


def level_of(principal: Principal) -> ContentLevel:
    """What a team wants in the log."""
    return principal.policy.logging.content or "off"


def log_content(record: RequestRecord, principal: Principal, said: Mapping[str, Any]) -> None:
    """One JSON line as the team wants it, with the id of the request's line in the access log."""
    level = level_of(principal)
    if level != "off":
        shown = _without(said) if level == "redacted" else said
        logger.info(json.dumps({"id": record.request_id, "team": record.team, **shown}, ensure_ascii=False))


def without_data(value: Any) -> Any:
    """JSON without what is in data URLs, such as a picture's: that is in no log."""
    if isinstance(value, dict):
        return {key: without_data(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_data(inner) for inner in value]
    if isinstance(value, str) and value[:5].lower() == "data:" and ";base64," in value[:_DATA_HEAD]:
        return "[data]"
    return value


def asked_of(requests: Sequence[ChatRequest]) -> list[Any]:
    """What requests ask, as the log has it."""
    return [[_turn(m) for m in r.messages] if r.messages else r.prompt for r in requests]


def _turn(message: Message) -> dict[str, Any]:
    """As on the wire, with the arguments of calls as they were written: they are redacted like any text."""
    fields = message.for_template()
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if attached := _attached(message):
        fields["attached"] = attached
    return fields


def _attached(message: Message) -> list[str]:
    """Kinds of what a message has beside text. What is in them is in no log."""
    return [part.kind for part in message.parts if not isinstance(part, str)]


def redacted(text: str) -> str:
    """The text without addresses, numbers of five digits or more, and what looks like a key."""
    for pattern, shown in _HIDDEN:
        text = pattern.sub(shown, text)
    return text


def _without(value: Any) -> Any:
    """Everything but token ids as `redacted`. Whoever asked may have chosen names and numbers too."""
    if isinstance(value, Mapping):
        return {redacted(key): _without(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner) for inner in value]
    if isinstance(value, tuple):
        # Token ids are text to whoever has the tokenizer.
        return f"[{len(value)} tokens]"
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, int | float):
        shown = redacted(repr(value))
        return value if shown == repr(value) else shown
    return value
