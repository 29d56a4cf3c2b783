"""Answers, tokens and vectors in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.gateway.wire.anthropic.errors import AnthropicError
from headgate.gateway.wire.anthropic.reply import MESSAGE_EVENTS, AssistantReply, TokensCount
from headgate.gateway.wire.anthropic.request import MESSAGES_NEUTRAL, CountTokensRequest, MessagesRequest
from headgate.gateway.wire.chat import ChatCompletionRequest
from headgate.gateway.wire.chat_reply import ChatCompletion, ChatCompletionChunk
from headgate.gateway.wire.completions import Completion, CompletionRequest
from headgate.gateway.wire.embeddings import EmbeddingList, EmbeddingRequest
from headgate.gateway.wire.openapi.parts import call, error, get, json_of, operation_id, parameter, ref
from headgate.gateway.wire.responses.body import RESPONSE_EVENTS, DeletedResponse, ResponseBody
from headgate.gateway.wire.responses.request import RESPONSES_NEUTRAL, ResponsesRequest
from headgate.gateway.wire.responses.stored import DEFAULT_PAGE, MAX_PAGE, ResponseItemList
from headgate.gateway.wire.tokenize import (
    TOKENIZE_NEUTRAL,
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
)
from headgate.gateway.wire.unimplemented import CHAT_NEUTRAL, COMPLETION_NEUTRAL, Neutral

GENERATION_TYPES: tuple[type, ...] = (
    ChatCompletionRequest, ChatCompletion, ChatCompletionChunk, CompletionRequest, Completion,
    MessagesRequest, AssistantReply, *MESSAGE_EVENTS, CountTokensRequest, TokensCount, AnthropicError,
    ResponsesRequest, ResponseBody, *RESPONSE_EVENTS, DeletedResponse, ResponseItemList,
    EmbeddingRequest, EmbeddingList,
    TokenizeRequest, Tokenized, DetokenizeRequest, Detokenized,
)  # fmt: skip

_NEUTRAL: Mapping[type, Neutral] = {
    ChatCompletionRequest: CHAT_NEUTRAL,
    CompletionRequest: COMPLETION_NEUTRAL,
    MessagesRequest: MESSAGES_NEUTRAL,
    CountTokensRequest: MESSAGES_NEUTRAL,
    ResponsesRequest: RESPONSES_NEUTRAL,
    TokenizeRequest: TOKENIZE_NEUTRAL,
}

_REPLY_HEADERS = {
    "x-request-id": "The request's id, as given or made here; in the log under `id`.",
    "x-headgate-cache": "exact, semantic, near, miss or bypass.",
    "x-headgate-similarity": "Cosine similarity, where the answer cache compared.",
    "x-headgate-cache-key": "Key of the stored answer, to invalidate it by; absent where none is or will be stored.",
    "x-headgate-bound": "Upper bound on the share of wrong answers among those served like this one, if certified.",
    "age": "Whole seconds since the answer was stored; stored answers only.",
    "x-headgate-model": "Id of the model that answered.",
    "x-headgate-route": "Why it was chosen.",
    "x-headgate-queue-ms": "Milliseconds until the first step; replies that are not streamed.",
    "x-headgate-overhead-ms": "Milliseconds of the gateway before generation began.",
    "x-headgate-cost-usd": "What the request cost.",
    "x-headgate-dropped": "Parameters that were left out, for teams that have it so.",
}

_REQUEST_HEADERS = {
    "cache-control": "no-cache, no-store, only-if-cached and max-age=SECONDS.",
    "x-headgate-max-error": "Largest accepted share of wrong answers among those to similar questions, from 0 to 1.",
    "x-headgate-cache-tags": "Names, with commas between them, by which the stored answer can be invalidated.",
    "x-headgate-timeout-ms": "Milliseconds within which the answer has to begin.",
    "x-headgate-session": "Names the conversation, so that its turns stay with one model where that is good enough.",
}

_ANTHROPIC_HEADERS = {
    "anthropic-version": "Accepted; there is one version here.",
    "anthropic-beta": "Accepted; what a beta adds to the body is taken or refused by its name.",
    "x-api-key": "The key, unless it is in Authorization.",
}


_RESPONSE_ID = parameter("response_id", {"type": "string"}, place="path")
_INCLUDE = parameter("include", {"type": "array", "items": {"enum": ["reasoning.encrypted_content"]}})
_READ_RESPONSE = [
    _INCLUDE,
    parameter("stream", {"type": "boolean"}, "The events of one made with `background` and `stream`."),
    parameter("starting_after", {"type": "integer", "minimum": 0, "maximum": 999_999_999}, "Only with `stream`."),
    parameter("include_obfuscation", {"type": "boolean"}, "Accepted; no padding is sent."),
]
_ITEM_PAGE = [
    _INCLUDE,
    parameter("after", {"type": "string"}, "Id of the last one of the page before."),
    parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE}),
    parameter("order", {"enum": ["asc", "desc"], "default": "desc"}, "As they came, or the latest first."),
]


def restrict(components: Mapping[str, Any]) -> None:
    """Say of parameters that are not implemented at which values they are accepted."""
    for kind, neutral in _NEUTRAL.items():
        properties = components[kind.__name__]["properties"]
        for name in neutral.keys() & properties.keys():
            properties[name] = {
                "enum": list(neutral[name]),
                "description": "Not supported: accepted only at values that change nothing.",
            }


def generation_paths() -> dict[str, Any]:
    """Paths by URL."""
    chat = _generation("Answer a conversation", ChatCompletionRequest, ChatCompletion, ChatCompletionChunk)
    completion = _generation("Continue a text", CompletionRequest, Completion, Completion)
    message = _generation("Answer a conversation", MessagesRequest, AssistantReply, *MESSAGE_EVENTS)
    count = call("Count a conversation's tokens", CountTokensRequest, TokensCount)
    response = _generation("Answer", ResponsesRequest, ResponseBody, *RESPONSE_EVENTS)
    return {
        "/v1/chat/completions": {"post": chat},
        "/v1/completions": {"post": completion},
        "/v1/messages": {"post": _anthropic(message)},
        "/v1/messages/count_tokens": {"post": _anthropic(count)},
        "/v1/responses": {"post": response},
        "/v1/responses/{response_id}": {
            "parameters": [_RESPONSE_ID],
            "get": _stored_response(),
            "delete": call("Forget a response", None, DeletedResponse, "deleteResponse"),
        },
        "/v1/responses/{response_id}/input_items": {
            "parameters": [_RESPONSE_ID],
            "get": get("The conversation that a response answered", ResponseItemList, parameters=_ITEM_PAGE),
        },
        "/v1/responses/{response_id}/cancel": {
            "parameters": [_RESPONSE_ID],
            "post": call("Make a background response no further", None, ResponseBody, "cancelResponse"),
        },
        "/v1/embeddings": {"post": _embeddings()},
        "/tokenize": {"post": call("The tokens of a text or a conversation", TokenizeRequest, Tokenized)},
        "/detokenize": {"post": call("The text of tokens", DetokenizeRequest, Detokenized)},
    }


def _embeddings() -> dict[str, Any]:
    described = call("The vectors of texts", EmbeddingRequest, EmbeddingList)
    described["description"] = (
        "Described is what the model of this process takes. For an upstream's model the body goes on as it is, but for "
        "`model` and `user`, and its answer comes as it is."
    )
    return described


def _stored_response() -> dict[str, Any]:
    """Read as it stands, or as events."""
    described = get("A response that was stored", ResponseBody, parameters=_READ_RESPONSE)
    content = described["responses"]["200"]["content"]
    content["text/event-stream"] = {"schema": _event(RESPONSE_EVENTS)}
    return described


def _generation(summary: str, request: type, reply: type, *events: type) -> dict[str, Any]:
    content = {**json_of(reply), "text/event-stream": {"schema": _event(events)}}
    return {
        "summary": summary,
        "operationId": operation_id(request),
        "parameters": _headers_in(_REQUEST_HEADERS),
        "requestBody": {"required": True, "content": json_of(request)},
        "responses": {
            "200": {"description": "The answer, or its events", "headers": _headers_out(), "content": content},
            "default": error(),
        },
    }


def _anthropic(operation: dict[str, Any]) -> dict[str, Any]:
    """With Anthropic's headers and shape of errors."""
    failed = {"description": "What went wrong", "content": json_of(AnthropicError)}
    parameters = [*operation.get("parameters", []), *_headers_in(_ANTHROPIC_HEADERS)]
    return {**operation, "parameters": parameters, "responses": {**operation["responses"], "default": failed}}


def _event(kinds: Sequence[type]) -> dict[str, Any]:
    """One server-sent event: its data is JSON or, at the end of the streams with one kind of it, `[DONE]`."""
    one = len(kinds) == 1
    content = ref(kinds[0]) if one else {"oneOf": [ref(kind) for kind in kinds]}
    data: dict[str, Any] = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    if one:
        data = {"anyOf": [{"const": "[DONE]"}, data]}
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


def _headers_in(described: Mapping[str, str]) -> list[dict[str, Any]]:
    return [parameter(name, {"type": "string"}, text, place="header") for name, text in described.items()]


def _headers_out() -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in sorted(_REPLY_HEADERS.items())}
