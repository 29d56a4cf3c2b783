"""OpenAI's `/v1/responses/{id}` and its `/input_items`: what is asked of a response that is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from multidict import MultiDict, MultiMapping

from headgate.gateway.wire.attachments import SoundBody
from headgate.gateway.wire.errors import invalid, one_of, unsupported
from headgate.gateway.wire.query import page_size, read_query
from headgate.gateway.wire.responses.body import CallItem, OutputText, ReasoningItem, ReasoningText
from headgate.gateway.wire.responses.items import ResponseItem, ResponsePart
from headgate.gateway.wire.responses.request import INCLUDED, LOGPROBS

DEFAULT_PAGE, MAX_PAGE = 20, 100
_INCLUDE = ("include", "include[]")


class InputText(Struct, tag_field="type", tag="input_text"):
    """Text of who asked."""

    text: str


class Refusal(Struct, tag_field="type", tag="refusal"):
    """What the assistant said instead of an answer."""

    refusal: str


class InputImage(Struct, tag_field="type", tag="input_image"):
    """A picture of who asked."""

    image_url: str
    detail: str = "auto"
    file_id: None = None


class InputAudio(Struct, tag_field="type", tag="input_audio"):
    """Sound of who asked."""

    input_audio: SoundBody


class InputFile(Struct, tag_field="type", tag="input_file"):
    """A file of who asked."""

    file_data: str
    filename: str | None = None


ListedPart = InputText | OutputText | Refusal | InputImage | InputAudio | InputFile


class ListedMessage(Struct, tag_field="type", tag="message"):
    """What somebody said."""

    id: str
    role: str
    content: list[ListedPart]
    status: Literal["completed"] = "completed"


class ListedResult(Struct, tag_field="type", tag="function_call_output"):
    """What a function gave."""

    id: str
    call_id: str
    output: str | list[ListedPart]
    status: Literal["completed"] = "completed"


ListedItem = ListedMessage | CallItem | ListedResult | ReasoningItem


class ResponseItemList(Struct):
    """A part of the conversation that a response answered."""

    data: list[ListedItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class ReadResponse(Struct, frozen=True):
    """How a response is to be read: as it stands, or its events from a number on."""

    stream: bool
    starting_after: int


def read_response(query: MultiMapping[str]) -> ReadResponse:
    """The query of one response; ApiError 400 for what it may not say."""
    given = read_query(_without_include(query), ("stream", "starting_after", "include_obfuscation"))
    one_of("include_obfuscation", given.get("include_obfuscation"), ("true", "false"))
    stream = one_of("stream", given.get("stream"), ("true", "false")) == "true"
    after = given.get("starting_after")
    if after is None:
        return ReadResponse(stream, -1)
    if not stream:
        raise invalid("'starting_after' is only allowed when 'stream' is true.", "starting_after", "invalid_value")
    if not (after.isascii() and after.isdigit()) or len(after) > 9:
        message = f"Invalid 'starting_after': '{after[:80]}'. Expected the number of an event."
        raise invalid(message, "starting_after", "invalid_value")
    return ReadResponse(stream, int(after))


def list_items(items: Sequence[ResponseItem], query: MultiMapping[str]) -> ResponseItemList:
    """The items that a query asks for, the latest first unless it says otherwise; ApiError 400 as `read_response`."""
    asked = read_query(_without_include(query), ("after", "limit", "order"))
    limit, after = page_size(asked.get("limit"), DEFAULT_PAGE, MAX_PAGE), asked.get("after")
    ordered = list(items) if one_of("order", asked.get("order"), ("asc", "desc")) == "asc" else [*reversed(items)]
    start = 0
    if after is not None:
        found = (at for at, item in enumerate(ordered, 1) if item.id == after)
        start = next(found, 0)
        if not start:
            raise invalid(f"Invalid 'after': no item has the id '{after[:80]}'.", "after", "invalid_value")
    page = [_listed(item) for item in ordered[start : start + limit]]
    more = start + limit < len(ordered)
    return ResponseItemList(page, page[0].id if page else None, page[-1].id if page else None, more)


def _without_include(query: MultiMapping[str]) -> MultiMapping[str]:
    """The query but for `include`, which may come again; ApiError 400 for what cannot be added to what is stored."""
    for value in (value for name in _INCLUDE for value in query.getall(name, [])):
        if value == LOGPROBS:
            raise unsupported("include", f"'include': '{LOGPROBS}' is to be asked for when the response is made.")
        one_of("include", value, INCLUDED)
    return MultiDict((name, value) for name, value in query.items() if name not in _INCLUDE)


def _listed(item: ResponseItem) -> ListedItem:
    name, call = item.id or "", item.call_id or ""
    if item.type == "function_call":
        return CallItem(name, "completed", call, item.name or "", item.arguments or "")
    if item.type == "function_call_output":
        output = item.output
        return ListedResult(name, call, output if isinstance(output, str) else [_part(p) for p in output or ()])
    if item.type == "reasoning":
        return ReasoningItem(name, "completed", [ReasoningText(item.thoughts)] if item.thoughts else [])
    role, content = item.role or "", item.content
    if isinstance(content, str):
        content = [ResponsePart("output_text" if role == "assistant" else "input_text", content)]
    return ListedMessage(name, role, [_part(part) for part in content or ()])


def _part(part: ResponsePart) -> ListedPart:
    if part.type == "refusal":
        return Refusal(part.refusal or "")
    if part.type == "input_image":
        return InputImage(part.image_url or "", part.detail or "auto")
    if part.type == "input_audio" and part.input_audio is not None:
        return InputAudio(part.input_audio)
    if part.type == "input_file":
        return InputFile(part.file_data or "", part.filename)
    return OutputText(part.text or "", []) if part.type == "output_text" else InputText(part.text or "")
