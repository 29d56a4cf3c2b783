"""The application: its parts, its endpoints, and what surrounds them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from functools import partial

from aiohttp import web

from headgate.gateway import contexts, keys, middleware
from headgate.gateway.api import (
    adapter_admin,
    audio,
    batches,
    cache_admin,
    chat,
    completions,
    dashboard,
    embeddings,
    feedback,
    files,
    health,
    images,
    key_admin,
    messages,
    metrics,
    model_admin,
    models,
    moderations,
    openapi,
    rerank,
    responses,
    route_admin,
    tokenize,
)
from headgate.gateway.backend import Loader
from headgate.gateway.configuration.document import ConfigError, dotted
from headgate.gateway.configuration.live import MainFile
from headgate.gateway.dashboard.files import page_files
from headgate.gateway.dashboard.history import History
from headgate.gateway.dashboard.live import Watched
from headgate.gateway.dashboard.traces import Traces
from headgate.gateway.edge.body_cache import Readings
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.local.adapters import Adapters
from headgate.gateway.local.added_adapters import read_added, with_added
from headgate.gateway.parts import StartError, make_engine
from headgate.gateway.responses.shared import SharedResponses
from headgate.gateway.responses.stored import StoredResponses
from headgate.gateway.settings import Settings
from headgate.gateway.teams.accounts import Accounts
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.budgets import Share
from headgate.gateway.teams.checks import problems
from headgate.gateway.teams.costs import Prices
from headgate.gateway.teams.files import read_roster
from headgate.gateway.teams.pinning import Pinned
from headgate.gateway.teams.queues import Queues
from headgate.gateway.teams.registry import Teams
from headgate.gateway.teams.reload import Reloader
from headgate.gateway.telemetry.logs.access import AccessLog
from headgate.gateway.telemetry.metrics.cache import CacheCollector
from headgate.gateway.telemetry.metrics.engine import EngineCollector
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.metrics.remembered import RememberedCollector, Remembers
from headgate.gateway.telemetry.metrics.server import ServerCollector, watch_process
from headgate.gateway.telemetry.metrics.usage import BudgetCollector, UsageMetrics
from headgate.gateway.telemetry.metrics.vllm import VllmCollector
from headgate.gateway.telemetry.tracing.setup import open_tracing

_COUNTING = 2
"""Long texts whose tokens are counted side by side, beside those that models are to read."""


def make_app(settings: Settings, main: MainFile | None = None) -> web.Application:
    """An application that starts loading its models when it starts, and answers when they are there.

    Run it with `handler_cancellation=True`, so that a client who leaves ends the work done for it. With a main file its
    changes are followed.

    Raises:
        StartError: the configuration cannot be served on this machine.
    """
    app = web.Application(client_max_size=settings.server.max_body_bytes)
    app[keys.SETTINGS] = settings
    try:
        engine = make_engine(settings)
        added = read_added(settings, os.environ)
        app[keys.TEAMS] = Teams(read_roster(with_added(settings, added), os.environ))
    except (ValueError, ConfigError) as error:
        raise StartError(str(error)) from None
    app[keys.METRICS] = Metrics(settings.engine.usd_per_device_hour)
    registry = app[keys.METRICS].registry
    registry.register(EngineCollector(engine.lanes))
    if settings.telemetry.vllm_names:
        registry.register(VllmCollector(engine.lanes, _cache_config(settings)))
    app[keys.TRACING] = open_tracing(settings.telemetry.otel, os.environ, registry)
    app[keys.ACCESS] = AccessLog(settings.logging.access)
    app[keys.LIFECYCLE] = Lifecycle()
    prices = Prices(settings.named, settings.engine.usd_per_device_hour, settings.embeddings)
    adapters = Adapters(settings, added, engine, app[keys.LIFECYCLE], prices, partial(_check_teams, os.environ))
    app[keys.RELOADER] = Reloader(
        settings,
        app[keys.TEAMS],
        lambda now: read_roster(adapters.onto(now), os.environ),
        app[keys.LIFECYCLE],
        registry,
        main,
        partial(_retune, app),
    )
    adapters.changed = partial(_reread, app)
    usage = UsageMetrics(registry)
    accounts = Accounts(prices, usage)
    registry.register(BudgetCollector(partial(_budgets, app), lambda: accounts.ledger))
    app[keys.ADMISSION] = Admission(accounts=accounts, queues=Queues(settings.server.max_waiting))
    server = ServerCollector(app[keys.LIFECYCLE], app[keys.ADMISSION].queues, lambda: app[keys.TEAMS].roster.revision)
    registry.register(server)
    watch_process(registry)
    app[keys.LOADER] = Loader(settings, app[keys.LIFECYCLE], app[keys.METRICS], engine, app[keys.ADMISSION], adapters)
    app[keys.COUNTING] = asyncio.Semaphore(_COUNTING)
    app[keys.READINGS] = Readings()
    app[keys.PINNED] = Pinned(app[keys.TEAMS], lambda: app[keys.LOADER].backend.routes.destinations, registry)
    ttl_s, most = settings.responses.ttl_s, int(settings.responses.max_bytes)
    app[keys.RESPONSES] = SharedResponses(StoredResponses(ttl_s, most), ttl_s, most)
    app[keys.FEEDBACK] = feedback.open_feedback(app)
    registry.register(RememberedCollector(partial(_remembering, app)))
    registry.register(CacheCollector(app[keys.LOADER].cache.state))
    app.on_startup.append(models.note_start)
    app.on_response_prepare.append(middleware.on_prepare)
    app.cleanup_ctx.append(contexts.tracing)
    app.cleanup_ctx.append(contexts.storing)
    app.cleanup_ctx.append(contexts.accounting)
    app.cleanup_ctx.append(feedback.remembering)
    app.cleanup_ctx.append(contexts.loading)
    app.cleanup_ctx.append(contexts.following)
    app.cleanup_ctx.append(contexts.sharing)
    app.cleanup_ctx.append(contexts.pinning)
    app.cleanup_ctx.append(contexts.resting)
    app.cleanup_ctx.append(batches.running)
    app.cleanup_ctx.append(responses.running)
    app.router.add_post("/v1/chat/completions", chat.chat_completions)
    app.router.add_post("/v1/completions", completions.completions)
    app.router.add_post("/v1/files", files.upload)
    app.router.add_get("/v1/files", files.list_files)
    app.router.add_get("/v1/files/{file_id}", files.get_file)
    app.router.add_delete("/v1/files/{file_id}", files.delete_file)
    app.router.add_get("/v1/files/{file_id}/content", files.content)
    app.router.add_post("/v1/batches", batches.create)
    app.router.add_get("/v1/batches", batches.list_batches)
    app.router.add_get("/v1/batches/{batch_id}", batches.get_batch)
    app.router.add_post("/v1/batches/{batch_id}/cancel", batches.cancel)
    app.router.add_get("/v1/models", models.list_models)
    app.router.add_get("/v1/models/{model:.+}", models.get_model)
    app.router.add_post("/v1/embeddings", embeddings.embeddings)
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        app.router.add_post(path, rerank.rerank)
    for path in ("/v1/score", "/score"):
        app.router.add_post(path, rerank.score)
    app.router.add_post("/v1/moderations", moderations.moderations)
    app.router.add_post("/v1/audio/speech", audio.speech)
    app.router.add_post("/v1/audio/transcriptions", audio.transcriptions)
    app.router.add_post("/v1/audio/translations", audio.translations)
    app.router.add_post("/v1/images/generations", images.generations)
    app.router.add_post("/v1/images/edits", images.edits)
    app.router.add_post("/v1/messages", messages.messages)
    app.router.add_post("/v1/messages/count_tokens", messages.count_tokens)
    app.router.add_post("/v1/responses", responses.create)
    app.router.add_get("/v1/responses/{response_id}", responses.get)
    app.router.add_delete("/v1/responses/{response_id}", responses.delete)
    app.router.add_get("/v1/responses/{response_id}/input_items", responses.input_items)
    app.router.add_post("/v1/responses/{response_id}/cancel", responses.cancel)
    app.router.add_post("/v1/feedback", feedback.give)
    app.router.add_get("/v1/feedback/{answer_id}", feedback.get)
    app.router.add_post("/tokenize", tokenize.tokenize)
    app.router.add_post("/detokenize", tokenize.detokenize)
    app.router.add_get("/admin/cache", cache_admin.report)
    app.router.add_post("/admin/cache/invalidate", cache_admin.invalidate)
    app.router.add_get("/admin/cache/audits", cache_admin.audits)
    app.router.add_get("/admin/cache/labels", cache_admin.labels)
    app.router.add_post("/admin/cache/lift", cache_admin.lift)
    app.router.add_get("/admin/feedback", feedback.export)
    app.router.add_get("/admin/keys", key_admin.list_keys)
    app.router.add_post("/admin/keys", key_admin.create)
    app.router.add_post("/admin/keys/rotate", key_admin.rotate)
    app.router.add_post("/admin/keys/revoke", key_admin.revoke)
    app.router.add_get("/admin/models", model_admin.report)
    app.router.add_post("/admin/models/sleep", model_admin.sleep)
    app.router.add_post("/admin/models/wake", model_admin.wake)
    app.router.add_get("/admin/adapters", adapter_admin.report)
    app.router.add_post("/admin/adapters", adapter_admin.add)
    app.router.add_post("/admin/adapters/remove", adapter_admin.remove)
    app.router.add_post("/admin/route", route_admin.explain)
    app.router.add_get("/health", health.health)
    app.router.add_get("/ready", health.ready)
    app.router.add_get("/metrics", metrics.metrics)
    app.router.add_get("/openapi.json", openapi.openapi)
    if settings.dashboard.enabled:
        _watch(app)
    reception = middleware.Reception(
        app[keys.TEAMS],
        app[keys.ADMISSION],
        app[keys.LIFECYCLE],
        app[keys.METRICS],
        app[keys.ACCESS],
        app[keys.TRACING],
        app.get(keys.TRACES),
        app[keys.FEEDBACK],
        settings.server.send_s,
    )
    app.middlewares.append(reception.receive)
    return app


def _cache_config(settings: Settings) -> dict[str, str]:
    """What vLLM says of its KV cache, as far as there is the like here."""
    engine = settings.engine
    return {
        "block_size": str(engine.block_size),
        "cache_dtype": engine.kv_dtype,
        "enable_prefix_caching": str(engine.prefix_cache),
    }


def _budgets(app: web.Application) -> dict[str, list[Share]]:
    """How the budgets of all teams stand."""
    roster, budgets = app[keys.TEAMS].roster, app[keys.ADMISSION].accounts.budgets
    return {team: budgets.shares(team, roster.principal(team, None).policy.budgets) for team in sorted(roster.names)}


def _remembering(app: web.Application) -> dict[str, Remembers]:
    """All that remembers something of requests that have ended."""
    found: dict[str, Remembers] = {
        "bodies": app[keys.READINGS],
        "tabs": app[keys.ADMISSION].tabs,
        "responses": app[keys.RESPONSES],
        **app[keys.LOADER].remembers,
    }
    if (own := app[keys.FEEDBACK]) is not None:
        found["ratable"] = own.book
    if keys.TRACES in app:
        found["requests"] = app[keys.TRACES]
    return found


def _watch(app: web.Application) -> None:
    """Remember what happens, and serve the page that shows it."""
    settings, lifecycle = app[keys.SETTINGS], app[keys.LIFECYCLE]
    metrics, loader = app[keys.METRICS], app[keys.LOADER]
    traces = app[keys.TRACES] = Traces(settings.dashboard.requests)
    app[dashboard.WATCHED] = Watched(
        settings,
        lifecycle,
        metrics,
        loader,
        app[keys.ADMISSION].accounts,
        app[keys.TEAMS],
        History(metrics.registry, traces, loader.lanes, lambda: lifecycle.in_flight),
        time.monotonic(),
    )
    app[dashboard.FILES] = page_files()
    app.cleanup_ctx.append(dashboard.watching)
    app.router.add_get("/dashboard", dashboard.page)
    app.router.add_get("/dashboard/", dashboard.page)
    app.router.add_get("/dashboard/{file}", dashboard.file)
    app.router.add_get("/admin/live", dashboard.live_state)
    app.router.add_get("/admin/requests", dashboard.list_requests)
    app.router.add_get("/admin/requests/{request_id}", dashboard.get_request)


def _check_teams(environ: Mapping[str, str], settings: Settings) -> None:
    """ConfigError where settings do not go with themselves or with team files."""
    if found := [f"{dotted(place)}: {why}" for place, why in problems(settings)]:
        raise ConfigError(found)
    read_roster(settings, environ)


async def _reread(app: web.Application) -> None:
    """Models came or went: what teams may ask is read anew."""
    app[keys.RELOADER].ask()
    await app[keys.RELOADER].look()


def _retune(app: web.Application, settings: Settings) -> None:
    app[keys.LOADER].retune(settings)
    logging.getLogger("headgate").setLevel(settings.logging.level.upper())
