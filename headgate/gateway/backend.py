"""What answers requests once everything is loaded, and how it comes up."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from headgate.engine.engine import Engine
from headgate.engine.errors import EngineError
from headgate.engine.front.local import LocalModel
from headgate.engine.settings import ModelSpec
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.audits import Audits
from headgate.gateway.caching.loader import CacheLoader
from headgate.gateway.embedding.embeddings import Embeddings
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.local.adapters import Adapters
from headgate.gateway.local.checkpoints import adapter_path, model_path
from headgate.gateway.local.daemon_thread import in_own_thread
from headgate.gateway.local.destination import LocalDestination
from headgate.gateway.local.health import part_of
from headgate.gateway.local.pictures import PictureDecoder, PictureLimits
from headgate.gateway.parts import StartError
from headgate.gateway.pipeline import Road
from headgate.gateway.road.destinations import Destination
from headgate.gateway.road.passthrough import Passing
from headgate.gateway.routing.comparisons import Comparisons, compared_pair
from headgate.gateway.routing.lessons import Pair
from headgate.gateway.routing.quality import Learned, learned
from headgate.gateway.routing.routes import Routes
from headgate.gateway.routing.shadows import Shadows
from headgate.gateway.settings import Settings
from headgate.gateway.teams.admission import Admission
from headgate.gateway.telemetry.metrics.audits import AuditCollector
from headgate.gateway.telemetry.metrics.registry import Metrics
from headgate.gateway.telemetry.metrics.remembered import Remembers
from headgate.gateway.telemetry.metrics.routes import BreakerCollector
from headgate.gateway.telemetry.metrics.server import PictureCollector
from headgate.gateway.telemetry.metrics.upstreams import UpstreamCollector
from headgate.gateway.upstream.pool import Upstreams
from headgate.routing.classes import TaskClassifier
from headgate.routing.tasks import load_tasks

logger = logging.getLogger("headgate.gateway")

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
        self._classifier = TaskClassifier(load_tasks([Path(file) for file in settings.routing.classes]))
        self._learned: Learned | None = None
        self._pair: Pair | None = None
        self._comparisons: Comparisons | None = None
        self._shadows: Shadows | None = None
        self._backend: Backend | None = None
        self._required = [part_of(m.id) for m in settings.local] + [f"upstream {u.id}" for u in settings.upstreams]
        try:
            self.embeddings = Embeddings(settings.embeddings, lifecycle, admission)
            self.cache = CacheLoader(settings, lifecycle)
            self._upstreams = Upstreams(settings.upstreams, os.environ)
        except (ImportError, ValueError) as error:
            raise StartError(str(error)) from None
        metrics.registry.register(UpstreamCollector(self._upstreams.standings))
        for name in self._required:
            lifecycle.set(name, "loading")

    @property
    def device(self) -> torch.device:
        """Where the engine computes."""
        return self._engine.device

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

    @property
    def remembers(self) -> dict[str, Remembers]:
        """What remembers ended requests, as far as it is loaded."""
        own: dict[str, Remembers] = {} if self._backend is None else {"retries": self._backend.road.retries}
        return own | self.cache.remembers

    async def connect(self) -> None:
        """See what gateways share. Call it before `run`; it takes no longer than `cache.redis_timeout_s`.

        Raises:
            StartError: the folder of the cache's journal cannot be used.
        """
        await self.cache.connect()
        self._admission.share(self.cache.redis, self._settings.server.replicas)

    async def run(self) -> None:
        """Load the models, open the road, then load what only improves it.

        Raises:
            CheckpointError: a model cannot be served; the message names the file.
            QualityError: what was learned of the models cannot be used as the settings want it.
        """
        started = time.monotonic()
        await in_own_thread(self._load_models, "load models")
        self._engine.start()
        routes = self._open()
        await self._measure(routes)
        await self.adapters.open(routes)
        await self.cache.follow()
        for name in self._required:
            self._lifecycle.set(name, "ready")
        logger.info("ready in %.1f s", time.monotonic() - started)
        await self.cache.understand(routes)
        await self.embeddings.load(self.cache.embedder, self.cache.folder)

    def retune(self, settings: Settings) -> None:
        """Take over settings that differ from those of the start in what holds without a restart."""
        self._settings = settings
        self.adapters.retune(settings)
        if self._backend is not None:
            self._backend.routes.retune(settings.routing)
        self.cache.retune(settings)

    async def cancel(self) -> None:
        """End what the engine and upstreams still answer; requests on the road fail with 503."""
        self._upstreams.stop()
        try:
            async with asyncio.timeout(STOP_S):
                await in_own_thread(self._engine.stop, "stop engine")
        except TimeoutError:  # what hangs on a device cannot be interrupted
            logger.warning("a step has not ended within %g s, and is left", STOP_S)

    async def close(self) -> None:
        """Stop the engine, and end what compares answers before what answers; the cache ends last."""
        await self.cancel()
        for compares in (self.cache.audits, self._comparisons, self._shadows):
            if compares is not None:
                await compares.close()
        await self._upstreams.close()
        await self.embeddings.close()
        await self.cache.close()

    def _load_models(self) -> None:
        if self._settings.models:
            self._load_checkpoints()
        found = self._learned = learned(self._settings, self.cache.folder)
        self._pair = compared_pair(self._settings, None if found is None else found.models, self.cache.folder)
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

    def _open(self) -> Routes:
        settings = self._settings
        tiers = {m.id: m.tier for m in settings.served if m.tier is not None}
        models = self._engine.models
        pictures = PictureDecoder(PictureLimits.of(settings.server))
        self._metrics.registry.register(PictureCollector(lambda: pictures.nbytes))
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
            secret=self.cache.secret,
        )
        self._metrics.registry.register(BreakerCollector(lambda: routes.watched))
        answers, audits = self.cache.open(routes), self.cache.audits
        if audits is not None:
            self._metrics.registry.register(AuditCollector(audits, self._engine.lanes))
        if self._pair is not None:
            self._comparisons = Comparisons.opened(settings.routing.outcomes, routes, self._pair)
            self._comparisons.start()
        self._shadows = Shadows(routes, self._admission.accounts, self._metrics.registry)
        self._shadows.start()
        road = Road(
            routes=routes,
            answers=answers,
            metrics=self._metrics,
            audits=audits,
            admission=self._admission,
            comparisons=self._comparisons,
            shadows=self._shadows,
        )
        passing = Passing(self._upstreams.passers, routes.breakers, self._admission, self._metrics)
        self._backend = Backend(road, passing, routes, answers, audits, self._comparisons)
        return routes
