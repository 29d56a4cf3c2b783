"""`POST /v1/chat/completions`: the request on the wire and its way into the road's own value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from headgate.gateway.road.attachments import Piece, written
from headgate.gateway.road.request import CacheControl, ChatRequest, Draft, Message, ServiceTier, ToolCall
from headgate.gateway.wire.attachments import DETAILS, SoundBody, document, no_file_id, picture, sound
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import given, invalid, one_of, unsupported
from headgate.gateway.wire.labels import EndUser, Metadata
from headgate.gateway.wire.response_format import ResponseFormatBody, parse_response_format
from headgate.gateway.wire.sampling import ModelName, SamplingFields, StreamOptions, check_stream_options, stop_strings
from headgate.gateway.wire.tools import MAX_TOOLS, ToolBody, ToolChoiceBody, parse_tool_use, parse_tools
from headgate.gateway.wire.unimplemented import CHAT_NEUTRAL, refuse_unsupported
from headgate.gateway.wire.unknown_fields import decode_open

ROLES = ("system", "developer", "user", "assistant", "tool")
PART_TYPES = ("text", "refusal", "image_url", "input_audio", "file")
_SAID = PART_TYPES[:2]
_ATTACHING = ("user", "tool")
"""Roles whose messages may have more than text."""


class ImageUrl(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a picture is: its data as a data URL, or an http(s) URL."""

    url: str
    detail: str | None = None


