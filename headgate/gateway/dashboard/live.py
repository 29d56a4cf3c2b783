"""The server at this moment, for the operator's page: read from what /metrics publishes and from teams' accounts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from headgate import __version__
from headgate.gateway.backend import Loader
from headgate.gateway.batches.service import Batches
from headgate.gateway.dashboard.history import INTERVAL_S, POINT_NAMES, Counts, History, hit_ratio, latencies, rate
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.settings import Settings
from headgate.gateway.teams.accounts import Accounts
from headgate.gateway.teams.registry import Teams
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.metrics.snapshot import Buckets, Reading
from headgate.gateway.wire.health import Part
from headgate.gateway.wire.live import (
    Live,
    LiveBatch,
    LiveBudget,
    LiveCache,
    LiveConfig,
    LiveModel,
    LiveRoute,
    LiveTeam,
    LiveUpstream,
    Lookups,
    MeasuredError,
    Percentiles,
    Points,
    Traffic,
)

MOST_TEAMS = 100
MOST_BATCHES = 50


@dataclass(frozen=True, slots=True)
class Watched:
    """What the page looks at."""

    settings: Settings
    lifecycle: Lifecycle
    metrics: Metrics
    loader: Loader
    accounts: Accounts
    teams: Teams
    history: History
    started: float
    """Monotonic seconds."""


def live(watched: Watched, batches: Batches | None, after: int, clock: Callable[[], float] = time.monotonic) -> Live:
    """The server now, with the points of its history after that number. `batches`: None where there are none."""
    reading = Reading(watched.metrics.registry.collect())
    now = watched.history.now()
    old = watched.history.before(now)
    points = watched.history.since(after)
    lifecycle, roster = watched.lifecycle, watched.teams.roster
    teams = sorted(_teams(watched, reading), key=lambda team: (-team.usd, -team.requests, team.name))
    return Live(
        time.time(),
        clock() - watched.started,
        __version__,
        lifecycle.phase,
        _traffic(watched, now, old),
        list(_models(watched, reading, now, old)),
        _cache(watched, reading),
        list(_routes(reading)),
        teams[:MOST_TEAMS],
        len(teams),
        [] if batches is None else list(islice(_batches(batches), MOST_BATCHES)),
        LiveConfig(
            roster.revision,
            reading.total("headgate_config_good") == 1,
            len(roster.teams),
            int(reading.total("headgate_config_reloads_total", result="taken")),
            int(reading.total("headgate_config_reloads_total", result="refused")),
            int(reading.total("headgate_config_restart_keys")),
            watched.teams.open,
        ),
        {name: Part(state, detail) for name, (state, detail) in lifecycle.parts.items()},
        Points(
            INTERVAL_S,
            watched.history.taken - len(points) + 1,
            {name: [getattr(point, name) for point in points] for name in POINT_NAMES},
        ),
    )


def _traffic(watched: Watched, now: Counts, old: Counts) -> Traffic:
    first, inter = latencies(now, old)
    prompt, before = sum(now.prompt_tokens.values()), sum(old.prompt_tokens.values())
    generated, generated_before = sum(now.generated_tokens.values()), sum(old.generated_tokens.values())
    return Traffic(
        now.at - old.at,
        rate(now.requests - old.requests, now, old),
        rate(now.failed - old.failed, now, old),
        rate(now.refused - old.refused, now, old),
        rate(prompt - before, now, old),
        rate(generated - generated_before, now, old),
        hit_ratio(now, old),
        _percentiles(first),
        _percentiles(inter),
        # Who asks for this is on the road too.
        max(0, watched.lifecycle.in_flight - 1),
        now.requests,
        now.failed,
        now.refused,
        int(prompt),
        int(generated),
    )


def _models(watched: Watched, reading: Reading, now: Counts, old: Counts) -> Iterator[LiveModel]:
    # Each series is read once for all models: to look for those of each takes their square.
    requests, breakers, running, waiting, background, preemptions, queries, found, usage = (
        reading.by_one(f"headgate_{name}", "model")
        for name in (
            "requests_total", "route_breaker_state", "requests_running", "requests_waiting", "background_requests",
            "preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total", "kv_cache_usage_ratio",
        )
    )  # fmt: skip
    settings, parts = watched.settings, watched.lifecycle.parts
    upstreams = dict(_upstreams(reading, [section.id for section in settings.upstreams]))
    for section in watched.loader.adapters.settings.named:
        model = section.id
        part = f"upstream {model}" if model in upstreams else f"model {model}"
        state, detail = parts.get(part, ("off", ""))
        first, inter = latencies(now, old, model)
        generated = now.generated_tokens.get(model, 0.0)
        yield LiveModel(
            model,
            section.tier,
            upstreams.get(model),
            state,
            detail,
            ("closed", "half_open", "open")[int(breakers.get(model, 0))],
            int(running.get(model, 0)),
            int(waiting.get(model, 0)),
            int(background.get(model, 0)),
            usage.get(model),
            found.get(model, 0.0) / queries[model] if queries.get(model) else None,
            int(preemptions.get(model, 0)),
            int(requests.get(model, 0)),
            int(now.prompt_tokens.get(model, 0)),
            int(generated),
            rate(generated - old.generated_tokens.get(model, 0.0), now, old),
            _percentiles(first),
            _percentiles(inter),
        )


def _upstreams(reading: Reading, models: Iterable[str]) -> Iterator[tuple[str, LiveUpstream]]:
    well, retries = (reading.by_one(f"headgate_upstream_{name}", "model") for name in ("healthy", "retries_total"))
    attempts, hedges = (
        _split(reading.by(f"headgate_upstream_{name}_total", "model", label))
        for name, label in (("attempts", "end"), ("hedges", "result"))
    )
    for model in models:
        raced = hedges.get(model, {})
        yield (
            model,
            LiveUpstream(
                well[model] == 1 if model in well else None,
                attempts.get(model, {}),
                int(retries.get(model, 0)),
                sum(raced.values()),
                raced.get("won", 0),
            ),
        )


def _split(counts: Mapping[tuple[str, ...], float]) -> dict[str, dict[str, int]]:
    """Counts by two labels, those of each value of the first together."""
    found: dict[str, dict[str, int]] = {}
    for (first, second), count in counts.items():
        found.setdefault(first, {})[second] = int(count)
    return found


def _cache(watched: Watched, reading: Reading) -> LiveCache:
    state = watched.loader.cache.state()
    lookups = reading.by("headgate_cache_lookups_total", "verdict", "reason")
    return LiveCache(
        watched.loader.backend.answers.kind if watched.lifecycle.loaded else "",
        state.entries,
        state.bytes,
        state.max_bytes,
        state.indexed,
        dict(state.faults),
        [Lookups(verdict, reason, int(count)) for (verdict, reason), count in lookups.items()],
        int(reading.total("headgate_cache_saved_tokens_total")),
        reading.total("headgate_cache_saved_device_seconds_total"),
        reading.total("headgate_cache_saved_usd_total"),
        _error(watched),
    )


def _error(watched: Watched) -> MeasuredError | None:
    audits = watched.loader.backend.audits if watched.lifecycle.loaded else None
    if audits is None:
        return None
    watch = audits.watch
    found = watch.interval()
    return MeasuredError(
        found.lower,
        found.upper,
        found.estimate,
        watched.settings.cache.semantic.max_error,
        found.hits,
        found.audited,
        found.labels,
        watch.quarantined,
        watch.threshold,
    )


def _routes(reading: Reading) -> Iterator[LiveRoute]:
    saved_s = reading.by("headgate_route_saved_device_seconds", "model", "reason")
    saved_usd = reading.by("headgate_route_saved_usd", "model", "reason")
    counts = reading.by("headgate_routes_total", "model", "reason")
    for (model, reason), count in sorted(counts.items(), key=lambda entry: -entry[1]):
        key = model, reason
        yield LiveRoute(model, reason, int(count), saved_s.get(key, 0.0), saved_usd.get(key, 0.0))


def _teams(watched: Watched, reading: Reading) -> Iterator[LiveTeam]:
    roster, requests = watched.teams.roster, "headgate_usage_requests_total"
    answered, by_cause = reading.by_one(requests, "team"), reading.by(requests, "team", "cause")
    tokens = reading.by("headgate_usage_tokens_total", "team", "kind")
    device, usd = (reading.by_one(f"headgate_usage_{name}_total", "team") for name in ("device_seconds", "usd"))
    refused = _split(reading.by("headgate_refused_requests_total", "team", "reason"))
    anybody = roster.principal(None, None).policy
    for name in sorted(roster.names | answered.keys()):
        budgets = (roster.teams[name].policy if name in roster.teams else anybody).budgets
        # One whose file is gone has no budgets any more.
        shares = watched.accounts.budgets.shares(name, budgets) if name in roster.names else []
        yield LiveTeam(
            name,
            int(answered.get(name, 0)),
            int(sum(by_cause.get((name, cause), 0) for cause in ("exact", "semantic"))),
            int(tokens.get((name, "prompt"), 0)),
            int(tokens.get((name, "completion"), 0)),
            device.get(name, 0.0),
            usd.get(name, 0.0),
            refused.get(name, {}),
            [LiveBudget(s.bound, s.limit, s.spent, s.reserved, s.renewed) for s in shares],
            budgets.soft_percent,
            budgets.on_exceed,
        )


def _batches(batches: Batches) -> Iterator[LiveBatch]:
    for batch, running in batches.latest:
        body, counts = batch.body, batch.body.request_counts
        yield LiveBatch(
            body.id,
            batch.team,
            body.endpoint,
            body.status,
            body.created_at,
            counts.total,
            counts.completed,
            counts.failed,
            running,
        )


def _percentiles(buckets: Buckets) -> Percentiles:
    return Percentiles(buckets.quantile(0.5), buckets.quantile(0.9), buckets.quantile(0.99), buckets.count)
