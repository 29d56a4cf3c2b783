"""OpenAI's `POST /v1/responses`: the request on the wire and its way into the road's own value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from headgate.gateway.request import (
    CacheControl,
    ChatRequest,
    Message,
    ResponseFormat,
    Sampling,
    ServiceTier,
    Tool,
    ToolCall,
    ToolUse,
)
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import invalid, unsupported
from headgate.gateway.wire.neutral import Neutral, refuse_unsupported
from headgate.gateway.wire.response_format import KINDS, by_schema
from headgate.gateway.wire.sampling import StreamOptions, check_stream_options
from headgate.gateway.wire.tools import MAX_TOOLS, check_named, check_tools

_MODEL = Meta(min_length=1, description="auto, small, large, or a name from GET /v1/models; none: the default.")
ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning")
PART_TYPES = ("input_text", "output_text", "refusal", "reasoning_text")
ROLES = ("system", "developer", "user", "assistant")
LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")
"""What `include` may ask for; there never is encrypted reasoning here."""

RESPONSES_NEUTRAL: Neutral = {
    "background": (None, False),
    "context_management": (None, []),
    "conversation": (None,),
    "max_tool_calls": (None,),
    "moderation": (None,),
    "prompt": (None,),
    "prompt_cache_options": (None, {"mode": "implicit"}),
    "prompt_cache_retention": (None, "in_memory"),
    "truncation": (None, "disabled"),
}

Earlier = Callable[[str], tuple[Message, ...]]
"""The conversation up to and with a stored response; ApiError where there is none."""


class ResponsePart(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One piece of an item's content. Only text is understood."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(PART_TYPES)})]
    text: str | None = None
    refusal: str | None = None
    annotations: Annotated[Any, Meta(description="Accepted as returned; not read.")] = None
    logprobs: Annotated[Any, Meta(description="Accepted as returned; not read.")] = None
    # Named to be refused by their type and not as unknown parameters.
    detail: Any = None
    file_id: Any = None
    file_data: Any = None
    file_url: Any = None
    filename: Any = None
    image_url: Any = None
    input_audio: Any = None
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


class ResponseTool(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ["function"]})]
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseNamedTool(Struct, forbid_unknown_fields=True):
    """The one function that must be called."""

    name: str
    type: Literal["function"] = "function"


class TextFormat(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The form of the text: `json_object` is any JSON object, `json_schema` JSON that follows a schema."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(KINDS)})]
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How the text is written."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How much to think before the answer; only for models that can be told. There are no summaries."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto"] | None = None


class ResponsesRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/responses`. Parameters not listed are refused, never dropped."""

    model: Annotated[str, _MODEL] | None = None
    input: str | Annotated[list[ResponseItem], Meta(min_length=1)]
    instructions: str | None = None
    previous_response_id: Annotated[str | None, Meta(description="Go on after a response that is stored.")] = None
    store: Annotated[bool | None, Meta(description="Keep the response for a while; true by default.")] = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: Annotated[list[str] | None, Meta(description=f"{LOGPROBS} gives log probabilities.")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponseNamedTool | None = None
    parallel_tool_calls: bool | None = None
    # Accepted: they do not change the answer.
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    client_metadata: Annotated[dict[str, str] | None, Meta(description="What Codex says of itself; not read.")] = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    service_tier: ServiceTier | None = None
    # Known to OpenAI's clients; served only at values that change nothing (see neutral.py).
    background: Any = UNSET
    context_management: Any = UNSET
    conversation: Any = UNSET
    max_tool_calls: Any = UNSET
    moderation: Any = UNSET
    prompt: Any = UNSET
    prompt_cache_options: Any = UNSET
    prompt_cache_retention: Any = UNSET
    truncation: Any = UNSET


@dataclass(frozen=True, slots=True)
class ToRespond:
    """A request as it was written, and as the road takes it."""

    wire: ResponsesRequest
    request: ChatRequest
    turns: tuple[Message, ...]
    """The conversation without instructions, which hold for one response only."""


_DECODER = msgspec.json.Decoder(ResponsesRequest)


def parse_responses(body: bytes, cache: CacheControl, session: str | None, earlier: Earlier) -> ToRespond:
    """The request in `body`; ApiError 400 where it is malformed or asks for something not implemented.

    `cache` and `session` are what its headers say.
    """
    wire = decode(body, ResponsesRequest, _DECODER)
    refuse_unsupported(wire, RESPONSES_NEUTRAL)
    check_stream_options(wire.stream, wire.stream_options)
    logprobs = _logprobs(wire)
    turns = _turns(wire)
    if wire.previous_response_id is not None:
        turns = (*earlier(wire.previous_response_id), *turns)
    told = (Message("system", wire.instructions),) if wire.instructions else ()
    tools = _tools(wire.tools)
    request = ChatRequest(
        endpoint="chat.completions",
        model=wire.model or "",
        messages=(*told, *turns),
        sampling=Sampling(temperature=wire.temperature, top_p=wire.top_p),
        max_tokens=wire.max_output_tokens,
        logprobs=logprobs,
        stream=bool(wire.stream),
        include_usage=True,
        cache=cache,
        user=wire.safety_identifier if wire.safety_identifier is not None else wire.user,
        session=session if session is not None else wire.prompt_cache_key,
        metadata=tuple((wire.metadata or {}).items()),
        tools=tools,
        tool_use=_tool_use(wire, tools),
        response_format=_format(wire.text),
        reasoning_effort=None if wire.reasoning is None else wire.reasoning.effort,
        service_tier=wire.service_tier or "auto",
    )
    return ToRespond(wire, request, turns)


def _logprobs(wire: ResponsesRequest) -> int | None:
    for at, name in enumerate(wire.include or ()):
        if name not in INCLUDED:
            accepted = ", ".join(f"'{known}'" for known in INCLUDED)
            message = f"'include[{at}]' is '{name}', which is not supported by this server. Supported: {accepted}."
            raise unsupported(f"include[{at}]", message)
    if LOGPROBS in (wire.include or ()):
        return wire.top_logprobs or 0
    if wire.top_logprobs:
        message = f"'top_logprobs' is only allowed when 'include' has '{LOGPROBS}'."
        raise invalid(message, "top_logprobs", "invalid_value")
    return None


def _format(text: TextConfig | None) -> ResponseFormat:
    wanted = None if text is None else text.format
    if wanted is None or wanted.type == "text":
        return ResponseFormat()
    if wanted.type == "json_object":
        return ResponseFormat("json_object", {"type": "object"})
    if wanted.type != "json_schema":
        known = ", ".join(f"'{kind}'" for kind in KINDS)
        raise unsupported("text.format.type", f"'text.format.type' is '{wanted.type}'. Supported: {known}.")
    _given(wanted.name, "text.format.name")
    return by_schema(wanted.schema, "text.format.schema", wanted.name or "answer", strict=bool(wanted.strict))


def _turns(wire: ResponsesRequest) -> tuple[Message, ...]:
    if isinstance(wire.input, str):
        return (Message("user", wire.input),)
    turns: list[Message] = []
    thoughts: str | None = None
    for at, item in enumerate(wire.input):
        _add(turns, item, f"input[{at}]", thoughts)
        thoughts = item.thoughts if item.type == "reasoning" else None
    return tuple(turns)


def _add(turns: list[Message], item: ResponseItem, path: str, thoughts: str | None) -> None:
    """An item as a turn of chat templates, where calls of functions belong to the assistant's message."""
    if item.type == "message":
        role = _given(item.role, f"{path}.role")
        if role not in ROLES:
            supported = ", ".join(f"'{known}'" for known in ROLES)
            message = f"Invalid value for '{path}.role': '{role}'. Supported values are: {supported}."
            raise invalid(message, f"{path}.role", "invalid_value")
        text = _text(item.content, f"{path}.content")
        thought = thoughts if role == "assistant" else None
        turns.append(Message("system" if role == "developer" else role, text, reasoning=thought))
    elif item.type == "function_call":
        call = ToolCall(
            _given(item.call_id, f"{path}.call_id"),
            _given(item.name, f"{path}.name"),
            _given(item.arguments, f"{path}.arguments"),
        )
        if turns and turns[-1].role == "assistant":
            last = turns.pop()
            thought = last.reasoning or thoughts
            turns.append(Message("assistant", last.content, tool_calls=(*last.tool_calls, call), reasoning=thought))
        else:
            turns.append(Message("assistant", None, tool_calls=(call,), reasoning=thoughts))
    elif item.type == "function_call_output":
        called = _given(item.call_id, f"{path}.call_id")
        turns.append(Message("tool", _text(item.output, f"{path}.output"), tool_call_id=called))
    elif item.type != "reasoning":
        supported = ", ".join(f"'{known}'" for known in ITEM_TYPES)
        message = f"'{path}': items of type '{item.type}' are not supported by this server. Supported: {supported}."
        raise unsupported(f"{path}.type", message)
    # What the model thought goes with the item that follows; its chat template says whether it is shown that again.


def _text(content: str | Sequence[ResponsePart] | None, path: str) -> str:
    if isinstance(content, str):
        return content
    if not content:
        raise invalid(f"Invalid '{path}': expected a text or at least one part.", path, "empty_array")
    texts = []
    for at, part in enumerate(content):
        place = f"{path}[{at}]"
        if part.type not in PART_TYPES[:3]:
            supported = ", ".join(f"'{known}'" for known in PART_TYPES[:3])
            message = (
                f"'{place}': parts of type '{part.type}' are not supported by this server. Supported: {supported}."
            )
            raise unsupported(f"{place}.type", message)
        name = "refusal" if part.type == "refusal" else "text"
        texts.append(_given(part.refusal if name == "refusal" else part.text, f"{place}.{name}"))
    return "\n".join(texts)


def _given(value: str | None, path: str) -> str:
    if value is None:
        raise invalid(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
    return value


def _tools(wire: Sequence[ResponseTool] | None) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for at, tool in enumerate(wire or ()):
        path = f"tools[{at}]"
        if tool.type != "function":
            message = f"'{path}': tools of type '{tool.type}' are not supported by this server. Supported: 'function'."
            raise unsupported(f"{path}.type", message)
        name = _given(tool.name, f"{path}.name")
        parameters: Mapping[str, Any] = tool.parameters or {}
        tools.append(Tool(name, tool.description, parameters, bool(tool.strict)))
    return check_tools(tools, "parameters")


def _tool_use(wire: ResponsesRequest, tools: Sequence[Tool]) -> ToolUse:
    choice = wire.tool_choice
    if not tools and choice not in (None, "none", "auto"):
        raise invalid("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice", "invalid_value")
    if isinstance(choice, ResponseNamedTool):
        return check_named(choice.name, "tool_choice.name", tools)
    return ToolUse(choice or "auto", parallel=wire.parallel_tool_calls is not False)
