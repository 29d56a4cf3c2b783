"""Request headers that steer the road, and names of the reply headers."""

from __future__ import annotations

import math
import random
import re
from typing import TYPE_CHECKING

from headgate.gateway.road.request import CacheControl
from headgate.gateway.wire.errors import invalid

if TYPE_CHECKING:
    from multidict import MultiMapping

    from headgate.gateway.teams.limits import Standing

REQUEST_ID = "x-request-id"
CACHE_CONTROL = "cache-control"
CACHE = "x-headgate-cache"
CACHE_KEY = "x-headgate-cache-key"
CACHE_TAGS = "x-headgate-cache-tags"
MAX_ERROR = "x-headgate-max-error"
SESSION = "x-headgate-session"
SIMILARITY = "x-headgate-similarity"
BOUND = "x-headgate-bound"
AGE = "age"
MODEL = "x-headgate-model"
ROUTE = "x-headgate-route"
QUEUE_MS = "x-headgate-queue-ms"
OVERHEAD_MS = "x-headgate-overhead-ms"
COST_USD = "x-headgate-cost-usd"
CONFIG = "x-headgate-config"
PROCESSING_MS = "openai-processing-ms"
BUDGET = "x-headgate-budget"
DROPPED = "x-headgate-dropped"
RATE_LIMIT = "x-ratelimit"
OPENAI_VERSION = "openai-version"
SERVER = "Server"

_OF_REQUESTS, _OF_TOKENS = (
    (f"{RATE_LIMIT}-limit-{name}", f"{RATE_LIMIT}-remaining-{name}", f"{RATE_LIMIT}-reset-{name}")
    for name in ("requests", "tokens")
)
_SAFE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_SECONDS = re.compile(r"\d{1,10}")
_SHARE = re.compile(r"0|0?\.\d{1,12}", re.ASCII)
TAG = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")
"""What a tag of an answer looks like."""
MAX_TAGS = 16
_UNSTEERED = CacheControl()


def request_id(given: str | None) -> str:
    """The client's own request id where it is safe to log and echo, else a new one.

    Ids only tell requests apart; asking the system for them would give the interpreter to the step thread.
    """
    if given is not None and _SAFE_ID.fullmatch(given):
        return given
    return f"req_{random.getrandbits(128):032x}"


def cache_control(headers: MultiMapping[str]) -> CacheControl:
    """Read `cache-control` (RFC 9111: no-cache, no-store, only-if-cached, max-age; other directives have no meaning
    here), `x-headgate-max-error` and `x-headgate-cache-tags`.

    ApiError 400 for a value that cannot be read: guessing could serve what the client does not want.
    """
    if CACHE_CONTROL not in headers and MAX_ERROR not in headers and CACHE_TAGS not in headers:
        return _UNSTEERED
    no_cache = no_store = only_if_cached = False
    max_age: float | None = None
    for directive in ",".join(headers.getall(CACHE_CONTROL, [])).lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name == "no-cache":
            no_cache = True
        elif name == "no-store":
            no_store = True
        elif name == "only-if-cached":
            only_if_cached = True
        elif name == "max-age":
            max_age = _seconds(value.strip('"'))
    return CacheControl(no_cache, no_store, only_if_cached, max_age, _max_error(headers), _tags(headers))


def session(headers: MultiMapping[str]) -> str | None:
    """The conversation's name, as the client gives it; ApiError 400 where it is longer than 256 characters."""
    name = headers.get(SESSION)
    if name is not None and len(name) > 256:
        message = f"Invalid '{SESSION}': {len(name)} characters. Expected at most 256."
        raise invalid(message, SESSION, "string_above_max_length")
    return name


def rate_limits(standing: Standing) -> dict[str, str]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for what is limited."""
    fields = {}
    for (limit, remaining, reset), level in ((_OF_REQUESTS, standing.requests), (_OF_TOKENS, standing.tokens)):
        if level is not None:
            fields[limit] = str(level.limit)
            fields[remaining] = str(level.remaining)
            fields[reset] = duration(level.reset_s)
    return fields


def duration(seconds: float) -> str:
    """As OpenAI writes one: 12ms, 1.5s, 6m0s."""
    ms = math.ceil(seconds * 1e3)
    if ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    return f"{minutes}m{ms / 1e3:g}s" if minutes else f"{ms / 1e3:g}s"


def _seconds(value: str) -> float:
    if not _SECONDS.fullmatch(value):
        message = f"Invalid 'cache-control': max-age is '{value}'. Expected whole seconds, such as max-age=60."
        raise invalid(message, "cache-control", "invalid_value")
    return float(value)


def _max_error(headers: MultiMapping[str]) -> float | None:
    value = headers.get(MAX_ERROR)
    if value is None:
        return None
    if not _SHARE.fullmatch(value.strip()):
        message = (
            f"Invalid '{MAX_ERROR}': '{value[:80]}'. Expected the share of wrong answers you accept, from 0 to less "
            "than 1, such as 0.02. With 0 only answers to the very same request are served from the cache."
        )
        raise invalid(message, MAX_ERROR, "invalid_value")
    return float(value)


def _tags(headers: MultiMapping[str]) -> tuple[str, ...]:
    tags = [tag.strip() for value in headers.getall(CACHE_TAGS, []) for tag in value.split(",")]
    for tag in tags:
        if not TAG.fullmatch(tag):
            message = (
                f"Invalid '{CACHE_TAGS}': '{tag[:80]}'. Expected names of 1 to 64 letters, digits or any of ._:/@+-, "
                "with commas between them."
            )
            raise invalid(message, CACHE_TAGS, "invalid_value")
    distinct = tuple(dict.fromkeys(tags))
    if len(distinct) > MAX_TAGS:
        message = f"Invalid '{CACHE_TAGS}': {len(distinct)} tags. Expected at most {MAX_TAGS}."
        raise invalid(message, CACHE_TAGS, "invalid_value")
    return distinct
