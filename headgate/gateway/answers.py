"""The road's side of the answer cache: how answers go in and out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from headgate.cache.answers import AnswerCache, Lookup
from headgate.cache.embedder import Embedder, Vector
from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.index import VectorIndex
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.base import Store
from headgate.cache.verdict import Entry, Miss, StoredChoice
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.destinations import Destination, Outcome
from headgate.gateway.question import Bypass, CachePolicy, Question, question_of
from headgate.gateway.request import AnswerFinish, ChatRequest, Choice, Chunk, Usage
from headgate.gateway.teams.keys import Principal


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
        policy: CachePolicy,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Exact answers over a store; none at all without one.

        Args:
            store: where they are kept.
            fingerprinter: makes their keys.
            policy: which are kept, for how long, and who shares them.
            clock: seconds since the epoch.
        """
        self._clock = clock
        self._fingerprinter = fingerprinter
        self._policy = policy
        self._cache = None if store is None else AnswerCache(store, fingerprinter, None, None, clock)

    def understand(self, embedder: Embedder, index: VectorIndex, rule: SemanticRule) -> None:
        """From now on serve similar questions too: the embedder has been loaded."""
        if self._cache is not None:
            self._cache.understand(embedder, index, rule)

    def question(
        self, request: ChatRequest, principal: Principal, candidates: Sequence[Destination]
    ) -> Question | Bypass:
        """What to ask the cache, or why it has no part in the request. `candidates` is where it could be generated."""
        if self._cache is None:
            return Bypass("off")
        return question_of(request, principal, candidates, self._policy, self._fingerprinter)

    async def look_up(self, question: Question) -> Lookup:
        """The verdict, and the embedding where one was made."""
        if self._cache is None or not question.may_read:
            return Lookup(Miss("no_cache"), question.fingerprint, None)
        return await self._cache.lookup(
            question.query,
            max_age=question.max_age_s,
            semantic=question.semantic,
            # 0 is a question that is not semantic.
            max_error=question.max_error or None,
        )

    async def store(
        self, question: Question, vector: Vector | None, model: str, choices: Sequence[Choice], outcome: Outcome
    ) -> None:
        """Keep a whole answer."""
        if self._cache is None:
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
            ttl=question.ttl_s,
            tags=question.tags,
        )

    def age_s(self, entry: Entry) -> float:
        """Seconds since the answer was stored."""
        return max(0.0, self._clock() - entry.created)


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
