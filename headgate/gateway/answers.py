"""The road's side of the answer cache: which requests take part, under which key, and how answers go in and out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from headgate.cache.answers import AnswerCache, Lookup
from headgate.cache.embedder import Embedder, Vector
from headgate.cache.fingerprint import CacheQuery, Fingerprint, Fingerprinter, canonical_json
from headgate.cache.index import VectorIndex
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.base import Store
from headgate.cache.verdict import Entry, Miss, StoredChoice
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.destinations import Destination, Outcome
from headgate.gateway.request import AnswerFinish, ChatRequest, Choice, Chunk, Usage

KEY_EPOCH = "1"
"""Raised when the key's contents change their meaning, so that a shared store never mixes the two."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request as the cache is asked for it.

    Attributes:
        may_read: a stored answer, or one being made for somebody else, may be served.
        may_store: the answer may be kept.
        semantic: an answer to the same question in other words will do.
        max_age_s: oldest answer that will do; None sets no bound.
    """

    query: CacheQuery
    fingerprint: Fingerprint
    may_read: bool
    may_store: bool
    semantic: bool
    max_age_s: float | None

    @property
    def flight_key(self) -> str:
        """Requests of one key may share a generation."""
        return f"{self.fingerprint.exact_key}:{self.max_age_s}"


@dataclass(frozen=True, slots=True)
class Restored:
    """A stored answer, as the generation that made it would have sent it."""

    chunks: tuple[Chunk, ...]
    outcome: Outcome


class Answers:
    """Asks the cache and tells it. Without a cache no request takes part."""

    def __init__(
        self,
        store: Store | None,
        fingerprinter: Fingerprinter,
        ttl_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Exact answers over a store; none at all without one.

        Args:
            store: where they are kept.
            fingerprinter: makes their keys.
            ttl_s: seconds an answer is kept.
            clock: seconds since the epoch.
        """
        self._clock = clock
        self._store = store
        self._fingerprinter = fingerprinter
        self._ttl_s = ttl_s
        self._cache = None if store is None else AnswerCache(store, fingerprinter, None, None, clock)

    def understand(self, embedder: Embedder, index: VectorIndex, rule: SemanticRule) -> None:
        """From now on serve similar questions too: the embedder has been loaded."""
        if self._store is not None:
            self._cache = AnswerCache(self._store, self._fingerprinter, index, embedder, self._clock, rule)

    def question(self, request: ChatRequest, team: str, candidates: Sequence[Destination]) -> Question | None:
        """What to ask the cache, or None where the request takes no part.

        Args:
            request: the request.
            team: whose it is; answers never cross teams.
            candidates: where it could be generated.
        """
        control = request.cache
        if self._cache is None or control.no_store:
            return None
        # Where the destinations' defaults differ, the most random one decides.
        greedy = max(d.temperature(request.sampling) for d in candidates) == 0
        if not (greedy or request.sampling.seed is not None or control.max_age_s is not None):
            return None
        text = request.last_user_text
        query = CacheQuery(
            scope=team,
            model=request.model,
            revision=_revision(candidates),
            context=canonical_json(_context(request, greedy=greedy)),
            text=text or "",
        )
        return Question(
            query,
            self._fingerprinter.fingerprint(query),
            may_read=not control.no_cache,
            may_store=True,
            semantic=greedy and text is not None and request.logprobs is None,
            max_age_s=control.max_age_s,
        )

    async def look_up(self, question: Question) -> Lookup:
        """The verdict, and the embedding where one was made."""
        if self._cache is None or not question.may_read:
            return Lookup(Miss("bypass"), question.fingerprint, None)
        return await self._cache.lookup(question.query, max_age=question.max_age_s, semantic=question.semantic)

    async def store(
        self, question: Question, vector: Vector | None, model: str, choices: Sequence[Choice], outcome: Outcome
    ) -> None:
        """Keep a whole answer."""
        if self._cache is None or not question.may_store:
            return
        # An answer cut off at the token limit serves the same request again, never a similar one.
        cut = any(c.finish_reason == "length" for c in choices)
        await self._cache.store(
            question.fingerprint,
            question.query,
            choices=tuple(
                StoredChoice(c.text, c.finish_reason, c.token_ids, _pack(c.logprobs) if c.logprobs else b"")
                for c in choices
            ),
            model=model,
            prompt_tokens=outcome.usage.prompt_tokens,
            completion_tokens=outcome.usage.completion_tokens,
            device_s=outcome.device_s,
            vector=None if cut or not question.semantic else vector,
            ttl=self._ttl_s,
        )


def restore(entry: Entry) -> Restored:
    """The chunks and account of a stored answer. Usage is that of the generation; nothing waited or computed now."""
    chunks = tuple(
        Chunk(index, choice.text, _unpack(choice.logprobs), _finish(choice.finish_reason), choice.token_ids)
        for index, choice in enumerate(entry.choices)
    )
    return Restored(chunks, Outcome(Usage(entry.prompt_tokens, entry.completion_tokens, 0), 0.0, 0.0))


def _finish(reason: str) -> AnswerFinish:
    return "length" if reason == "length" else "stop"


def _pack(logprobs: tuple[TextLogprob, ...]) -> bytes:
    return msgspec.msgpack.encode(logprobs)


def _unpack(packed: bytes) -> tuple[TextLogprob, ...]:
    return msgspec.msgpack.decode(packed, type=tuple[TextLogprob, ...]) if packed else ()


def _revision(candidates: Sequence[Destination]) -> str:
    parts = [KEY_EPOCH, *sorted(f"{d.id}={d.revision}" for d in candidates)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _context(request: ChatRequest, *, greedy: bool) -> dict[str, Any]:
    """Everything that can change the answer, but for the last user text."""
    sampling: dict[str, Any] = asdict(request.sampling)
    if greedy:
        # They change nothing where the likeliest token is taken.
        for name in ("temperature", "top_p", "top_k", "min_p", "seed"):
            del sampling[name]
    messages = [asdict(m) for m in request.messages]
    if request.last_user_text is not None:
        del messages[-1]["content"]
    return {
        "endpoint": request.endpoint,
        "messages": messages,
        "prompt": request.prompt,
        "sampling": sampling,
        "max_tokens": request.max_tokens,
        "n": request.n,
        "stop": request.stop,
        "logprobs": request.logprobs,
    }
