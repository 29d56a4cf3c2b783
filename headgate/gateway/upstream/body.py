"""A request as an upstream is asked it."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.gateway.road.request import ADAPTIVE, ChatRequest, Sampling
from headgate.gateway.upstream.messages import messages_of
from headgate.gateway.upstream.sections import UpstreamSection
from headgate.gateway.wire.errors import refuse_variants


def path_of(request: ChatRequest) -> str:
    """Where it is sent, below the base URL."""
    return "/completions" if request.endpoint == "completions" else "/chat/completions"


def body_of(request: ChatRequest, section: UpstreamSection, *, max_tokens: int | None, logprobs: int | None) -> bytes:
    """The JSON of a request. ApiError 400 for an unknown field that has the name of one of these in other letters.

    It is always a stream with an account at its end, whatever the client wants: so silence and cuts are seen at once.
    End users, labels and conversations are not told.

    Args:
        request: what was asked.
        section: of the upstream.
        max_tokens: longest answer; None: as long as the upstream makes it.
        logprobs: how many of the likeliest tokens are wanted beside each; None: no log probabilities.
    """
    fields: dict[str, Any] = {"model": section.model}
    if request.endpoint == "completions":
        fields["prompt"] = list(request.prompt) if isinstance(request.prompt, tuple) else request.prompt
        if request.echo:
            fields["echo"] = True
        if logprobs is not None:
            fields["logprobs"] = logprobs
    else:
        fields["messages"] = messages_of(request.messages)
        if logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": logprobs} if logprobs else {"logprobs": True}
    if max_tokens is not None:
        fields["max_tokens" if request.endpoint == "completions" else section.max_tokens_field] = max_tokens
    if request.n > 1:
        fields["n"] = request.n
    if request.stop:
        fields["stop"] = list(request.stop)
    if request.tools:
        fields |= _tools(request)
    if request.response_format.type != "text":
        fields["response_format"] = _format(request)
    # Who may think as much as he will is told nothing: a server whose models never think refuses to be told.
    if request.reasoning_effort not in (None, ADAPTIVE):
        fields["reasoning_effort"] = request.reasoning_effort
    if request.draft is not None and request.draft.source == "prediction":
        fields["prediction"] = {"type": "content", "content": request.draft.text}
    fields |= _sampling(request.sampling)
    fields |= {"stream": True, "stream_options": {"include_usage": True}}
    refuse_variants([name for name, _ in request.unknown], fields)
    for name, value in request.unknown:
        fields[name] = msgspec.Raw(value.encode())
    return msgspec.json.encode(fields)


def size_of(request: ChatRequest) -> int:
    """Characters that its prompt is made of, about: messages, calls and tools; without what there is beside text."""
    if request.prompt is not None:
        # A token id is one token whatever its text is.
        return len(request.prompt) * (1 if isinstance(request.prompt, str) else 4)
    size = sum([len(m.content or "") + _MESSAGE_CHARS for m in request.messages])
    for message in request.messages:
        for call in message.tool_calls:
            size += len(call.name) + len(call.arguments)
    if request.tools:
        size += len(msgspec.json.encode([tool.for_template() for tool in request.tools]))
    return size


def attached_to(request: ChatRequest) -> int:
    """Tokens that what it has beside text is worth, about."""
    return sum([attachment.tokens for attachment in request.attachments])


_MESSAGE_CHARS = 16
"""What a message's role and marks are worth."""
_UNSET = Sampling()


def _sampling(sampling: Sampling) -> dict[str, Any]:
    """What the client set: servers differ in what they know, and say so themselves."""
    if sampling == _UNSET:
        return {}
    fields: dict[str, Any] = {
        name: value
        for name in Sampling.__dataclass_fields__
        if name not in ("logit_bias", "stop_token_ids") and (value := getattr(sampling, name)) != getattr(_UNSET, name)
    }
    if sampling.logit_bias:
        fields["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    if sampling.stop_token_ids:
        fields["stop_token_ids"] = list(sampling.stop_token_ids)
    return fields


def _tools(request: ChatRequest) -> dict[str, Any]:
    tools = []
    for tool in request.tools:
        wire = tool.for_template()
        if tool.strict:
            wire["function"]["strict"] = True
        tools.append(wire)
    use = request.tool_use
    fields: dict[str, Any] = {"tools": tools}
    if use.name is not None:
        fields["tool_choice"] = {"type": "function", "function": {"name": use.name}}
    elif use.mode != "auto":
        fields["tool_choice"] = use.mode
    if not use.parallel:
        fields["parallel_tool_calls"] = False
    return fields


def _format(request: ChatRequest) -> dict[str, Any]:
    wanted = request.response_format
    if wanted.type == "json_object":
        return {"type": "json_object"}
    schema: dict[str, Any] = {"name": wanted.name, "schema": wanted.schema}
    if wanted.strict:
        schema["strict"] = True
    return {"type": "json_schema", "json_schema": schema}
