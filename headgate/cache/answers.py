"""The answer cache: what the road asks before it generates, and tells when it has."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headgate.cache.audits.watch import Watch
from headgate.cache.embedding.embedder import Embedder
from headgate.cache.exact import find
from headgate.cache.fingerprint import CacheQuery, Fingerprint, Fingerprinter
from headgate.cache.in_flight import InFlight
from headgate.cache.index import Place, Vector, VectorIndex
from headgate.cache.judge import Judge
from headgate.cache.semantic import Asked, SemanticRule, asked_of, barred, find_similar
from headgate.cache.store.base import Entries, Store, StoreDownError
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, Hit, Miss, StoredChoice, Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a look-up found, and what storing and routing can use again."""

    verdict: Verdict
    fingerprint: Fingerprint
    vector: Vector | None
    """Embedding `[dim]` of the last user text, where the look-up needed it."""
    asked: float | None = None
    """When it was asked, in seconds since the epoch: an answer that is purged meanwhile is not stored."""
    sketch: bytes = b""
    """Of the last user text, where there is a vector and a judge."""


@dataclass(frozen=True, slots=True)
class AtHand:
    """An answer that is stored in this process."""

    packed: bytes
    """As it is stored."""
    hit: Hit


@dataclass(slots=True)
class CacheFaults:
    """Calls that failed since the start. Each counted as a miss or as not stored; no request failed by it."""

    store: int = 0
    embedder: int = 0
    index: int = 0


