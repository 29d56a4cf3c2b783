"""OpenAI's `/v1/responses`: the items that a conversation is made of, and their way into turns of chat templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

from msgspec import Meta, Struct
from msgspec.structs import replace

from headgate.gateway.road.attachments import Piece, written
from headgate.gateway.road.request import Message, ToolCall
from headgate.gateway.wire.attachments import DETAILS, SoundBody, document, no_file_id, picture, sound
from headgate.gateway.wire.errors import given, invalid, one_of, unsupported

_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
"""What the ids of items begin with, by the type."""
ITEM_TYPES = tuple(_PREFIXES)
_SAID = ("input_text", "output_text", "refusal")
_SHOWN = ("input_image", "input_file", "input_audio")
PART_TYPES = (*_SAID, "reasoning_text", *_SHOWN)
ROLES = ("system", "developer", "user", "assistant")


class ResponsePart(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One piece of an item's content. Pictures, sound and files are for models that take them."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(PART_TYPES)})]
    text: str | None = None
    refusal: str | None = None
    annotations: Annotated[Any, Meta(description="Accepted as returned; not read.")] = None
    logprobs: Annotated[Any, Meta(description="Accepted as returned; not read.")] = None
    parsed: Annotated[Any, Meta(description="What OpenAI's client made of the text; not read.")] = None
    image_url: Annotated[str | None, Meta(description="Its data as a data URL, or an http(s) URL.")] = None
    detail: str | None = None
    file_data: Annotated[str | None, Meta(description="In base64, or as a data URL.")] = None
    filename: str | None = None
    input_audio: SoundBody | None = None
    file_id: Annotated[Any, Meta(description="Not supported: give file_data or image_url.")] = None
    file_url: Annotated[Any, Meta(description="Not supported: give file_data.")] = None
    prompt_cache_breakpoint: Any = None


class ResponseItem(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One item of the input: a message, a call of a function, or its result."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(ITEM_TYPES)})] = "message"
    role: Annotated[str | None, Meta(extra_json_schema={"enum": [*ROLES, None]})] = None
    content: str | list[ResponsePart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ResponsePart] | None = None
    parsed_arguments: Annotated[Any, Meta(description="What OpenAI's client made of the arguments; not read.")] = None
    # What items of earlier replies carry; the answer does not depend on it.
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    caller: Any = None
    namespace: Any = None
    summary: Any = None
    encrypted_content: Any = None

    @property
    def thoughts(self) -> str | None:
        """What a reasoning item says, if it says it openly."""
        parts = self.content if isinstance(self.content, list) else []
        return "\n".join(part.text for part in parts if part.text) or None


def given_items(given: str | Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
    """The input of a request as items: a text is what the user says."""
    return (ResponseItem(role="user", content=given),) if isinstance(given, str) else tuple(given)


def turns_of(before: Sequence[ResponseItem], items: Sequence[ResponseItem]) -> tuple[Message, ...]:
    """The conversation of items, as chat templates take it; ApiError 400 by the place in `items` of what is wrong.

    What `before` has beside text has its place below `previous_response_id`.
    """
    turns: list[Message] = []
    thoughts: str | None = None
    for at, item in enumerate([*before, *items]):
        path = f"input[{at - len(before)}]" if at >= len(before) else "previous_response_id"
        _add(turns, item, path, thoughts)
        thoughts = item.thoughts if item.type == "reasoning" else None
    return tuple(turns)


def identified(before: Sequence[ResponseItem], items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
    """A conversation that goes on with these items, each with an id that none before it has.

    Who lists the items goes on by the id of the last, so that one that a client repeats gives way to a new one.
    """
    seen: set[str] = set()
    told = []
    for item in (*before, *items):
        own = item if item.id and item.id not in seen else replace(item, id=f"{_PREFIXES[item.type]}_{uuid4().hex}")
        seen.add(own.id or "")
        told.append(own)
    return tuple(told)


def _add(turns: list[Message], item: ResponseItem, path: str, thoughts: str | None) -> None:
    """An item as a turn of chat templates, where calls of functions belong to the assistant's message."""
    if item.type == "message":
        role = given(item.role, f"{path}.role")
        one_of(f"{path}.role", role, ROLES)
        text, parts = _content(item.content, f"{path}.content", shows=role == "user")
        thought = thoughts if role == "assistant" else None
        turns.append(Message("system" if role == "developer" else role, text, reasoning=thought, parts=parts))
    elif item.type == "function_call":
        call = ToolCall(
            given(item.call_id, f"{path}.call_id"),
            given(item.name, f"{path}.name"),
            given(item.arguments, f"{path}.arguments"),
        )
        if turns and turns[-1].role == "assistant":
            last = turns.pop()
            thought = last.reasoning or thoughts
            turns.append(Message("assistant", last.content, tool_calls=(*last.tool_calls, call), reasoning=thought))
        else:
            turns.append(Message("assistant", None, tool_calls=(call,), reasoning=thoughts))
    elif item.type == "function_call_output":
        called = given(item.call_id, f"{path}.call_id")
        text, parts = _content(item.output, f"{path}.output", shows=True)
        turns.append(Message("tool", text, tool_call_id=called, parts=parts))
    elif item.type != "reasoning":
        supported = ", ".join(f"'{known}'" for known in ITEM_TYPES)
        message = f"'{path}': items of type '{item.type}' are not supported by this server. Supported: {supported}."
        raise unsupported(f"{path}.type", message)
    # What the model thought goes with the item that follows; its chat template says whether it is shown that again.


def _content(content: str | Sequence[ResponsePart] | None, path: str, *, shows: bool) -> tuple[str, tuple[Piece, ...]]:
    if isinstance(content, str):
        return content, ()
    if not content:
        raise invalid(f"Invalid '{path}': expected a text or at least one part.", path, "empty_array")
    accepted = (*_SAID, *_SHOWN) if shows else _SAID
    return written([_piece(part, f"{path}[{at}]", accepted) for at, part in enumerate(content)])


def _piece(part: ResponsePart, place: str, accepted: Sequence[str]) -> Piece:
    if part.type not in accepted:
        supported = ", ".join(f"'{known}'" for known in accepted)
        message = f"'{place}': parts of type '{part.type}' are not supported here. Supported: {supported}."
        raise unsupported(f"{place}.type", message)
    if part.type == "input_image":
        no_file_id(part.file_id, f"{place}.file_id", f"{place}.image_url")
        detail = one_of(f"{place}.detail", part.detail, DETAILS)
        return picture(part.image_url, detail, f"{place}.image_url", place)
    if part.type == "input_audio":
        return sound(part.input_audio, place)
    if part.type == "input_file":
        return _file(part, place)
    name = "refusal" if part.type == "refusal" else "text"
    return given(part.refusal if name == "refusal" else part.text, f"{place}.{name}")


def _file(part: ResponsePart, place: str) -> Piece:
    no_file_id(part.file_id, f"{place}.file_id", f"{place}.file_data")
    # Chat completions, which upstreams are asked by, have no words for these.
    if part.file_url is not None:
        name = f"{place}.file_url"
        raise unsupported(name, f"'{name}' is not supported: no file is fetched. Give '{place}.file_data'.")
    if part.detail not in (None, "auto"):
        raise unsupported(
            f"{place}.detail", f"'{place}.detail' is not supported for files. Leave it out or give 'auto'."
        )
    return document(part.file_data, part.filename, f"{place}.file_data", place)
