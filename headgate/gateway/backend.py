"""What answers requests once everything is loaded, and how it comes up."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from headgate.cache.embedder import SentenceEmbedder
from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.judge import Judge
from headgate.cache.quota import InsertShare
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.base import Store
from headgate.cache.store.journal import FileJournal
from headgate.cache.store.memory import MemoryStore, elapsed
from headgate.engine.engine import Engine
from headgate.engine.errors import EngineError
from headgate.engine.local import LocalModel
from headgate.engine.settings import ModelSpec
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.audits import Audits
from headgate.gateway.caching.shared_state import Epoch, SharedState
from headgate.gateway.caching.store import connect_redis, open_redis
from headgate.gateway.caching.vector_index import SharedIndex
from headgate.gateway.configuration.cache import SemanticCacheSection
from headgate.gateway.embedding.embedding_model import once_files_open
from headgate.gateway.embedding.embeddings import Embeddings
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.local.adapters import Adapters
from headgate.gateway.local.checkpoints import adapter_path, model_path
from headgate.gateway.local.computing import part_of
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.pictures import PictureDecoder, PictureLimits
from headgate.gateway.own_thread import in_own_thread
from headgate.gateway.parts import (
    StartError,
    cache_policy,
    certified_labels,
    embedder_folder,
    fingerprint_secret,
    make_audits,
)
from headgate.gateway.pipeline import Road
from headgate.gateway.road.destinations import Destination
from headgate.gateway.road.passing import Passing
from headgate.gateway.routing.comparisons import Comparisons, compared_pair
from headgate.gateway.routing.lessons import Pair
from headgate.gateway.routing.quality import Learned, learned
from headgate.gateway.routing.routes import Routes
from headgate.gateway.routing.shadows import Shadows
from headgate.gateway.settings import Settings
from headgate.gateway.teams.admission import Admission
from headgate.gateway.telemetry.audit_metrics import AuditCollector
from headgate.gateway.telemetry.cache_metrics import CacheState
from headgate.gateway.telemetry.metrics import Metrics
from headgate.gateway.telemetry.remembered_metrics import Remembers
from headgate.gateway.telemetry.route_metrics import BreakerCollector
from headgate.gateway.telemetry.upstream_metrics import UpstreamCollector
from headgate.gateway.upstream.pool import Upstreams
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore
    from headgate.cache.store.redis_journal import RedisJournal

logger = logging.getLogger("headgate.gateway")

INSERT_WINDOW_S = 3600.0
"""Over how long the answers that a key makes are counted."""
STOP_S = 5.0
"""How long the step that is computed when the server ends is waited for."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded server: the road, the names on it, the answers kept along it and the audits of those."""

    road: Road
    passing: Passing
    """The road of what upstreams serve beside chats."""
    routes: Routes
    answers: Answers
    audits: Audits | None
    comparisons: Comparisons | None


