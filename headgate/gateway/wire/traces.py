"""`/admin/requests`: requests that run or have ended, and one of them explained. Times are seconds; no content."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from headgate.gateway.wire.route_admin import RouteReport

StageName = Literal["admit", "cache", "route", "queue", "prompt", "answer", "reply", "failed", "deciding"]
RequestOutcome = Literal["running", "ok", "refused", "failed", "left"]
"""Of a request: it has not ended, was answered, got 4xx, got 5xx, or its client left."""


class RequestLine(Struct):
    """A request that runs or has ended."""

    id: str
    at: float
    """When it came, in seconds since the epoch."""
    endpoint: str
    status: int | None
    """null: it has not ended yet, and times are until now; 499: its client left."""
    error: str | None
    team: str
    key: str | None
    model: str
    route: str
    """Why this model, as in x-headgate-route."""
    verdict: str
    """The cache's."""
    stream: bool
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    first_token_s: float | None
    total_s: float
    usd: float


class Stage(Struct):
    """A part of a request's way, in seconds from its arrival."""

    name: StageName
    begin_s: float
    end_s: float


class FailedAttempt(Struct):
    """An attempt of which no answer came that was given, in seconds from the request's arrival."""

    model: str
    end: str
    """What became of it: `unreachable`, `overloaded` or, of a small model's answer, `unsure` or `handed_over`."""
    begin_s: float
    end_s: float


class CacheTrace(Struct):
    """What the answer cache said."""

    verdict: str
    reason: str
    similarity: float | None
    bound: float | None
    """Upper bound on the share of wrong answers among those served like this one."""
    age_s: float | None
    """Of the stored answer."""
    key: str | None
    """As in x-headgate-cache-key."""
    looked_s: float | None


class RequestTrace(Struct):
    """One request explained: its way through the stages, and what was settled in each."""

    request: RequestLine
    config: str
    """Revision of the configuration."""
    experiment: str
    budget: str
    """The team's budgets that were nearly spent."""
    device_s: float
    stages: list[Stage]
    failed: list[FailedAttempt]
    cache: CacheTrace | None
    """null: it never came to the cache."""
    route: RouteReport | None
    """null: it named its model, was answered from the cache, or never came to the router."""
    predicted_s: float | None
    """What the price said that the answer would take."""


class RequestList(Struct):
    """Requests, the latest first, and before them those that run."""

    requests: list[RequestLine]
    remembered: int
    """How many of those that ended can be asked for by their ids."""