class AnswerCache:
    """Finished answers, found again exactly or by meaning.

    Nothing here raises on account of a store, index or embedder that fails: the request is answered without the cache.
    """

    def __init__(
        self,
        store: Store,
        fingerprinter: Fingerprinter,
        index: VectorIndex | None,
        embedder: Embedder | None,
        clock: Callable[[], float],
        rule: SemanticRule | None = None,
        judge: Judge | None = None,
    ) -> None:
        """A cache over a store.

        Args:
            store: where the answers are.
            fingerprinter: makes the keys.
            index: finds similar texts; without it or without an embedder only exact hits are served.
            embedder: makes the vectors of the index.
            clock: seconds since the epoch.
            rule: the bounds of the semantic look-up; None takes the defaults.
            judge: says which similar text's answer may be served, if one was fitted on the embedder's model.
        """
        self._store = store
        self._fingerprinter = fingerprinter
        self._index = index
        self._embedder = embedder
        self._clock = clock
        self._rule = rule or SemanticRule()
        self._watch: Watch | None = None
        self._judge = judge
        self._in_flight = None if embedder is None else InFlight(embedder.dim)
        self.faults = CacheFaults()
        store.on_forget(self._forget)

    def understand(
        self,
        embedder: Embedder,
        index: VectorIndex,
        rule: SemanticRule,
        judge: Judge | None = None,
        watch: Watch | None = None,
    ) -> None:
        """From now on find similar questions too: the embedder has been loaded. What `watch` holds back is near."""
        self._embedder, self._index, self._rule = embedder, index, rule
        self._judge, self._watch = judge, watch
        self._in_flight = InFlight(embedder.dim)

    def at_hand(self, fingerprint: Fingerprint, before: AtHand | None = None) -> AtHand | None:
        """The exact answer of whatever age, where the store is in this process and can be asked without waiting.

        `before` is what this gave the last time, and gives again while that is what is stored.
        """
        store, key = self._store, fingerprint.exact_key
        if not isinstance(store, MemoryStore) or (packed := store.packed(key)) is None:
            return None
        if before is not None and before.packed is packed:
            return before
        return AtHand(packed, Hit("exact", store.unpacked(key, packed), 1.0))

    async def lookup(
        self,
        query: CacheQuery,
        *,
        max_age: float | None = None,
        semantic: bool = True,
        max_error: float | None = None,
    ) -> Lookup:
        """Look for an answer: the exact one first, then one to the same question in other words.

        Args:
            query: the request.
            max_age: seconds; an older answer is not served. None sets no bound.
            semantic: whether an answer to another text may be served or drafted from. False computes no vector.
            max_error: share of wrong answers that is accepted among hits served by meaning. None takes the rule's.
                Where the rule cannot promise so few, nothing is served by meaning.

        Raises:
            ValueError: `max_error` is not between 0 and 1.
        """
        if max_error is not None and not 0.0 < max_error < 1.0:
            raise ValueError(f"max_error is {max_error}; more than 0 and less than 1 is accepted")
        fingerprint = self._fingerprinter.fingerprint(query)
        now = self._clock()
        try:
            entry = await find(self._store, fingerprint.exact_key, now=now, max_age=max_age)
        except Exception as error:
            self._fault("store", error)
            entry = None
        if entry is not None:
            return Lookup(Hit("exact", entry, 1.0), fingerprint, None, now)
        if not semantic or self._index is None or self._embedder is None or not query.text.strip():
            return Lookup(Miss(), fingerprint, None, now)
        try:
            embedding = self._embedder.embed(query.text, query.scope)
            # It is embedded on another thread, and without the interpreter.
            asked = self._asked(query)
            vector = await embedding
            sketch = await self._embedder.sketch(query.text, query.scope)
        except Exception as error:
            self._fault("embedder", error)
            return Lookup(Miss("embedder"), fingerprint, None, now)
        try:
            verdict: Verdict = Miss("index")
            if asked is not None:
                verdict = await self._similar(
                    self._store, self._index, query, fingerprint, asked, vector, sketch, max_age, max_error
                )
        except Exception as error:
            self._fault("store" if isinstance(error, OSError) else "index", error)
            verdict = Miss("index")
        return Lookup(verdict, fingerprint, vector, now, sketch)

    async def neighbour(
        self, query: CacheQuery, found: Lookup, *, max_age: float | None = None, max_error: float | None = None
    ) -> str | None:
        """A similar question that is being answered, if its answer would be served; what `landed` waits for.

        Args:
            query: the request.
            found: what its look-up gave.
            max_age: as for the look-up.
            max_error: as for the look-up.
        """
        if self._in_flight is None or found.vector is None:
            return None
        flying, index = self._in_flight, self._in_flight.index
        asked = self._asked(query)
        if asked is None:
            return None
        try:
            verdict = await self._similar(
                flying, index, query, found.fingerprint, asked, found.vector, found.sketch, max_age, max_error
            )
        except Exception as error:
            self._fault("index", error)
            return None
        return verdict.entry.key if isinstance(verdict, Hit) else None

    async def landed(self, neighbour: str, within_s: float) -> bool:
        """Wait until a neighbour is answered or given up, but not longer than `within_s`; whether it was."""
        return self._in_flight is None or await self._in_flight.landed(neighbour, within_s)

    @contextmanager
    def answering(self, query: CacheQuery, found: Lookup) -> Iterator[None]:
        """Have a question found as a neighbour while its answer is made and stored."""
        if self._in_flight is None or found.vector is None:
            yield
            return
        now = self._clock()
        seal = self._seal(query)
        entry = Entry(found.fingerprint.exact_key, query.text, (), "", 0, 0, 0.0, now, math.inf, found.sketch, seal)
        with self._in_flight.answering(entry, found.fingerprint.bucket, found.vector):
            yield

    async def _similar(
        self,
        store: Entries,
        index: VectorIndex,
        query: CacheQuery,
        fingerprint: Fingerprint,
        asked: Asked,
        vector: Vector,
        sketch: bytes,
        max_age: float | None,
        max_error: float | None,
    ) -> Verdict:
        return await find_similar(
            store,
            index,
            self._rule,
            self._judge,
            bucket=fingerprint.bucket,
            scope=query.scope,
            asked=asked,
            vector=vector,
            sketch=sketch,
            now=self._clock(),
            max_age=max_age,
            max_error=max_error,
            watch=self._watch,
        )

    async def store(
        self,
        fingerprint: Fingerprint,
        query: CacheQuery,
        *,
        choices: tuple[StoredChoice, ...],
        model: str,
        prompt_tokens: int,
        completion_tokens: int,
        image_tokens: int = 0,
        device_s: float,
        vector: Vector | None,
        ttl: float,
        findable: bool = True,
        tags: frozenset[str] = frozenset(),
        asked: float | None = None,
    ) -> Entry | None:
        """Keep a finished answer for `ttl` seconds.

        Args:
            fingerprint: as the look-up gave it.
            query: the request it answers.
            choices: the finished choices.
            model: id of the model that wrote them.
            prompt_tokens: tokens of the prompt.
            completion_tokens: tokens of all choices together.
            image_tokens: those of the prompt's that stand for pictures.
            device_s: device seconds the generation took.
            vector: as the look-up gave it.
            ttl: seconds; 0 or less keeps nothing.
            findable: whether the answer may be served to similar questions too. Where the look-up made no vector, for
                it was forbidden to serve a similar answer, one is made now.
            tags: of `Fingerprinter`, to forget the answer by. Its scope's and the one of all are there already.
            asked: as the look-up gave it; the answer is not kept if one of its tags was purged since.

        Returns:
            The entry, or None where it was not kept.
        """
        vector = await self._vector(query, vector) if findable else None
        now = self._clock()
        entry = Entry(
            key=fingerprint.exact_key,
            text=query.text,
            choices=choices,
            model=model,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            image_tokens=image_tokens,
            device_s=device_s,
            created=now,
            expires=now + ttl,
            sketch=await self._sketch(query) if vector is not None else b"",
            seal=self._seal(query) if vector is not None else b"",
        )
        try:
            tags |= {fingerprint.scope_tag, self._fingerprinter.all_tag}
            kept = await self._store.put(entry, tags, self._place(fingerprint, vector), asked=asked)
        except Exception as error:
            self._fault("store", error)
            return None
        if not kept:
            return None
        if self._index is not None:
            try:
                if vector is not None:
                    self._index.add(entry.key, fingerprint.bucket, vector)
                else:
                    # It takes the place of an older answer, which may have been found by meaning.
                    self._index.remove(entry.key)
            except Exception as error:
                self._fault("index", error)
        return entry

    async def _sketch(self, query: CacheQuery) -> bytes:
        """As the look-up made it; the embedder still has it."""
        if self._embedder is None:
            return b""
        try:
            return await self._embedder.sketch(query.text, query.scope)
        except Exception as error:
            self._fault("embedder", error)
            return b""

    def _asked(self, query: CacheQuery) -> Asked | None:
        """What is read in the text; None where that fails."""
        try:
            return asked_of(query.text, self._rule, self._judge, query.scope)
        except Exception as error:
            self._fault("index", error)
            return None

    def _seal(self, query: CacheQuery) -> bytes:
        """Of what the look-up has read; the judge remembers it."""
        if self._judge is None or barred(query.text, self._rule) is not None:
            return b""
        try:
            return self._judge.seal(query.text, query.scope)
        except Exception as error:
            self._fault("index", error)
            return b""

    async def _vector(self, query: CacheQuery, vector: Vector | None) -> Vector | None:
        if vector is not None or self._embedder is None or not query.text.strip():
            return vector
        try:
            return await self._embedder.embed(query.text, query.scope)
        except Exception as error:
            self._fault("embedder", error)
            return None

    def _place(self, fingerprint: Fingerprint, vector: Vector | None) -> Place | None:
        if vector is None or self._embedder is None:
            return None
        held = 0 if self._index is None else self._index.row_bytes(fingerprint.bucket)
        return Place(fingerprint.bucket, vector, self._embedder.name, held)

    async def purge_tagged(self, tag: str) -> int:
        """Forget every answer stored under a tag of `Fingerprinter`; gives how many there were.

        Raises:
            OSError: the store cannot be reached, so nothing is known to be forgotten.
        """
        return await self._store.delete_tagged(tag)

    async def count(self) -> int:
        """Answers stored.

        Raises:
            OSError: the store cannot be reached.
        """
        return await self._store.count_tagged(self._fingerprinter.all_tag)

    async def purge_key(self, key: str) -> bool:
        """Forget one answer by its exact key. False where there was none.

        Raises:
            OSError: the store cannot be reached, so nothing is known to be forgotten.
        """
        return await self._store.delete(key)

    def _forget(self, key: str) -> None:
        if self._index is None:
            return
        try:
            self._index.remove(key)
        except Exception as error:
            self._fault("index", error)

    def _fault(self, part: str, error: Exception) -> None:
        setattr(self.faults, part, getattr(self.faults, part) + 1)
        if isinstance(error, StoreDownError):
            return
        logger.warning("the answer cache goes on without its %s: %s: %s", part, type(error).__name__, error)
