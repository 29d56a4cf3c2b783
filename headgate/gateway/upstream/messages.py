"""A conversation as an upstream is told it: in the words of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.gateway.road.attachments import Attachment, Document, Picture, Piece
from headgate.gateway.road.request import Message

_SHOWN_BELOW = "What it gave is shown in the next message of the user."


def messages_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages on the wire.

    What a function gave may only be text there. What it gave beside text is shown by the user's next message, which
    follows the results of all calls of a turn: it is a message of its own, unless the user says something there.
    """
    told: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for message in messages:
        if shown and message.role == "user":
            told.append({**_message(message), "content": [*shown, *_parts(message.parts or (message.content or "",))]})
            shown = []
            continue
        if shown and message.role != "tool":
            told.append({"role": "user", "content": shown})
            shown = []
        told.append(_message(message))
        if message.role == "tool" and message.parts:
            told[-1]["content"] = message.content or _SHOWN_BELOW
            attachments = [part for part in message.parts if not isinstance(part, str)]
            shown += _parts((f"Given by the call {message.tool_call_id}:", *attachments))
    return [*told, {"role": "user", "content": shown}] if shown else told


def _message(message: Message) -> dict[str, Any]:
    content = _parts(message.parts) if message.parts else message.content
    fields: dict[str, Any] = {"role": message.role, "content": content}
    if message.name is not None:
        fields["name"] = message.name
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    return fields


def _parts(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": piece} if isinstance(piece, str) else _attachment(piece) for piece in pieces]


def _attachment(attachment: Attachment) -> dict[str, Any]:
    if isinstance(attachment, Picture):
        image = {"url": attachment.url, **({} if attachment.detail is None else {"detail": attachment.detail})}
        return {"type": "image_url", "image_url": image}
    if isinstance(attachment, Document):
        named = {} if attachment.name is None else {"filename": attachment.name}
        return {"type": "file", "file": {**named, "file_data": attachment.data}}
    return {"type": "input_audio", "input_audio": {"data": attachment.data, "format": attachment.format}}
