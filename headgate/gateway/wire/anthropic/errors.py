"""Failures as Anthropic's clients read them."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.gateway.wire.errors import ApiError

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class UnthreadedDetails(Struct, frozen=True):
    """By which Anthropic's clients know that a conversation has to be sent whole: they go on without a `thread`."""

    error_code: Literal["thread_unsupported_request"] = "thread_unsupported_request"
    unsupported: tuple[str, ...] = ("thread",)


class AnthropicErrorDetail(Struct, frozen=True):
    """What went wrong; the message names the parameter."""

    type: str
    message: str
    details: UnthreadedDetails | UnsetType = UNSET


class AnthropicError(Struct, frozen=True):
    """The body of every reply of /v1/messages that is not a success, and the event that ends a stream that failed."""

    error: AnthropicErrorDetail
    request_id: str | None = None
    type: Literal["error"] = "error"


def anthropic_error(error: ApiError, request_id: str | None = None) -> bytes:
    """The JSON body."""
    family = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    details = UnthreadedDetails() if error.param == "thread" else UNSET
    return msgspec.json.encode(AnthropicError(AnthropicErrorDetail(family, error.told, details), request_id))
