"""`/admin/live`: the server at this moment and in the last minutes. Times are seconds, ratios 0 to 1, money US dollars.

null is what is not known, or what nothing was observed of.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from headgate.gateway.wire.health import Part


class Percentiles(Struct):
    """Of what was observed in the window; by Prometheus' `histogram_quantile` of the same buckets."""

    p50: float | None
    p90: float | None
    p99: float | None
    count: int


class Traffic(Struct):
    """All requests to the API. Rates and percentiles are of the window, the rest of the time since the start."""

    window_s: float
    requests_s: float
    failed_s: float
    """Of these, those that got 5xx."""
    refused_s: float
    """Of these, those that got 4xx: beyond a limit or a budget, or not to be answered as they were asked."""
    prompt_tokens_s: float
    generated_tokens_s: float
    hit_ratio: float | None
    first_token: Percentiles
    inter_token: Percentiles
    in_flight: int
    requests: int
    failed: int
    refused: int
    prompt_tokens: int
    generated_tokens: int


class LiveUpstream(Struct):
    """What is known of a model that another server runs, since the start."""

    well: bool | None
    """Whether checks find it well."""
    ends: dict[str, int]
    """Attempts by how they ended: `answered`, or what went wrong."""
    retries: int
    hedges: int
    hedges_won: int
    """Second attempts that began to answer before the first."""


class LiveModel(Struct):
    """A model: how it stands, what it did in the window, and since the start."""

    id: str
    tier: str | None
    upstream: LiveUpstream | None
    """null: the engine runs it."""
    state: Literal["loading", "ready", "off", "failed"]
    detail: str
    breaker: Literal["closed", "half_open", "open"]
    running: int
    waiting: int
    background: int
    kv_usage: float | None
    prefix_hit_ratio: float | None
    preemptions: int
    requests: int
    prompt_tokens: int
    generated_tokens: int
    generated_tokens_s: float
    first_token: Percentiles
    inter_token: Percentiles


class Lookups(Struct):
    """What the cache said, and why."""

    verdict: str
    reason: str
    count: int


class MeasuredError(Struct):
    """The share of wrong answers among those served by meaning, as audits measured it."""

    lower: float
    upper: float
    labelled: float | None
    accepted: float
    """cache.semantic.max_error."""
    hits: int
    audited: int
    labels: int
    quarantined: int
    threshold: float | None
    """Log odds above the certified threshold from which on hits are served; null: none are."""


class LiveCache(Struct):
    """The answer cache."""

    store: str
    entries: int | None
    bytes: int | None
    max_bytes: int | None
    indexed: int | None
    faults: dict[str, int]
    lookups: list[Lookups]
    saved_tokens: int
    saved_device_s: float
    saved_usd: float
    error: MeasuredError | None
    """null: nothing is served by meaning here."""


class LiveRoute(Struct):
    """A reason for which a model was chosen: how often, and what that saved beside a large model's price."""

    model: str
    reason: str
    requests: int
    saved_device_s: float
    saved_usd: float


class LiveBudget(Struct):
    """A budget, in its own unit."""

    bound: str
    limit: float
    spent: float
    reserved: float
    renewed: str
    """The day on which its next period begins."""


class LiveTeam(Struct):
    """A team: what it used since the start, and how its budgets stand, which outlive a start."""

    name: str
    requests: int
    hits: int
    """Of these, those answered by the cache."""
    prompt_tokens: int
    completion_tokens: int
    device_s: float
    usd: float
    refused: dict[str, int]
    """By limit or budget."""
    budgets: list[LiveBudget]
    soft_percent: float
    on_exceed: str


class LiveBatch(Struct):
    """A batch: what became of its lines so far. Those that are left wait."""

    id: str
    team: str
    endpoint: str
    status: str
    at: int
    """When it was made, in seconds since the epoch."""
    lines: int
    """0 while its file is checked."""
    completed: int
    failed: int
    running: int


class LiveConfig(Struct):
    """The configuration that holds."""

    revision: str
    good: bool
    """Whether the files hold as they are now."""
    teams: int
    reloads: int
    refused: int
    """Changes of the files that were not taken over."""
    restart: int
    """Changed keys of the main file that need a restart."""
    open: bool
    """Whether everybody may ask."""


class Points(Struct):
    """The last minutes, by columns. `first` numbers the first point, for `after` of the next request."""

    interval_s: float
    first: int
    columns: dict[str, list[float | None]]


class Live(Struct):
    """The server."""

    at: float
    uptime_s: float
    version: str
    phase: Literal["loading", "ready", "failing", "draining"]
    traffic: Traffic
    models: list[LiveModel]
    cache: LiveCache
    routes: list[LiveRoute]
    teams: list[LiveTeam]
    """Those that used most, 100 at most."""
    teams_in_all: int
    batches: list[LiveBatch]
    """Those that have not ended, the latest first, then the last that ended; 50 at most."""
    config: LiveConfig
    parts: dict[str, Part]
    history: Points