class AttachedFile(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A file's data in base64, or as a data URL."""

    file_data: str | None = None
    filename: str | None = None
    file_id: Annotated[Any, Meta(description="Not supported: give file_data.")] = None


class ContentPart(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One piece of a message. Pictures, sound and files are for models that take them."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(PART_TYPES)})]
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | None = None
    input_audio: SoundBody | None = None
    file: AttachedFile | None = None
    prompt_cache_breakpoint: Any = None


class FunctionCall(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Name and JSON arguments of a call."""

    name: str
    arguments: str
    parsed_arguments: Annotated[Any, Meta(description="What OpenAI's client made of the arguments; not read.")] = None


class AssistantToolCall(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A call made by the assistant in an earlier turn."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: Annotated[Any, Meta(description="Its place in a stream, which clients that joined one keep; not read.")] = (
        None
    )


class ChatMessage(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of the conversation."""

    role: Annotated[str, Meta(extra_json_schema={"enum": list(ROLES)})]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[AssistantToolCall] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    annotations: Annotated[Any, Meta(description="Accepted as returned by other servers; not read.")] = None
    parsed: Annotated[Any, Meta(description="What OpenAI's client made of the content; not read.")] = None
    audio: Annotated[None, Meta(description="Only null.")] = None
    function_call: Annotated[None, Meta(description="Only null; use tool_calls.")] = None


class Prediction(Struct, forbid_unknown_fields=True):
    """What much of the answer is expected to be."""

    content: str | list[ContentPart]
    type: Literal["content"] = "content"


class ChatCompletionRequest(SamplingFields, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/chat/completions`. Parameters not listed are refused, never dropped."""

    model: ModelName | UnsetType = UNSET
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    # Accepted: they do not change the answer.
    metadata: Metadata | None = None
    safety_identifier: EndUser | None = None
    prompt_cache_key: str | None = None
    tools: Annotated[list[ToolBody], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormatBody | None = None
    service_tier: ServiceTier | None = None
    prediction: (
        Annotated[Prediction, Meta(description="The answer's tokens that are in it come sooner; it changes none.")]
        | None
    ) = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    # Known to OpenAI's clients; served only at values that change nothing (see unimplemented.py).
    audio: Any = UNSET
    function_call: Any = UNSET
    functions: Any = UNSET
    modalities: Any = UNSET
    moderation: Any = UNSET
    prompt_cache_options: Any = UNSET
    prompt_cache_retention: Any = UNSET
    store: Any = UNSET
    verbosity: Any = UNSET
    web_search_options: Any = UNSET


def parse_chat(
    body: bytes, cache: CacheControl, session: str | None = None, *, take_unknown: bool = False
) -> ChatRequest:
    """The request in `body`; ApiError 400 where it is malformed or asks for something not implemented.

    `cache` and `session` are what its headers say. `take_unknown`: there are servers that may be sent on what nobody
    here knows.
    """
    if take_unknown:
        wire, unknown = decode_open(body, ChatCompletionRequest, CHAT_NEUTRAL)
    else:
        wire, unknown = decode(body, ChatCompletionRequest), ()
    refuse_unsupported(wire, CHAT_NEUTRAL)
    check_stream_options(wire.stream, wire.stream_options)
    if wire.top_logprobs is not None and not wire.logprobs:
        raise invalid("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs", "invalid_value")
    tools = parse_tools(wire.tools)
    return ChatRequest(
        endpoint="chat.completions",
        model=wire.model or "",
        messages=conversation(wire.messages),
        sampling=wire.sampling(),
        max_tokens=_max_tokens(wire),
        n=wire.n or 1,
        stop=stop_strings(wire.stop),
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
        stream=bool(wire.stream),
        include_usage=_include_usage(wire.stream_options),
        cache=cache,
        user=wire.safety_identifier if wire.safety_identifier is not None else wire.user,
        metadata=tuple((wire.metadata or {}).items()),
        session=session if session is not None else wire.prompt_cache_key,
        tools=tools,
        tool_use=parse_tool_use(wire.tool_choice, wire.parallel_tool_calls, tools),
        response_format=parse_response_format(wire.response_format),
        service_tier=wire.service_tier or "auto",
        reasoning_effort=wire.reasoning_effort,
        draft=None if wire.prediction is None else Draft("prediction", _predicted(wire.prediction.content)),
        unknown=unknown,
    )


def parse_open_chat(body: bytes, cache: CacheControl, session: str | None = None) -> ChatRequest:
    """As `parse_chat`, unknown fields taken along."""
    return parse_chat(body, cache, session, take_unknown=True)


def conversation(messages: list[ChatMessage]) -> tuple[Message, ...]:
    """The road's own messages; ApiError 400 for a message that is malformed."""
    return tuple(_message(m, f"messages[{i}]") for i, m in enumerate(messages))


def _include_usage(options: StreamOptions | None) -> bool:
    return bool(options and options.include_usage)


def _max_tokens(wire: ChatCompletionRequest) -> int | None:
    new, old = wire.max_completion_tokens, wire.max_tokens
    if new is not None and old is not None and new != old:
        message = (
            f"'max_tokens' ({old}) and 'max_completion_tokens' ({new}) differ. Give one of them, or the same value."
        )
        raise invalid(message, "max_tokens", "invalid_value")
    return new if new is not None else old


def _message(wire: ChatMessage, path: str) -> Message:
    one_of(f"{path}.role", wire.role, ROLES)
    if wire.role == "tool":
        given(wire.tool_call_id, f"{path}.tool_call_id")
    if wire.role != "assistant" and wire.tool_calls:
        message = f"'{path}.tool_calls' is only allowed in messages of the assistant."
        raise invalid(message, f"{path}.tool_calls", "invalid_value")
    content, parts = _content(wire, path)
    if content is None and not wire.tool_calls:
        message = f"Invalid value for '{path}.content': expected a string or an array of text parts, got null."
        raise invalid(message, f"{path}.content", "invalid_type")
    calls = tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in wire.tool_calls or ())
    role = "system" if wire.role == "developer" else wire.role
    return Message(role, content, wire.name, wire.tool_call_id, calls, wire.reasoning_content, parts)


def _content(wire: ChatMessage, path: str) -> tuple[str | None, tuple[Piece, ...]]:
    if wire.content is None and wire.refusal is not None:
        return wire.refusal, ()
    if wire.content is None or isinstance(wire.content, str):
        return wire.content, ()
    if not wire.content:
        raise invalid(
            f"Invalid '{path}.content': empty array. Expected at least 1 element.", f"{path}.content", "empty_array"
        )
    accepted = PART_TYPES if wire.role in _ATTACHING else _SAID
    return written([_part(p, f"{path}.content[{i}]", accepted) for i, p in enumerate(wire.content)])


def _predicted(content: str | list[ContentPart]) -> str:
    if isinstance(content, str):
        return content
    return "".join(_text(p, f"prediction.content[{i}]", _SAID) for i, p in enumerate(content))


def _part(part: ContentPart, path: str, accepted: Sequence[str]) -> Piece:
    if part.type in _SAID or part.type not in accepted:
        return _text(part, path, accepted)
    if part.type == "image_url":
        image = given(part.image_url, f"{path}.image_url")
        detail = one_of(f"{path}.image_url.detail", image.detail, DETAILS)
        return picture(image.url, detail, f"{path}.image_url.url", path)
    if part.type == "input_audio":
        return sound(part.input_audio, path)
    file = given(part.file, f"{path}.file")
    no_file_id(file.file_id, f"{path}.file.file_id", f"{path}.file.file_data")
    return document(file.file_data, file.filename, f"{path}.file.file_data", path)


def _text(part: ContentPart, path: str, accepted: Sequence[str]) -> str:
    if part.type not in _SAID:
        supported = ", ".join(f"'{name}'" for name in accepted if name != "refusal")
        message = f"'{path}': content parts of type '{part.type}' are not supported here. Supported: {supported}."
        raise unsupported(f"{path}.type", message)
    return given(part.text if part.type == "text" else part.refusal, f"{path}.{part.type}")