class Loader:
    """Brings a backend up in the background, and down again."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        metrics: Metrics,
        engine: Engine,
        admission: Admission,
        adapters: Adapters,
    ) -> None:
        self.adapters = adapters
        self._admission = admission
        self._settings = settings
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._engine = engine
        self._secret = fingerprint_secret(settings)
        self._fingerprinter = Fingerprinter(self._secret)
        self._embedder_folder, self._embedder_why = embedder_folder(settings)
        self._classifier = TaskClassifier(load_tasks([Path(file) for file in settings.routing.classes]))
        self._learned: Learned | None = None
        self._embedder: SentenceEmbedder | None = None
        self._index: SharedIndex | None = None
        self._memory: MemoryStore | None = None
        self._audits: Audits | None = None
        self._pair: Pair | None = None
        self._comparisons: Comparisons | None = None
        self._shadows: Shadows | None = None
        self._journal: FileJournal | RedisJournal | None = None
        self._shared: SharedState | None = None
        self._backend: Backend | None = None
        self.remembers: dict[str, Remembers] = {}
        """What remembers ended requests, as far as it is loaded."""
        self._required = [part_of(m.id) for m in settings.local] + [f"upstream {u.id}" for u in settings.upstreams]
        self._calibration = certified_labels(settings.cache.semantic)
        try:
            self.embeddings = Embeddings(settings.embeddings, lifecycle, admission)
            self._redis = open_redis(settings.cache, lifecycle)
            self._upstreams = Upstreams(settings.upstreams, os.environ)
        except (ImportError, ValueError) as error:
            raise StartError(str(error)) from None
        metrics.registry.register(UpstreamCollector(self._upstreams.standings))
        for name in self._required:
            lifecycle.set(name, "loading")
        if self._embedder_folder is None:
            lifecycle.set("semantic cache", "off", self._embedder_why, required=False)
        else:
            lifecycle.set("semantic cache", "loading", self._embedder_why, required=False)

    @property
    def device(self) -> torch.device:
        """Where the engine computes."""
        return self._engine.device

    @property
    def fingerprinter(self) -> Fingerprinter:
        """Names what must not be told apart by others."""
        return self._fingerprinter

    @property
    def redis(self) -> RedisStore | None:
        """What gateways share, once `connect` has found it."""
        return self._redis

    @property
    def lanes(self) -> Mapping[str, LocalModel]:
        """Of the engine's models, once they are loaded, those whose steps are their own."""
        return self._engine.lanes

    @property
    def backend(self) -> Backend:
        """The loaded server. Wait until the lifecycle says ready."""
        if self._backend is None:
            raise RuntimeError("the models are not loaded yet; wait for the lifecycle to be ready")
        return self._backend

    def cache_state(self) -> CacheState:
        """The answer cache as it stands now."""
        index, feed = self._index, None if self._index is None else self._index.feed
        memory = self._memory
        return CacheState(
            entries=None if memory is None else len(memory),
            bytes=None if memory is None else memory.bytes_used,
            max_bytes=None if memory is None else memory.max_bytes,
            evictions=None if memory is None else memory.evictions,
            indexed=None if index is None else len(index.index),
            lag_s=None if feed is None else feed.lag_s,
            staleness_s=None if feed is None else feed.staleness_s,
            rebuilt=None if feed is None else feed.rebuilt,
            copying=None if feed is None else feed.copying,
            faults={} if self._backend is None else self._backend.answers.faults,
        )

    async def connect(self) -> None:
        """See whether Redis answers, and open the journal. Call it before `run`.

        It takes no longer than `cache.redis_timeout_s`.

        Raises:
            StartError: the journal's folder cannot be used.
        """
        if self._redis is not None:
            self._redis = await connect_redis(self._redis, self._settings.cache, self._lifecycle)
        self._admission.share(self._redis, self._settings.server.replicas)
        self._journal = self._open_journal()

    async def run(self) -> None:
        """Load the models, open the road, then load what only improves it.

        Raises:
            CheckpointError: a model cannot be served; the message names the file.
            QualityError: what was learned of the models cannot be used as the settings want it.
        """
        started = time.monotonic()
        await in_own_thread(self._load_models, "load models")
        self._engine.start()
        answers, routes = self._open()
        await self._measure(routes)
        await self.adapters.open(routes)
        if self._shared is not None:
            await self._shared.start()
        for name in self._required:
            self._lifecycle.set(name, "ready")
        logger.info("ready in %.1f s", time.monotonic() - started)
        if self._embedder_folder is not None:
            await self._load_embedder(self._embedder_folder, answers, routes)
        await self.embeddings.load(self._embedder if self._index else None, self._embedder_folder)

    def retune(self, settings: Settings) -> None:
        """Take over settings that differ from those of the start in what holds without a restart."""
        self._settings = settings
        self.adapters.retune(settings)
        if self._backend is not None:
            self._backend.routes.retune(settings.routing)
            self._backend.answers.retune(cache_policy(settings.cache))

    async def cancel(self) -> None:
        """End what the engine and upstreams still answer; requests on the road fail with 503."""
        self._upstreams.stop()
        try:
            async with asyncio.timeout(STOP_S):
                await in_own_thread(self._engine.stop, "stop engine")
        except TimeoutError:  # what hangs on a device cannot be interrupted
            logger.warning("a step has not ended within %g s, and is left", STOP_S)

    async def close(self) -> None:
        """Stop the engine, the index and the embedder's thread, and leave Redis."""
        await self.cancel()
        for compares in (self._audits, self._comparisons, self._shadows):
            if compares is not None:
                await compares.close()
        if self._shared is not None:
            await self._shared.close()
        if isinstance(self._journal, FileJournal):
            self._journal.close()
        if self._index is not None:
            await self._index.close()
        if self._redis is not None:
            await self._redis.close()
        await self._upstreams.close()
        await self.embeddings.close()
        if self._embedder is not None:
            await self._embedder.close()

    def _load_models(self) -> None:
        if self._settings.models:
            self._load_checkpoints()
        found = self._learned = learned(self._settings, self._embedder_folder)
        self._pair = compared_pair(self._settings, None if found is None else found.models, self._embedder_folder)
        if len(self._settings.served) > 1:
            # Here and not on the event loop, under the first request that leaves the choice to the router.
            self._classifier.fit()

    def _load_checkpoints(self) -> None:
        self._engine.load(
            *(
                ModelSpec(
                    m.id,
                    model_path(m),
                    dtype=m.dtype,
                    weights=m.weights,
                    context_length=m.context_length,
                    tool_calls=m.tool_calls,
                    adapter=adapter_path(m),
                    adapters={each.id: path for each in m.models[1:] if (path := adapter_path(each)) is not None},
                    drafter=m.drafter,
                )
                for m in self._settings.models
            )
        )

    async def _measure(self, routes: Routes) -> None:
        """Know how fast the models are where there is a choice between them."""
        local = [d for d in routes.destinations.values() if isinstance(d, LocalDestination)]
        if len(local) < 2:
            return
        try:
            for destination in local:
                if destination.id in self._engine.lanes:  # the others take the same steps
                    await destination.measure()
        except EngineError as error:
            logger.warning("how fast the models are is not known until they answer: %s", error)

    def _open(self) -> tuple[Answers, Routes]:
        settings = self._settings
        tiers = {m.id: m.tier for m in settings.served if m.tier is not None}
        models = self._engine.models
        pictures = PictureDecoder(PictureLimits.of(settings.server))
        local = [
            LocalDestination(models[m.id], lacks=m.lacks, sleep=m.sleep, pictures=pictures) for m in settings.local
        ]
        destinations: list[Destination] = [*local, *self._upstreams.open()]
        quality = self._learned
        routes = Routes(
            destinations,
            tiers,
            self._classifier,
            settings,
            quality=None if quality is None else quality.estimates,
            thresholds=None if quality is None else quality.thresholds,
            cascades=None if quality is None else quality.cascade,
            estimated=None if quality is None else quality.models,
            secret=self._secret,
        )
        self._metrics.registry.register(BreakerCollector(lambda: routes.watched))
        if self._redis is None and settings.cache.exact.enabled:
            self._memory = MemoryStore(int(settings.cache.exact.max_bytes), time.time, elapsed)
        store: Store | None = self._redis or self._memory
        journal = self._journal
        share = InsertShare(settings.cache.insert_share, INSERT_WINDOW_S, time.time, settings.cache.inserts_per_hour)
        epoch = Epoch(settings.cache.epoch, journal)
        answers = Answers(store, self._fingerprinter, cache_policy(settings.cache), share=share, epoch=epoch)
        if store is not None and self._embedder_folder is not None:
            voices = settings.feedback.voices
            self._audits = make_audits(settings.cache.semantic, store, routes, self._calibration, journal, voices)
            self._metrics.registry.register(AuditCollector(self._audits, self._engine.lanes))
            self._audits.start()
        if journal is not None:
            self._shared = SharedState(journal, epoch, None if self._audits is None else self._audits.watch)
        if self._pair is not None:
            self._comparisons = Comparisons.opened(settings.routing.outcomes, routes, self._pair)
            self._comparisons.start()
        self._shadows = Shadows(routes, self._admission.accounts, self._metrics.registry)
        self._shadows.start()
        road = Road(
            routes=routes,
            answers=answers,
            metrics=self._metrics,
            audits=self._audits,
            admission=self._admission,
            comparisons=self._comparisons,
            shadows=self._shadows,
        )
        self.remembers["retries"] = road.retries
        if self._audits is not None:
            self.remembers["labels"] = self._audits.watch.log
        passing = Passing(self._upstreams.passers, routes.breakers, self._admission, self._metrics)
        self._backend = Backend(road, passing, routes, answers, self._audits, self._comparisons)
        return answers, routes

    def _open_journal(self) -> FileJournal | RedisJournal | None:
        """Where what must outlive the process is kept: with the answers in Redis, else in the folder that is named."""
        if self._redis is not None:
            from headgate.cache.store.redis_journal import RedisJournal

            return RedisJournal(self._redis, self._fingerprinter.all_tag)
        folder = self._settings.cache.journal
        if folder is None or not self._settings.cache.exact.enabled:
            return None
        try:
            return FileJournal(Path(folder))
        except (OSError, ValueError) as error:
            raise StartError(f"cache.journal is '{folder}': {error}") from None

    async def _load_embedder(self, folder: Path, answers: Answers, routes: Routes) -> None:
        section = self._settings.cache.semantic
        rule = SemanticRule(section.max_error, section.near_similarity, section.max_chars, section.traffic)
        judge = Judge.load()
        self._embedder = embedder = SentenceEmbedder(folder, comparator=judge.comparator)
        try:
            waits = partial(self._lifecycle.set, "semantic cache", "loading", required=False)
            await once_files_open(embedder.load, waits)
            await once_files_open(partial(routes.understand, embedder), waits)
            self._index = index = SharedIndex(embedder.dim, embedder.name, self._redis)
            if self._memory is not None:
                self._memory.beside(lambda: index.index.bytes_used)
            self.remembers |= {"embeddings": embedder, "texts": judge}
            fitting = judge if judge.embedder == embedder.name else None
            if fitting is not None and (refused := fitting.uncertified(rule.traffic, rule.max_error)) is not None:
                logger.warning("cache.semantic: %s", refused)
            await self._resume(section, fitting)
            answers.understand(
                embedder, index.index, rule, fitting, None if self._audits is None else self._audits.watch
            )
            await index.start()
        except Exception as error:
            # Worth a warning, not an outage: exact answers are still served, and words still tell tasks apart.
            logger.warning("the semantic cache is off: %s", error)
            self._lifecycle.set("semantic cache", "failed", str(error), required=False)
        else:
            self._lifecycle.set("semantic cache", "ready", self._embedder_why, required=False)

    async def _resume(self, section: SemanticCacheSection, judge: Judge | None) -> None:
        """Have the watch go on where it was left, for the same rule at the same level."""
        if self._audits is None:
            return
        name = "alike" if judge is None else judge.identity
        rule = f"{name}:{section.traffic}:{section.max_error!r}:{section.audit.share!r}:{section.audit.alpha!r}"
        try:
            await self._audits.watch.resume(rule, None if judge is None else judge.model)
        except OSError as error:
            logger.warning("what audits found before is not known until the journal answers: %s", error)
