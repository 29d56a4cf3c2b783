"""How the answer cache comes up and goes down: with the road its exact half, and the other once its model is read."""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.judge import Judge
from headgate.cache.quota import InsertShare
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.base import Store
from headgate.cache.store.journal import FileJournal
from headgate.cache.store.memory import MemoryStore, elapsed
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.audits import Audits
from headgate.gateway.caching.shared_state import Epoch, SharedState
from headgate.gateway.caching.store import connect_redis, open_redis
from headgate.gateway.caching.vector_index import SharedIndex
from headgate.gateway.configuration.cache import SemanticCacheSection
from headgate.gateway.embedding.embedding_model import once_files_open
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.parts import (
    StartError,
    cache_policy,
    certified_labels,
    embedder_folder,
    fingerprint_secret,
    make_audits,
)
from headgate.gateway.routing.routes import Routes
from headgate.gateway.settings import Settings
from headgate.gateway.telemetry.metrics.cache import CacheState
from headgate.gateway.telemetry.metrics.remembered import Remembers

if TYPE_CHECKING:
    from headgate.cache.store.redis import RedisStore
    from headgate.cache.store.redis_journal import RedisJournal

logger = logging.getLogger("headgate.gateway")

PART = "semantic cache"
INSERT_WINDOW_S = 3600.0
"""Over how long the answers that a key makes are counted."""


