"""OpenAI's `POST /v1/responses`: the request on the wire and its way into the road's own value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct

from headgate.gateway.road.request import (
    CacheControl,
    ChatRequest,
    Message,
    ResponseFormat,
    Sampling,
    ServiceTier,
    Tool,
    ToolUse,
)
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import given, invalid, unsupported
from headgate.gateway.wire.labels import EndUser, Metadata
from headgate.gateway.wire.response_format import KINDS, by_schema, without_schema
from headgate.gateway.wire.responses.items import ResponseItem, given_items, identified, turns_of
from headgate.gateway.wire.sampling import ModelName, StreamOptions, check_stream_options
from headgate.gateway.wire.tools import MAX_TOOLS, check_named, check_tools, check_use
from headgate.gateway.wire.unimplemented import Neutral, refuse_unsupported

LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")
"""What `include` may ask for; there never is encrypted reasoning here."""

RESPONSES_NEUTRAL: Neutral = {
    "context_management": (None, []),
    "conversation": (None,),
    "moderation": (None,),
    "prompt": (None,),
    "prompt_cache_options": (None, {"mode": "implicit"}),
    "prompt_cache_retention": (None, "in_memory"),
    "truncation": (None, "disabled"),
}


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

    model: ModelName | None = None
    input: str | Annotated[list[ResponseItem], Meta(min_length=1)]
    instructions: str | None = None
    previous_response_id: Annotated[str | None, Meta(description="Go on after a response that is stored.")] = None
    store: Annotated[bool | None, Meta(description="Keep the response for a while; true by default.")] = None
    background: Annotated[bool | None, Meta(description="Answer while nobody waits; it is asked for by its id.")] = None
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
    max_tool_calls: (
        Annotated[int, Meta(ge=1, description="Most calls of tools that the server runs; it runs none.")] | None
    ) = None
    # Accepted: they do not change the answer.
    metadata: Metadata | None = None
    client_metadata: Annotated[dict[str, str] | None, Meta(description="What Codex says of itself; not read.")] = None
    prompt_cache_key: str | None = None
    safety_identifier: EndUser | None = None
    user: EndUser | None = None
    service_tier: ServiceTier | None = None
    # Known to OpenAI's clients; served only at values that change nothing (see unimplemented.py).
    context_management: Any = UNSET
    conversation: Any = UNSET
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
    items: tuple[ResponseItem, ...]
    """The conversation without instructions, which hold for one response only; each with an id of its own."""


def read_responses(body: bytes) -> ResponsesRequest:
    """The request in `body`; ApiError 400 where it is malformed or asks for something not implemented."""
    wire = decode(body, ResponsesRequest)
    refuse_unsupported(wire, RESPONSES_NEUTRAL)
    check_stream_options(wire.stream, wire.stream_options)
    if wire.background and wire.store is False:
        raise invalid("'background' is not allowed with 'store' at false.", "background", "invalid_value")
    return wire


def to_respond(
    wire: ResponsesRequest, cache: CacheControl, session: str | None, before: Sequence[ResponseItem] = ()
) -> ToRespond:
    """What a request means; ApiError 400 where it asks for something not implemented.

    `cache` and `session` are what its headers say; `before` is the conversation up to and with the response that it
    goes on from.
    """
    logprobs = _logprobs(wire)
    own = given_items(wire.input)
    told = (Message("system", wire.instructions),) if wire.instructions else ()
    tools = _tools(wire.tools)
    request = ChatRequest(
        endpoint="chat.completions",
        model=wire.model or "",
        messages=(*told, *turns_of(before, own)),
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
    return ToRespond(wire, request, identified(before, own))


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
    if wanted is None:
        return ResponseFormat()
    if (plain := without_schema(wanted.type, "text.format.type")) is not None:
        return plain
    given(wanted.name, "text.format.name")
    return by_schema(wanted.schema, "text.format.schema", wanted.name or "answer", strict=bool(wanted.strict))


def _tools(wire: Sequence[ResponseTool] | None) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for at, tool in enumerate(wire or ()):
        path = f"tools[{at}]"
        if tool.type != "function":
            message = f"'{path}': tools of type '{tool.type}' are not supported by this server. Supported: 'function'."
            raise unsupported(f"{path}.type", message)
        name = given(tool.name, f"{path}.name")
        parameters: Mapping[str, Any] = tool.parameters or {}
        tools.append(Tool(name, tool.description, parameters, bool(tool.strict)))
    return check_tools(tools, "name", "parameters")


def _tool_use(wire: ResponsesRequest, tools: Sequence[Tool]) -> ToolUse:
    choice = wire.tool_choice
    if isinstance(choice, ResponseNamedTool):
        return check_named(choice.name, "tool_choice.name", tools)
    return check_use(choice or "auto", tools, parallel=wire.parallel_tool_calls is not False)
