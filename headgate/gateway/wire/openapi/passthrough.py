"""What upstreams serve beside chats in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.gateway.upstream.endpoints import (
    EVENTS,
    IMAGE_EDITS,
    IMAGES,
    JSON,
    MODERATIONS,
    RERANK,
    SCORE,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    Endpoint,
)
from headgate.gateway.wire.forms import FORM
from headgate.gateway.wire.openapi.parts import error, ref
from headgate.gateway.wire.passthrough import ImageRequest, PassedForm, PassedRequest, SpeechRequest

PASSED_TYPES: tuple[type, ...] = (PassedRequest, SpeechRequest, ImageRequest, PassedForm)

_SOUND = ("audio/*", "application/octet-stream", EVENTS)
_TEXT = (JSON, "text/*", "application/x-subrip", EVENTS)
_HEADERS = {
    "x-headgate-model": "Id of the model that answered.",
    "x-headgate-overhead-ms": "Milliseconds of the gateway before the upstream was asked.",
    "x-headgate-cost-usd": "What the request cost; of events it is a comment at their end.",
}


def require_model(components: Mapping[str, Any]) -> None:
    """Say that the model must be named: the types leave that to who can tell which ones there are."""
    for kind in PASSED_TYPES:
        described = components[kind.__name__]
        described["required"] = sorted({"model", *described.get("required", ())})


def passed_paths() -> dict[str, Any]:
    """Paths by URL."""
    rerank, score = "Order documents by a query", "Score pairs of texts"
    return {
        "/v1/rerank": _passed(rerank, "rerank", RERANK, PassedRequest),
        "/v2/rerank": _passed(rerank, "rerankV2", RERANK, PassedRequest),
        "/rerank": _passed(rerank, "rerankPlain", RERANK, PassedRequest),
        "/v1/score": _passed(score, "score", SCORE, PassedRequest),
        "/score": _passed(score, "scorePlain", SCORE, PassedRequest),
        "/v1/moderations": _passed("Say what may be harmful", "moderate", MODERATIONS, PassedRequest),
        "/v1/audio/speech": _passed("Speak a text", "speak", SPEECH, SpeechRequest, _SOUND),
        "/v1/audio/transcriptions": _passed("Write down speech", "transcribe", TRANSCRIPTIONS, PassedForm, _TEXT),
        "/v1/audio/translations": _passed("Write it in English", "translate", TRANSLATIONS, PassedForm, _TEXT),
        "/v1/images/generations": _passed("Make pictures", "makeImages", IMAGES, ImageRequest, (JSON, EVENTS)),
        "/v1/images/edits": _passed("Change pictures", "editImages", IMAGE_EDITS, PassedForm, (JSON, EVENTS)),
    }


def _passed(
    summary: str, operation: str, endpoint: Endpoint, request: type, kinds: Sequence[str] = (JSON,)
) -> dict[str, Any]:
    """An operation whose answer is the upstream's."""
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()}
    whole = {"description": "As the upstream answers", "headers": headers, "content": {kind: {} for kind in kinds}}
    described = {
        "summary": summary,
        "description": f"Passed on to the upstream that `model` names and that serves `{endpoint.serves}`.",
        "operationId": operation,
        "requestBody": {"required": True, "content": {FORM if endpoint.form else JSON: {"schema": ref(request)}}},
        "responses": {"200": whole, "default": error()},
    }
    return {"post": described}