class CacheLoader:
    """Brings the answer cache up, step by step, and down again."""

    def __init__(self, settings: Settings, lifecycle: Lifecycle) -> None:
        """Find what the settings name; nothing is connected or read yet.

        Raises:
            StartError: the settings name what is not there.
            ImportError: they name a Redis, and the redis package is not installed.
        """
        self._settings = settings
        self._lifecycle = lifecycle
        self.secret = fingerprint_secret(settings)
        """What keys the fingerprints."""
        self.fingerprinter = Fingerprinter(self.secret)
        """Names what must not be told apart by others."""
        self.folder, self._why = embedder_folder(settings)
        """Of the embedding model, where there is one."""
        self._calibration = certified_labels(settings.cache.semantic)
        self.redis: RedisStore | None = open_redis(settings.cache, lifecycle)
        """What gateways share, once `connect` has found it."""
        self.audits: Audits | None = None
        """Of what is served by meaning, from `open` on."""
        self.remembers: dict[str, Remembers] = {}
        """What remembers ended requests, as far as it is loaded."""
        self._answers: Answers | None = None
        self._embedder: SentenceEmbedder | None = None
        self._index: SharedIndex | None = None
        self._memory: MemoryStore | None = None
        self._journal: FileJournal | RedisJournal | None = None
        self._shared: SharedState | None = None
        lifecycle.set(PART, "off" if self.folder is None else "loading", self._why, required=False)

    @property
    def embedder(self) -> SentenceEmbedder | None:
        """The embedding model, where similar questions are found by it."""
        return self._embedder if self._index else None

    def state(self) -> CacheState:
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
            faults={} if self._answers is None else self._answers.faults,
        )

    async def connect(self) -> None:
        """See whether Redis answers, and open the journal. It takes no longer than `cache.redis_timeout_s`.

        Raises:
            StartError: the journal's folder cannot be used.
        """
        if self.redis is not None:
            self.redis = await connect_redis(self.redis, self._settings.cache, self._lifecycle)
        self._journal = self._open_journal()

    def open(self, routes: Routes) -> Answers:
        """Answers that are found exactly, and the audits of those that will be found by meaning; call `connect` before.

        `routes`: to what answers anew for an audit.
        """
        section = self._settings.cache
        if self.redis is None and section.exact.enabled:
            self._memory = MemoryStore(int(section.exact.max_bytes), time.time, elapsed)
        store: Store | None = self.redis or self._memory
        journal = self._journal
        share = InsertShare(section.insert_share, INSERT_WINDOW_S, time.time, section.inserts_per_hour)
        epoch = Epoch(section.epoch, journal)
        self._answers = Answers(store, self.fingerprinter, cache_policy(section), share=share, epoch=epoch)
        if store is not None and self.folder is not None:
            voices = self._settings.feedback.voices
            self.audits = make_audits(section.semantic, store, routes, self._calibration, journal, voices)
            self.audits.start()
            self.remembers["labels"] = self.audits.watch.log
        if journal is not None:
            self._shared = SharedState(journal, epoch, None if self.audits is None else self.audits.watch)
        return self._answers

    async def follow(self) -> None:
        """Begin to follow what other gateways decide about it."""
        if self._shared is not None:
            await self._shared.start()

    async def understand(self, routes: Routes) -> None:
        """Read the embedding model, where there is one, and find similar questions from then on. Call `open` before.

        `routes`: learn of the model, too.
        """
        answers = self._answers
        if self.folder is None or answers is None:
            return
        section = self._settings.cache.semantic
        rule = SemanticRule(section.max_error, section.near_similarity, section.max_chars, section.traffic)
        judge = Judge.load()
        self._embedder = embedder = SentenceEmbedder(self.folder, comparator=judge.comparator)
        try:
            waits = partial(self._lifecycle.set, PART, "loading", required=False)
            await once_files_open(embedder.load, waits)
            await once_files_open(partial(routes.understand, embedder), waits)
            self._index = index = SharedIndex(embedder.dim, embedder.name, self.redis)
            if self._memory is not None:
                self._memory.beside(lambda: index.index.bytes_used)
            self.remembers |= {"embeddings": embedder, "texts": judge}
            fitting = judge if judge.embedder == embedder.name else None
            if fitting is not None and (refused := fitting.uncertified(rule.traffic, rule.max_error)) is not None:
                logger.warning("cache.semantic: %s", refused)
            await self._resume(section, fitting)
            answers.understand(embedder, index.index, rule, fitting, None if self.audits is None else self.audits.watch)
            await index.start()
        except Exception as error:
            # Worth a warning, not an outage: exact answers are still served, and words still tell tasks apart.
            logger.warning("the semantic cache is off: %s", error)
            self._lifecycle.set(PART, "failed", str(error), required=False)
        else:
            self._lifecycle.set(PART, "ready", self._why, required=False)

    def retune(self, settings: Settings) -> None:
        """Take over settings that differ from those of the start in what holds without a restart."""
        self._settings = settings
        if self._answers is not None:
            self._answers.retune(cache_policy(settings.cache))

    async def close(self) -> None:
        """Leave what is shared, and end the embedder's thread. Close the audits before, for they ask models."""
        if self._shared is not None:
            await self._shared.close()
        if isinstance(self._journal, FileJournal):
            self._journal.close()
        if self._index is not None:
            await self._index.close()
        if self.redis is not None:
            await self.redis.close()
        if self._embedder is not None:
            await self._embedder.close()

    def _open_journal(self) -> FileJournal | RedisJournal | None:
        """Where what must outlive the process is kept: with the answers in Redis, else in the folder that is named."""
        if self.redis is not None:
            from headgate.cache.store.redis_journal import RedisJournal

            return RedisJournal(self.redis, self.fingerprinter.all_tag)
        folder = self._settings.cache.journal
        if folder is None or not self._settings.cache.exact.enabled:
            return None
        try:
            return FileJournal(Path(folder))
        except (OSError, ValueError) as error:
            raise StartError(f"cache.journal is '{folder}': {error}") from None

    async def _resume(self, section: SemanticCacheSection, judge: Judge | None) -> None:
        """Have the watch go on where it was left, for the same rule at the same level."""
        if self.audits is None:
            return
        name = "alike" if judge is None else judge.identity
        rule = f"{name}:{section.traffic}:{section.max_error!r}:{section.audit.share!r}:{section.audit.alpha!r}"
        try:
            await self.audits.watch.resume(rule, None if judge is None else judge.model)
        except OSError as error:
            logger.warning("what audits found before is not known until the journal answers: %s", error)
