"""The OpenAPI 3.1 document, generated from the types that parse and write the wire: it cannot say anything else."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec

from headgate import __version__
from headgate.gateway.wire.adapter_admin import AdapterChoice, AdapterState, AdapterStates, NewAdapter
from headgate.gateway.wire.cache_admin import (
    AuditReport,
    CacheReport,
    Invalidated,
    Invalidation,
    LabelLine,
    Lift,
    Lifted,
)
from headgate.gateway.wire.chat import ChatCompletionRequest
from headgate.gateway.wire.errors import ErrorBody
from headgate.gateway.wire.feedback import FeedbackBody, FeedbackLine, FeedbackRequest
from headgate.gateway.wire.health import Health, Readiness
from headgate.gateway.wire.key_admin import KeyList, KeySecret, NewKey, Revocation, Revoked, Rotation
from headgate.gateway.wire.live import Live
from headgate.gateway.wire.model_admin import ModelChoice, ModelState, ModelStates
from headgate.gateway.wire.models import ModelBody, ModelList
from headgate.gateway.wire.openapi.generation import GENERATION_TYPES, generation_paths, restrict
from headgate.gateway.wire.openapi.parts import call, get, lines, parameter
from headgate.gateway.wire.openapi.passthrough import PASSED_TYPES, passed_paths, require_model
from headgate.gateway.wire.openapi.storage import STORAGE_TYPES, storage_paths
from headgate.gateway.wire.route_admin import RouteReport
from headgate.gateway.wire.traces import RequestList, RequestOutcome, RequestTrace

TYPES = (
    *GENERATION_TYPES, *PASSED_TYPES, ModelList, ModelBody, ErrorBody, Health, Readiness,
    Invalidation, Invalidated, CacheReport, AuditReport, LabelLine, Lift, Lifted,
    RouteReport, KeyList, NewKey, KeySecret, Rotation, Revocation, Revoked, Live, RequestList, RequestTrace,
    FeedbackRequest, FeedbackBody, FeedbackLine, ModelChoice, ModelState, ModelStates, NewAdapter, AdapterChoice,
    AdapterState, AdapterStates, *STORAGE_TYPES,
)  # fmt: skip

_NUMBER = {"type": "integer", "minimum": 0, "maximum": 999_999_999_999}


@cache
def document() -> bytes:
    """The JSON text."""
    _, components = msgspec.json.schema_components(TYPES, ref_template="#/components/schemas/{name}")
    restrict(components)
    require_model(components)
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


def _paths() -> dict[str, Any]:
    model_id = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    text = {"200": {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    page = {"200": {"description": "A page", "content": {"text/html": {"schema": {"type": "string"}}}}}
    anything = {"200": {"description": "JSON", "content": {"application/json": {"schema": {"type": "object"}}}}}
    return {
        **generation_paths(),
        **passed_paths(),
        **storage_paths(),
        "/v1/models": {"get": get("List the models", ModelList)},
        "/v1/models/{model}": {"get": {**get("One model", ModelBody), "parameters": [model_id]}},
        "/v1/feedback": {"post": call("Say how an answer was", FeedbackRequest, FeedbackBody, "giveFeedback")},
        "/v1/feedback/{answer_id}": {
            "get": get(
                "What was said of an answer last",
                FeedbackBody,
                parameters=[parameter("answer_id", {"type": "string"}, place="path")],
            )
        },
        "/admin/feedback": {
            "get": {
                **lines("What was said of answers, a JSON object a line", FeedbackLine),
                "parameters": [parameter("team", {"type": "string"}, "Of this team only.")],
            }
        },
        "/admin/cache": {"get": get("What the answer cache holds and did", CacheReport)},
        "/admin/cache/invalidate": {"post": call("Forget stored answers", Invalidation, Invalidated)},
        "/admin/cache/audits": {"get": get("What audits found of the answers served by meaning", AuditReport)},
        "/admin/cache/labels": {"get": lines("The label log, a JSON object a line", LabelLine)},
        "/admin/cache/lift": {"post": call("Serve again what audits hold back", Lift, Lifted)},
        "/admin/keys": {
            "get": get("Every API key, without its secret", KeyList),
            "post": call("Make an API key", NewKey, KeySecret, "createKey"),
        },
        "/admin/keys/rotate": {"post": call("Give an API key a new secret", Rotation, KeySecret, "rotateKey")},
        "/admin/keys/revoke": {"post": call("Take an API key away", Revocation, Revoked, "revokeKey")},
        "/admin/adapters": {
            "get": get("The adapters of this server's models", AdapterStates),
            "post": call("Serve an adapter", NewAdapter, AdapterState, "addAdapter"),
        },
        "/admin/adapters/remove": {
            "post": call("Serve an adapter no more", AdapterChoice, AdapterState, "removeAdapter")
        },
        "/admin/models": {"get": get("The models of this server, and which of them sleep", ModelStates)},
        "/admin/models/sleep": {
            "post": call("Have a model give its memory back", ModelChoice, ModelState, "sleepModel")
        },
        "/admin/models/wake": {"post": call("Have a model be there again", ModelChoice, ModelState, "wakeModel")},
        "/admin/route": {
            "post": call("Say where a conversation would go", ChatCompletionRequest, RouteReport, "explainRoute")
        },
        "/admin/live": {
            "get": get(
                "The server now and in the last minutes",
                Live,
                parameters=[parameter("after", _NUMBER, "The number of the last point that is known.")],
            )
        },
        "/admin/requests": {
            "get": get(
                "The requests that run or ended last",
                RequestList,
                parameters=[
                    parameter("limit", {"type": "integer", "minimum": 1, "maximum": 500}),
                    *(parameter(name, {"type": "string"}) for name in ("team", "model", "verdict")),
                    parameter("status", {"type": "string", "enum": list(get_args(RequestOutcome))}),
                ],
            )
        },
        "/admin/requests/{request_id}": {
            "get": get(
                "One request explained",
                RequestTrace,
                parameters=[parameter("request_id", {"type": "string"}, place="path")],
            )
        },
        "/dashboard": {"get": {"summary": "The operator's page", "operationId": "dashboard", "responses": page}},
        "/health": {"get": get("Is the process alive", Health)},
        "/ready": {"get": get("Are requests answered", Readiness, unready=Readiness)},
        "/metrics": {"get": {"summary": "Prometheus metrics", "operationId": "metrics", "responses": text}},
        "/openapi.json": {"get": {"summary": "This document", "operationId": "openapi", "responses": anything}},
    }
