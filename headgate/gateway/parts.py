"""From the settings to the parts of a server, or why they cannot be had on this machine."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from headgate.cache.audits.audit import Auditor
from headgate.cache.audits.label_log import LabelLog
from headgate.cache.audits.labels import Calibration, load_calibration
from headgate.cache.audits.watch import Watch
from headgate.cache.store.base import Store
from headgate.cache.store.journal import Journal
from headgate.engine.engine import Engine
from headgate.engine.settings import EngineSettings
from headgate.gateway.caching.audits import Audits
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.configuration.cache import CacheSection, SemanticCacheSection
from headgate.gateway.configuration.secret_reference import read_secret, resolved
from headgate.gateway.embedding.embedding_model import model_folder
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.telemetry.sections import OtelSection

_LADDER = (0.0, 0.75, 1.5, 2.25, 3.0, 4.0)
"""Log odds above the certified threshold to which audits raise what is served, a step each breach."""


class StartError(Exception):
    """The configuration is well-formed but cannot be served on this machine."""


def make_engine(settings: Settings) -> Engine:
    """An engine without models yet; ValueError for a device that is not there."""
    section = settings.engine
    return Engine(
        EngineSettings(
            device=section.device,
            block_size=section.block_size,
            max_step_tokens=section.max_step_tokens,
            max_running=section.max_running,
            max_sequence_share=section.max_sequence_share,
            knee_tokens=section.knee_tokens,
            background_step_tokens=section.background_step_tokens,
            pinned_share=section.pinned_share,
            kv_bytes=section.kv_bytes,
            kv_dtype=section.kv_dtype,
            threads=section.threads,
            prefix_cache=section.prefix_cache,
            kernels=section.kernels,
            decode_ahead=section.decode_ahead,
            prompt_lookup=section.prompt_lookup,
            record_prompts=section.record_prompts,
            keep_quantized=section.keep_quantized,
            kv_host_bytes=section.kv_host_bytes,
            kv_disk_path=None if section.kv_disk_path is None else Path(section.kv_disk_path).expanduser(),
            kv_disk_bytes=section.kv_disk_bytes,
        )
    )


def embedder_folder(settings: Settings) -> tuple[Path | None, str]:
    """Where the embedding model is, or None and why there is none.

    Raises:
        StartError: the semantic cache is demanded and cannot be had.
    """
    section = settings.cache.semantic
    enabled = section.enabled if settings.cache.exact.enabled else False
    try:
        return model_folder("cache.semantic", enabled, ("embedder", section.embedder), "all-MiniLM-L6-v2")
    except ValueError as error:
        raise StartError(str(error)) from None


def make_audits(
    section: SemanticCacheSection,
    store: Store,
    routes: Routes,
    calibration: Calibration,
    journal: Journal | None = None,
    voices: int = 0,
) -> Audits:
    """The audits of semantic hits and the watch over them, not started. `voices`: of users that hold an entry back."""
    auditor = Auditor(
        section.max_error,
        section.audit.share,
        section.audit.alpha,
        secrets.token_bytes(32),
        false_accept=calibration.false_accept_bound,
        false_reject=calibration.false_reject_bound,
    )
    watch = Watch(store, auditor, _LADDER, _LADDER[0], LabelLog(journal), time.time, journal, voices)
    return Audits(watch, calibration, routes, section.audit)


def cache_policy(section: CacheSection) -> CachePolicy:
    """What of answers is kept, for how long, and for whom."""
    exact = section.exact
    return CachePolicy(
        ttl_s=exact.ttl_s,
        time_sensitive_ttl_s=exact.time_sensitive_ttl_s,
        max_temperature=exact.max_temperature,
        tool_results=exact.tool_results,
        normalize_text=exact.normalize_text,
        epoch=section.epoch,
        share=section.share,
        wait_s=section.semantic.wait_s,
    )


def certified_labels(section: SemanticCacheSection) -> Calibration:
    """How far labels are to be trusted; StartError where the file that says so cannot be read."""
    path = section.audit.labels
    try:
        return load_calibration(None if path is None else Path(path))
    except (OSError, ValueError) as error:
        raise StartError(f"cache.semantic.audit.labels: {error}") from None


def fingerprint_secret(settings: Settings) -> bytes:
    """What keys the fingerprints; StartError where it is not where the configuration says."""
    reference = settings.cache.secret
    if reference is None:
        return secrets.token_bytes(32)
    try:
        secret = read_secret(reference, os.environ).encode()
    except ValueError as error:
        raise StartError(f"cache.secret is '{reference}': {error}; at least 16 bytes are needed") from None
    if len(secret) < 16:
        raise StartError(f"cache.secret is '{reference}', which holds {len(secret)} bytes; at least 16 are needed")
    return secret


def otel_headers(section: OtelSection, environ: Mapping[str, str]) -> dict[str, str]:
    """What is sent along to the collector; StartError where it is not where the configuration says."""
    try:
        return {name: resolved(value, environ) for name, value in section.headers.items()}
    except ValueError as error:
        raise StartError(f"telemetry.otel.headers: {error}") from None


def unreadable(settings: Settings) -> Iterator[str]:
    """What a start would say of files and secrets that the settings name and that cannot be read."""
    otel = settings.telemetry.otel
    for read in (
        lambda: fingerprint_secret(settings),
        lambda: certified_labels(settings.cache.semantic),
        lambda: embedder_folder(settings),
        lambda: otel_headers(otel, os.environ) if otel.enabled else None,
    ):
        try:
            read()
        except StartError as error:
            yield str(error)
