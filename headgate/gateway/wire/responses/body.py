"""OpenAI's `/v1/responses`: what replies and events are made of."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from headgate.gateway.road.request import Usage
from headgate.gateway.wire.chat_reply import LogprobBody, UsedTier
from headgate.gateway.wire.errors import ApiError
from headgate.gateway.wire.responses.request import ResponseNamedTool, ResponseTool, TextConfig

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(Struct, tag_field="type", tag="output_text"):
    """Text of the answer."""

    text: str
    logprobs: list[LogprobBody]
    annotations: list[Any] = []


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


class MessageItem(Struct, tag_field="type", tag="message"):
    """Text the model said."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class CallItem(Struct, tag_field="type", tag="function_call"):
    """A call of a function; `call_id` is what its result names."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class ReasoningItem(Struct, tag_field="type", tag="reasoning"):
    """What the model thought before its answer."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[Any] = []


OutputItem = MessageItem | CallItem | ReasoningItem


class InputDetails(Struct):
    """Tokens taken from the prefix cache instead of being computed."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(Struct):
    """Tokens of reasoning."""

    reasoning_tokens: int


class ResponseUsage(Struct):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFailure(Struct):
    """Why there is no answer."""

    code: str
    message: str


class IncompleteDetails(Struct):
    """Why the answer is cut."""

    reason: Literal["max_output_tokens", "content_filter"]


class ReasoningSettings(Struct):
    """How the model was to think."""

    effort: str | None = None
    summary: str | None = None


class ResponseBody(Struct, kw_only=True):
    """A response, as far as it is."""

    id: str
    created_at: int
    status: ResponseStatus
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[OutputItem]
    max_tool_calls: int | None
    parallel_tool_calls: bool
    previous_response_id: str | None
    store: bool
    temperature: float | None
    text: TextConfig
    tool_choice: Literal["none", "auto", "required"] | ResponseNamedTool
    tools: list[ResponseTool]
    top_p: float | None
    top_logprobs: int
    usage: ResponseUsage | None = None
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    metadata: dict[str, str]
    reasoning: ReasoningSettings
    object: Literal["response"] = "response"
    background: bool = False
    service_tier: UsedTier = "default"
    truncation: Literal["disabled"] = "disabled"


class DeletedResponse(Struct):
    """A response that is stored no more."""

    id: str
    deleted: bool = True
    object: Literal["response"] = "response"


class _OfResponse(Struct):
    sequence_number: int
    response: ResponseBody


class _OfItem(Struct):
    sequence_number: int
    output_index: int
    item: OutputItem


class _OfContent(Struct):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int


class ResponseCreated(_OfResponse, tag_field="type", tag="response.created"):
    """The first event."""


class ResponseInProgress(_OfResponse, tag_field="type", tag="response.in_progress"):
    """The second event."""


class ItemAdded(_OfItem, tag_field="type", tag="response.output_item.added"):
    """An item begins, empty."""


class ItemDone(_OfItem, tag_field="type", tag="response.output_item.done"):
    """An item is whole."""


class PartAdded(_OfContent, tag_field="type", tag="response.content_part.added"):
    """An item's content begins, empty."""

    part: OutputText | ReasoningText


class PartDone(_OfContent, tag_field="type", tag="response.content_part.done"):
    """An item's content is whole."""

    part: OutputText | ReasoningText


class OutputTextDelta(_OfContent, tag_field="type", tag="response.output_text.delta"):
    """Text to add."""

    delta: str
    logprobs: list[LogprobBody]


class OutputTextDone(_OfContent, tag_field="type", tag="response.output_text.done"):
    """The whole text."""

    text: str
    logprobs: list[LogprobBody]


class ReasoningDelta(_OfContent, tag_field="type", tag="response.reasoning_text.delta"):
    """Reasoning to add."""

    delta: str


class ReasoningDone(_OfContent, tag_field="type", tag="response.reasoning_text.done"):
    """All of the reasoning."""

    text: str


class ArgumentsDelta(Struct, tag_field="type", tag="response.function_call_arguments.delta"):
    """Arguments to add, a piece of JSON."""

    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Struct, tag_field="type", tag="response.function_call_arguments.done"):
    """All arguments."""

    sequence_number: int
    item_id: str
    output_index: int
    name: str
    arguments: str


class ResponseCompleted(_OfResponse, tag_field="type", tag="response.completed"):
    """The last event of an answer that came to its end."""


class ResponseIncomplete(_OfResponse, tag_field="type", tag="response.incomplete"):
    """The last event of an answer that was cut."""


class ResponseFailed(_OfResponse, tag_field="type", tag="response.failed"):
    """The last event of an answer that broke off."""


RESPONSE_EVENTS: tuple[type, ...] = (
    ResponseCreated, ResponseInProgress, ItemAdded, PartAdded, OutputTextDelta, OutputTextDone, ReasoningDelta,
    ReasoningDone, PartDone, ArgumentsDelta, ArgumentsDone, ItemDone, ResponseCompleted, ResponseIncomplete,
    ResponseFailed,
)  # fmt: skip
ResponseEvent = (
    ResponseCreated | ResponseInProgress | ItemAdded | PartAdded | OutputTextDelta | OutputTextDone | ReasoningDelta
    | ReasoningDone | PartDone | ArgumentsDelta | ArgumentsDone | ItemDone | ResponseCompleted | ResponseIncomplete
    | ResponseFailed
)  # fmt: skip


def failure_of(error: ApiError) -> ResponseFailure:
    """The wire form of an error that came when nothing but the response could tell of it."""
    code = "rate_limit_exceeded" if error.status == 429 else "server_error" if error.status >= 500 else "invalid_prompt"
    return ResponseFailure(code, error.message)


_ANY = msgspec.json.Decoder(dict[str, Any])


def restated(encoded: bytes, status: ResponseStatus, failure: ResponseFailure | None = None) -> bytes:
    """The body of a response that ended otherwise than it was thought to."""
    return msgspec.json.encode({**_ANY.decode(encoded), "status": status, "error": failure})


def response_usage(usage: Usage) -> ResponseUsage:
    """The wire form of `usage`."""
    return ResponseUsage(
        usage.prompt_tokens,
        InputDetails(usage.cached_tokens),
        usage.completion_tokens,
        OutputDetails(usage.reasoning_tokens),
        usage.prompt_tokens + usage.completion_tokens,
    )
