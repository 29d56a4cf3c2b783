"""The OpenAPI 3.1 document, generated from the types that parse and write the wire: it cannot say anything else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from headgate import __version__
from headgate.gateway.wire.admin import AuditReport, CacheReport, Invalidated, Invalidation, LabelLine, Lift, Lifted
from headgate.gateway.wire.chat import ChatCompletionRequest
from headgate.gateway.wire.chat_reply import ChatCompletion, ChatCompletionChunk
from headgate.gateway.wire.completions import Completion, CompletionRequest
from headgate.gateway.wire.embeddings import EmbeddingList, EmbeddingRequest
from headgate.gateway.wire.errors import ErrorBody
from headgate.gateway.wire.health import Health, Readiness
from headgate.gateway.wire.models import ModelBody, ModelList
from headgate.gateway.wire.neutral import CHAT_NEUTRAL, COMPLETION_NEUTRAL, Neutral
from headgate.gateway.wire.openapi_parts import call, error, get, json_of, lines, operation_id, ref
from headgate.gateway.wire.openapi_storage import STORAGE_TYPES, storage_paths
from headgate.gateway.wire.route import RouteReport
from headgate.gateway.wire.tokenize import (
    TOKENIZE_NEUTRAL,
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
)

TYPES = (
    ChatCompletionRequest, ChatCompletion, ChatCompletionChunk, CompletionRequest, Completion,
    ModelList, ModelBody, ErrorBody, Health, Readiness,
    Invalidation, Invalidated, CacheReport, AuditReport, LabelLine, Lift, Lifted,
    RouteReport, TokenizeRequest, Tokenized, DetokenizeRequest, Detokenized,
    EmbeddingRequest, EmbeddingList, *STORAGE_TYPES,
)  # fmt: skip

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
}


_REQUEST_HEADERS = {
    "cache-control": "no-cache, no-store, only-if-cached and max-age=SECONDS.",
    "x-headgate-max-error": "Largest accepted share of wrong answers among those to similar questions, from 0 to 1.",
    "x-headgate-cache-tags": "Names, with commas between them, by which the stored answer can be invalidated.",
    "x-headgate-session": "Names the conversation, so that its turns stay with one model where that is good enough.",
}


@cache
def document() -> bytes:
    """The JSON text."""
    _, components = msgspec.json.schema_components(TYPES, ref_template="#/components/schemas/{name}")
    _restrict(components[ChatCompletionRequest.__name__], CHAT_NEUTRAL)
    _restrict(components[CompletionRequest.__name__], COMPLETION_NEUTRAL)
    _restrict(components[TokenizeRequest.__name__], TOKENIZE_NEUTRAL)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Headgate", "version": __version__, "license": {"name": "Apache-2.0"}},
            "paths": _paths(),
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"key": []}],
        }
    )


def _restrict(schema: dict[str, Any], neutral: Neutral) -> None:
    """Say of parameters that are not implemented at which values they are accepted."""
    for name, accepted in neutral.items():
        schema["properties"][name] = {
            "enum": list(accepted),
            "description": "Not supported: accepted only at values that change nothing.",
        }


def _paths() -> dict[str, Any]:
    chat = _generation("Answer a conversation", ChatCompletionRequest, ChatCompletion, ChatCompletionChunk)
    completion = _generation("Continue a text", CompletionRequest, Completion, Completion)
    model_id = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    text = {"200": {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    anything = {"200": {"description": "JSON", "content": {"application/json": {"schema": {"type": "object"}}}}}
    return {
        "/v1/chat/completions": {"post": chat},
        "/v1/completions": {"post": completion},
        **storage_paths(),
        "/v1/models": {"get": get("List the models", ModelList)},
        "/v1/models/{model}": {"get": {**get("One model", ModelBody), "parameters": [model_id]}},
        "/v1/embeddings": {"post": call("The vectors of texts", EmbeddingRequest, EmbeddingList)},
        "/tokenize": {"post": call("The tokens of a text or a conversation", TokenizeRequest, Tokenized)},
        "/detokenize": {"post": call("The text of tokens", DetokenizeRequest, Detokenized)},
        "/admin/cache": {"get": get("What the answer cache holds and did", CacheReport)},
        "/admin/cache/invalidate": {"post": call("Forget stored answers", Invalidation, Invalidated)},
        "/admin/cache/audits": {"get": get("What audits found of the answers served by meaning", AuditReport)},
        "/admin/cache/labels": {"get": lines("The label log, a JSON object a line", LabelLine)},
        "/admin/cache/lift": {"post": call("Serve again what audits hold back", Lift, Lifted)},
        "/admin/route": {
            "post": call("Say where a conversation would go", ChatCompletionRequest, RouteReport, "explainRoute")
        },
        "/health": {"get": get("Is the process alive", Health)},
        "/ready": {"get": get("Are requests answered", Readiness, unready=Readiness)},
        "/metrics": {"get": {"summary": "Prometheus metrics", "operationId": "metrics", "responses": text}},
        "/openapi.json": {"get": {"summary": "This document", "operationId": "openapi", "responses": anything}},
    }


def _generation(summary: str, request: type, reply: type, event: type) -> dict[str, Any]:
    content = {**json_of(reply), "text/event-stream": {"schema": ref(event)}}
    return {
        "summary": summary,
        "operationId": operation_id(request),
        "parameters": [
            {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
            for name, text in _REQUEST_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": json_of(request)},
        "responses": {
            "200": {"description": "The answer, or its events", "headers": _headers(), "content": content},
            "default": error(),
        },
    }


def _headers() -> Mapping[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in sorted(_REPLY_HEADERS.items())}
