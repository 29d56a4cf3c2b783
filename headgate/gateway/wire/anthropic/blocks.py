"""Anthropic's `POST /v1/messages`: the blocks that messages are made of, and what text, pictures and documents say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from headgate.gateway.road.attachments import Piece
from headgate.gateway.wire.attachments import document, encoded_picture, no_file_id, picture
from headgate.gateway.wire.decode import T, decoder_of
from headgate.gateway.wire.errors import given, invalid, unsupported

TOLD = ("text", "image", "document")
"""Types of blocks that say or show something."""
BLOCK_TYPES = (*TOLD, "tool_use", "tool_result", "thinking", "redacted_thinking")


class ContentBlock(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One piece of a message. Pictures and documents are for models that take them; Anthropic's server tools are
    refused."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(BLOCK_TYPES)})]
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Annotated[Any, Meta(description="Of a tool_result: a text, or a list of blocks.")] = None
    is_error: bool | None = None
    source: Annotated[Any, Meta(description="Of an image or a document: base64 with its media_type, or a url.")] = None
    title: Annotated[Any, Meta(description="Of a document.")] = None
    context: Annotated[Any, Meta(description="Of a document: a text that is shown before it.")] = None
    # What replies and earlier turns carry and no answer depends on here.
    cache_control: Any = None
    caller: Any = None
    citations: Any = None
    thinking: str | None = None
    signature: Any = None
    data: Any = None
    # Named to be refused by its type and not as an unknown parameter.
    toolset_name: Any = None


class Source(Struct, forbid_unknown_fields=True):
    """Where a picture or a document is."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: Any = None
    content: Any = None


class _DocumentFields(Struct):
    title: str | None = None
    context: str | None = None


class _Citations(Struct):
    enabled: bool = False


def told(blocks: Sequence[ContentBlock], path: str, accepted: Sequence[str] = TOLD) -> list[Piece]:
    """What blocks say and show, in order; ApiError 400 by its place for one of another type than accepted."""
    pieces: list[Piece] = []
    for at, block in enumerate(blocks):
        pieces += pieces_of(block, f"{path}[{at}]", accepted)
    return pieces


def pieces_of(block: ContentBlock, place: str, accepted: Sequence[str] = TOLD) -> list[Piece]:
    """What one block says and shows."""
    if block.type not in accepted:
        supported = ", ".join(f"'{known}'" for known in accepted)
        message = f"'{place}': blocks of type '{block.type}' are not supported here. Supported: {supported}."
        raise unsupported(f"{place}.type", message)
    if block.type == "text":
        return [given(block.text, f"{place}.text")]
    path = f"{place}.source"
    source = typed(given(block.source, path), Source, path)
    no_file_id(source.file_id, f"{path}.file_id", f"{path}.data")
    return [_picture(source, path, place)] if block.type == "image" else _document(block, source, path, place)


def typed(value: Any, kind: type[T] | type[list[T]], path: str) -> Any:
    """A value as a type has it; ApiError 400 by its path where it is another."""
    decoder_of(kind)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"Invalid '{path}': {error}.", path, "invalid_type") from None


def _picture(source: Source, path: str, place: str) -> Piece:
    if source.type == "base64":
        return encoded_picture(source.media_type, source.data, path, place)
    if source.type == "url":
        return picture(source.url, None, f"{path}.url", place)
    raise _unknown(source, path, "'base64', 'url'")


def _document(block: ContentBlock, source: Source, path: str, place: str) -> list[Piece]:
    fields = {"title": block.title, "context": block.context}
    about: _DocumentFields = typed(fields, _DocumentFields, place)
    if block.citations is not None and typed(block.citations, _Citations, f"{place}.citations").enabled:
        name = f"{place}.citations"
        raise unsupported(name, f"'{name}' is not supported: no answer here says what it quotes. Leave it out.")
    context: list[Piece] = [about.context] if about.context else []
    if source.type == "base64":
        if source.media_type != "application/pdf":
            name = f"{path}.media_type"
            raise invalid(
                f"Invalid '{name}': {source.media_type!r}. Expected 'application/pdf'.", name, "invalid_value"
            )
        data = f"data:application/pdf;base64,{given(source.data, f'{path}.data')}"
        return [*context, document(data, about.title or "document.pdf", f"{path}.data", place)]
    # What is text anyway is told as text, which every model reads.
    heading: list[Piece] = [about.title] if about.title else []
    if source.type == "text":
        return [*heading, *context, given(source.data, f"{path}.data")]
    if source.type == "content":
        inner = given(source.content, f"{path}.content")
        if isinstance(inner, str):
            return [*heading, *context, inner]
        blocks = typed(inner, list[ContentBlock], f"{path}.content")
        return [*heading, *context, *told(blocks, f"{path}.content", TOLD[:2])]
    raise _unknown(source, path, "'base64', 'text', 'content'")


def _unknown(source: Source, path: str, supported: str) -> Exception:
    message = (
        f"'{path}': sources of type '{source.type[:80]}' are not supported by this server. Supported: {supported}."
    )
    return unsupported(f"{path}.type", message)
