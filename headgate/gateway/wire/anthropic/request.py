"""Anthropic's `POST /v1/messages`: the request on the wire and its way into the road's own value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from headgate.gateway.road.attachments import Piece, written
from headgate.gateway.road.request import (
    ADAPTIVE,
    CacheControl,
    ChatRequest,
    Message,
    ResponseFormat,
    Sampling,
    Tool,
    ToolCall,
    ToolUse,
)
from headgate.gateway.wire.anthropic.blocks import TOLD, ContentBlock, pieces_of, told, typed
from headgate.gateway.wire.decode import decode
from headgate.gateway.wire.errors import given, invalid, unsupported
from headgate.gateway.wire.labels import EndUser
from headgate.gateway.wire.response_format import by_schema
from headgate.gateway.wire.sampling import ModelName
from headgate.gateway.wire.tools import MAX_TOOLS, check_named, check_tools, check_use
from headgate.gateway.wire.unimplemented import Neutral, refuse_unsupported

MESSAGES_NEUTRAL: Neutral = {
    "container": (None,),
    "context_management": (None, {"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    "diagnostics": (None,),
    "inference_geo": (None,),
    "mcp_servers": (None, []),
    "service_tier": (None, "auto", "standard_only"),
    "speed": (None, "standard"),
    "thread": (None,),
}


class AnthropicMessage(Struct, forbid_unknown_fields=True):
    """One turn of the conversation; `system`: what the application adds in its course, beside the first `system`."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]


