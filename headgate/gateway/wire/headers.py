"""Request headers that steer the road, and names of the reply headers."""

from __future__ import annotations

import re
import secrets

from headgate.gateway.request import CacheControl
from headgate.gateway.wire.errors import invalid

REQUEST_ID = "x-request-id"
CACHE = "x-headgate-cache"
SIMILARITY = "x-headgate-similarity"
MODEL = "x-headgate-model"
ROUTE = "x-headgate-route"
QUEUE_MS = "x-headgate-queue-ms"
OVERHEAD_MS = "x-headgate-overhead-ms"
COST_USD = "x-headgate-cost-usd"
PROCESSING_MS = "openai-processing-ms"

_SAFE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_SECONDS = re.compile(r"\d{1,10}")


def request_id(given: str | None) -> str:
    """The client's own request id where it is safe to log and echo, else a new one."""
    if given is not None and _SAFE_ID.fullmatch(given):
        return given
    return f"req_{secrets.token_hex(16)}"


def cache_control(header: str | None) -> CacheControl:
    """Read `cache-control` (RFC 9111): no-cache, no-store and max-age; other directives have no meaning here.

    ApiError 400 for a max-age that is no whole number of seconds: guessing could serve an answer that is too old.
    """
    no_cache = no_store = False
    max_age: float | None = None
    for directive in (header or "").lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name == "no-cache":
            no_cache = True
        elif name == "no-store":
            no_store = True
        elif name == "max-age":
            value = value.strip('"')
            if not _SECONDS.fullmatch(value):
                message = f"Invalid 'cache-control': max-age is '{value}'. Expected whole seconds, such as max-age=60."
                raise invalid(message, "cache-control", "invalid_value")
            max_age = float(value)
    return CacheControl(no_cache, no_store, max_age)