class AnthropicTool(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: Annotated[str | None, Meta(extra_json_schema={"enum": ["custom", None]})] = None
    strict: bool | None = None
    cache_control: Any = None
    eager_input_streaming: bool | None = None
    input_examples: Annotated[Any, Meta(description="Not supported: leave it out.")] = None
    defer_loading: Annotated[Any, Meta(description="Not supported: leave it out.")] = None
    allowed_callers: Annotated[Any, Meta(description='Only ["direct"].')] = None


class AnthropicToolChoice(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Whether tools may, must or must not be called; `name` with `tool` only."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessageMetadata(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Who asks."""

    user_id: EndUser | None = None


class OutputFormat(Struct, forbid_unknown_fields=True):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The form of the answer."""

    format: OutputFormat | None = None
    effort: Annotated[
        Literal["low", "medium", "high", "xhigh", "max"] | None,
        Meta(description="How much to think; only for models that can be told."),
    ] = None


class Thinking(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Whether to think before the answer. A model that never does answers without."""

    type: Literal["disabled", "adaptive", "enabled"]
    budget_tokens: Annotated[int | None, Meta(description="Most tokens of thinking, with `enabled` only.")] = None


class ConversationFields(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What the prompt is made of."""

    model: ModelName | None = None
    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    system: str | list[ContentBlock] | None = None
    tools: Annotated[list[AnthropicTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: AnthropicToolChoice | None = None
    cache_control: Annotated[Any, Meta(description="Accepted: prompts are always cached.")] = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    # Known to Anthropic's clients; served only at values that change nothing.
    context_management: Any = UNSET
    mcp_servers: Any = UNSET
    speed: Any = UNSET


class MessagesRequest(ConversationFields, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/messages`. Parameters not listed are refused, never dropped."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=16)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    metadata: MessageMetadata | None = None
    container: Any = UNSET
    diagnostics: Any = UNSET
    inference_geo: Any = UNSET
    service_tier: Any = UNSET
    thread: Any = UNSET


class CountTokensRequest(ConversationFields, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of `POST /v1/messages/count_tokens`."""


def parse_messages(body: bytes, cache: CacheControl, session: str | None = None) -> ChatRequest:
    """The request in `body`; ApiError 400 where it is malformed or asks for something not implemented.

    `cache` and `session` are what its headers say.
    """
    wire = decode(body, MessagesRequest)
    _refuse(wire)
    tools = _tools(wire.tools)
    return ChatRequest(
        endpoint="chat.completions",
        model=wire.model or "",
        messages=_conversation(wire),
        sampling=Sampling(temperature=wire.temperature, top_p=wire.top_p, top_k=wire.top_k),
        max_tokens=wire.max_tokens,
        stop=tuple(wire.stop_sequences or ()),
        stream=bool(wire.stream),
        include_usage=True,
        cache=cache,
        user=wire.metadata.user_id if wire.metadata is not None else None,
        session=session,
        tools=tools,
        tool_use=_tool_use(wire.tool_choice, tools),
        response_format=_format(wire.output_config),
        reasoning_effort=_effort(wire),
        thinking_tokens=None if wire.thinking is None else wire.thinking.budget_tokens,
    )


def parse_count(body: bytes) -> ChatRequest:
    """The conversation in `body` whose tokens are to be counted; ApiError 400 where it is malformed."""
    wire = decode(body, CountTokensRequest)
    _refuse(wire)
    tools = _tools(wire.tools)
    _format(wire.output_config)
    messages, use, effort = _conversation(wire), _tool_use(wire.tool_choice, tools), _effort(wire)
    return ChatRequest(
        "chat.completions", wire.model or "", messages, tools=tools, tool_use=use, reasoning_effort=effort
    )


def _format(output: OutputConfig | None) -> ResponseFormat:
    wanted = None if output is None else output.format
    return ResponseFormat() if wanted is None else by_schema(wanted.schema, "output_config.format.schema")


def _effort(wire: ConversationFields) -> str | None:
    """How much to think; ApiError 400 where that is contradictory."""
    effort = None if wire.output_config is None else wire.output_config.effort
    if wire.thinking is None:
        return effort
    name, budget = "thinking.budget_tokens", wire.thinking.budget_tokens
    if budget is not None and wire.thinking.type != "enabled":
        raise invalid(f"'{name}' is only allowed where the type of 'thinking' is 'enabled'.", name, "invalid_value")
    if budget is not None and budget < 1:
        raise invalid(f"Invalid '{name}': {budget}. Expected at least 1.", name, "integer_below_min_value")
    if wire.thinking.type == "disabled":
        if effort is not None:
            message = "'output_config.effort' is only allowed where 'thinking' is not disabled."
            raise invalid(message, "output_config.effort", "invalid_value")
        return "none"
    return effort or ADAPTIVE


def _refuse(wire: ConversationFields) -> None:
    """ApiError 400 for parameters at values that would change the answer and are not implemented."""
    there = {field.name for field in msgspec.structs.fields(wire)}
    refuse_unsupported(wire, {name: values for name, values in MESSAGES_NEUTRAL.items() if name in there})


def _conversation(wire: ConversationFields) -> tuple[Message, ...]:
    if wire.messages[-1].role == "assistant":
        message = (
            "'messages' must end with a message of the user: answers that begin with given text are not supported."
        )
        raise unsupported(f"messages[{len(wire.messages) - 1}].role", message)
    turns = [turn for at, m in enumerate(wire.messages) for turn in _turns(m, f"messages[{at}]")]
    if wire.system is None:
        return tuple(turns)
    system = wire.system if isinstance(wire.system, str) else _text(wire.system, "system")
    return (Message("system", system), *turns) if system else tuple(turns)


def _turns(wire: AnthropicMessage, path: str) -> Iterator[Message]:
    """One message as turns of chat templates, which give each tool result a turn of its own."""
    if isinstance(wire.content, str):
        yield Message(wire.role, wire.content)
        return
    if not wire.content:
        path = f"{path}.content"
        raise invalid(f"Invalid '{path}': empty array. Expected at least 1 element.", path, "empty_array")
    if wire.role == "system":
        yield Message("system", _text(wire.content, f"{path}.content"))
        return
    said: list[Piece] = []
    accepted = TOLD if wire.role == "user" else TOLD[:1]
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for at, block in enumerate(wire.content):
        place = f"{path}.content[{at}]"
        if block.type in accepted:
            said += pieces_of(block, place)
        elif block.type == "tool_use" and wire.role == "assistant":
            arguments = msgspec.json.encode(block.input or {}).decode()
            calls.append(ToolCall(given(block.id, f"{place}.id"), given(block.name, f"{place}.name"), arguments))
        elif block.type == "tool_result" and wire.role == "user":
            if said:
                yield _user(said)
                said = []
            called = given(block.tool_use_id, f"{place}.tool_use_id")
            content, parts = _result(block, f"{place}.content")
            yield Message("tool", content, tool_call_id=called, parts=parts)
        elif block.type == "thinking" and wire.role == "assistant":
            thoughts.append(given(block.thinking, f"{place}.thinking"))
        elif block.type != "redacted_thinking" or wire.role != "assistant":
            names = (*accepted, "tool_use" if wire.role == "assistant" else "tool_result")
            supported = ", ".join(f"'{name}'" for name in names)
            message = f"'{place}': blocks of type '{block.type}' are not supported here. Supported: {supported}."
            raise unsupported(f"{place}.type", message)
    if wire.role == "assistant":
        text = written(said)[0] if said or not calls else None
        # Whether it is shown what it thought is for its chat template to say; redacted thoughts nobody can read here.
        yield Message("assistant", text, tool_calls=tuple(calls), reasoning="\n".join(thoughts) or None)
    elif said:
        yield _user(said)


def _user(said: Sequence[Piece]) -> Message:
    content, parts = written(said)
    return Message("user", content, parts=parts)


def _result(block: ContentBlock, path: str) -> tuple[str, tuple[Piece, ...]]:
    """A tool's result, and its pieces; templates know no other sign of a failure than what it says."""
    if block.content is None or isinstance(block.content, str):
        pieces: list[Piece] = [block.content or ""]
    else:
        pieces = told(typed(block.content, list[ContentBlock], path), path)
    if block.is_error:
        # Joined by a space to the text that it has, if it begins with one.
        first = pieces.pop(0) if pieces and isinstance(pieces[0], str) else ""
        pieces.insert(0, f"Error: {first}")
    return written(pieces)


def _text(blocks: Sequence[ContentBlock], path: str) -> str:
    return written(told(blocks, path, TOLD[:1]))[0]


def _tools(wire: Sequence[AnthropicTool] | None) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for at, tool in enumerate(wire or ()):
        path = f"tools[{at}]"
        if tool.type not in (None, "custom"):
            message = f"'{path}': tools of type '{tool.type}' are not supported by this server. Supported: 'custom'."
            raise unsupported(f"{path}.type", message)
        for name, accepted in (("input_examples", None), ("defer_loading", False), ("allowed_callers", ["direct"])):
            if getattr(tool, name) not in (None, accepted):
                raise unsupported(f"{path}.{name}", f"'{path}.{name}' is not supported by this server. Leave it out.")
        schema = given(tool.input_schema, f"{path}.input_schema")
        tools.append(Tool(tool.name, tool.description, schema, bool(tool.strict)))
    return check_tools(tools, "name", "input_schema")


def _tool_use(wire: AnthropicToolChoice | None, tools: Sequence[Tool]) -> ToolUse:
    if wire is None:
        return ToolUse()
    if wire.type == "tool":
        return check_named(given(wire.name, "tool_choice.name"), "tool_choice.name", tools)
    if wire.name is not None:
        raise invalid("'tool_choice.name' is only allowed with type 'tool'.", "tool_choice.name", "invalid_value")
    return check_use(
        "required" if wire.type == "any" else wire.type, tools, parallel=not wire.disable_parallel_tool_use
    )
