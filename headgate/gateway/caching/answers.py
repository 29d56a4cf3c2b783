"""The road's side of the answer cache: how answers go in and out."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import get_args

import msgspec

from headgate.cache.answers import AnswerCache, AtHand, Lookup
from headgate.cache.audits.watch import Watch
from headgate.cache.embedding.embedder import Embedder
from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.index import VectorIndex
from headgate.cache.judge import Judge
from headgate.cache.quota import InsertShare
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.base import Store
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, Hit, Miss, StoredChoice
from headgate.engine.text.stream import TextLogprob
from headgate.gateway.caching.question import Bypass, CachePolicy, Question, question_of
from headgate.gateway.caching.shared_state import Epoch
from headgate.gateway.road.destinations import Destination, Outcome
from headgate.gateway.road.request import (
    AnswerFinish,
    ChatRequest,
    Choice,
    Chunk,
    Joiner,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics.cache import Kept, Waited
from headgate.gateway.wire.errors import overloaded


@dataclass(frozen=True, slots=True)
class Restored:
    """A stored answer, as the generation that made it would have sent it."""

    chunks: tuple[Chunk, ...]
    outcome: Outcome


class Stored:
    """An answer that is stored in this process, and what was made of it to serve it."""

    __slots__ = ("choices", "found", "restored")

    def __init__(self, found: AtHand, restored: Restored) -> None:
        joiner = Joiner()
        for chunk in restored.chunks:
            joiner.add(chunk)
        self.found = found
        self.restored = restored
        self.choices = joiner.choices()


class Answers:
    """Asks the cache and tells it. Without a cache no request takes part."""

    def __init__(
        self,
        store: Store | None,
        fingerprinter: Fingerprinter,
        policy: CachePolicy,
        clock: Callable[[], float] = time.time,
        share: InsertShare | None = None,
        epoch: Epoch | None = None,
    ) -> None:
        """Exact answers over a store; none at all without one.

        Args:
            store: where they are kept.
            fingerprinter: makes their keys.
            policy: which are kept, for how long, and who shares them.
            clock: seconds since the epoch.
            share: how much of a team's answers one key may make; None sets no bound.
            epoch: of the keys; None is the policy's for good.
        """
        self._epoch = epoch or Epoch(policy.epoch)
        self._share = share
        self._clock = clock
        self._fingerprinter = fingerprinter
        self._policy = policy
        self._store = store
        self._cache = None if store is None else AnswerCache(store, fingerprinter, None, None, clock)

    def understand(
        self,
        embedder: Embedder,
        index: VectorIndex,
        rule: SemanticRule,
        judge: Judge | None = None,
        watch: Watch | None = None,
    ) -> None:
        """From now on serve similar questions too, but for what `watch` holds back: the embedder has been loaded."""
        if self._cache is not None:
            self._cache.understand(embedder, index, rule, judge, watch)

    def retune(self, policy: CachePolicy) -> None:
        """From the next request on another policy holds; the epoch stays."""
        self._policy = replace(policy, epoch=self._epoch.current)

    def question(
        self, request: ChatRequest, principal: Principal, candidates: Sequence[Destination], variant: str = ""
    ) -> Question | Bypass:
        """What to ask the cache, or why it has no part in the request.

        `candidates` is where it could be generated, `variant` by which policy that is chosen, if not by the team's.
        """
        if self._cache is None:
            return Bypass("off")
        if self._policy.epoch != self._epoch.current:
            self._policy = replace(self._policy, epoch=self._epoch.current)
        return question_of(request, principal, candidates, self._policy, self._fingerprinter, variant)

    def at_hand(self, question: Question, before: Stored | None) -> Stored | None:
        """The answer to the very same request, where one is in this process and of whatever age will do.

        `before` is what was given for it the last time, if that was kept.
        """
        if self._cache is None or not question.may_read or question.max_age_s is not None:
            return None
        found = self._cache.at_hand(question.fingerprint, None if before is None else before.found)
        if found is None:
            return None
        return before if before is not None and before.found is found else Stored(found, restore(found.hit.entry))

    async def look_up(self, question: Question) -> Lookup:
        """The verdict, and the embedding where one was made."""
        if self._cache is None or not question.may_read:
            return Lookup(Miss("no_cache"), question.fingerprint, None, self._clock())
        return await self._cache.lookup(
            question.query,
            max_age=question.max_age_s,
            semantic=question.semantic,
            # 0 is a question that is not semantic.
            max_error=question.max_error or None,
        )

    async def await_neighbour(self, question: Question, found: Lookup) -> tuple[Lookup, Waited | None]:
        """After a look-up that was no hit: wait for the answer to a similar question that is being made.

        It is waited for only if the rule would serve it, and never longer than the policy says; then the look-up is
        repeated, and what it finds is what counts. Gives the look-up to go on with, and what became of the wait.
        """
        if self._cache is None or not question.may_read or self._policy.wait_s <= 0:
            return found, None
        neighbour = await self._cache.neighbour(
            question.query, found, max_age=question.max_age_s, max_error=question.max_error or None
        )
        if neighbour is None:
            return found, None
        if not await self._cache.landed(neighbour, self._policy.wait_s):
            return found, "timeout"
        again = await self.look_up(question)
        return again, "served" if isinstance(again.verdict, Hit) else "other"

    def answering(self, question: Question | Bypass, found: Lookup | None) -> AbstractContextManager[None]:
        """Have others wait for the answer that is made inside, if that may be theirs."""
        if self._cache is None or found is None or not isinstance(question, Question) or not question.semantic:
            return nullcontext()
        return self._cache.answering(question.query, found)

    async def store(
        self, question: Question, found: Lookup, model: str, choices: Sequence[Choice], outcome: Outcome
    ) -> Kept:
        """Keep a whole answer to a question that was looked up before, or say why not."""
        if self._cache is None:
            return "lost"
        if any(c.finish_reason == "content_filter" for c in choices):
            return "filtered"  # what a filter says today it need not say tomorrow
        if self._share is not None and not self._share.admit(question.team_tag, question.author):
            return "share"
        # An answer cut off at the token limit serves the same request again, never a similar one.
        cut = any(c.finish_reason == "length" for c in choices)
        entry = await self._cache.store(
            question.fingerprint,
            question.query,
            choices=tuple(
                StoredChoice(
                    c.text, c.finish_reason, c.token_ids, _pack(c.logprobs) if c.logprobs else b"", _pack_beside(c)
                )
                for c in choices
            ),
            model=model,
            prompt_tokens=outcome.usage.prompt_tokens,
            completion_tokens=outcome.usage.completion_tokens,
            image_tokens=outcome.usage.image_tokens,
            device_s=outcome.device_s,
            vector=found.vector,
            findable=question.findable and not cut,
            ttl=question.ttl_s,
            tags=question.tags,
            asked=found.asked,
        )
        return "lost" if entry is None else "kept"

    async def invalidate_key(self, key: str) -> int:
        """Forget the answer of a key; gives how many there were, as the others do. ApiError 503 where the store is
        away."""
        return int(await self._told(partial(AnswerCache.purge_key, key=key)))

    async def invalidate_tag(self, tag: str, teams: Iterable[str]) -> int:
        """Forget the answers that requests of these teams gave a tag."""
        tags = [self._fingerprinter.tag(team, tag) for team in sorted(set(teams))]
        return sum([await self._told(partial(AnswerCache.purge_tagged, tag=tag)) for tag in tags])

    async def invalidate_team(self, team: str) -> int:
        """Forget a team's answers."""
        return await self._told(partial(AnswerCache.purge_tagged, tag=self._fingerprinter.scope_tag(team)))

    async def invalidate_all(self) -> int:
        """Forget every answer."""
        return await self._told(partial(AnswerCache.purge_tagged, tag=self._fingerprinter.all_tag))

    async def invalidate_author(self, team: str, key_id: str) -> int:
        """Forget the answers that a key of a team made."""
        tag = self._fingerprinter.author_tag(team, key_id)
        return await self._told(partial(AnswerCache.purge_tagged, tag=tag))

    async def turn_epoch(self, name: str) -> int:
        """Have the cache find only what is stored in an epoch of that name; gives how many answers are stored now.

        ApiError 503 where other gateways cannot be told; here it is turned all the same, and they are told later.
        """
        try:
            await self._epoch.turn(name)
        except OSError as error:
            message = f"The epoch is '{name}' on this server; others cannot be told yet: {error}."
            raise overloaded(message) from None
        return await self.count()

    @property
    def epoch(self) -> str:
        """The epoch of the keys now."""
        return self._epoch.current

    async def count(self) -> int:
        """Answers stored."""
        return await self._told(AnswerCache.count)

    async def _told(self, ask: Callable[[AnswerCache], Awaitable[int]]) -> int:
        if self._cache is None:
            return 0
        try:
            return await ask(self._cache)
        except OSError as error:
            raise overloaded(f"The cache's store cannot be reached, so nothing is known to be done: {error}.") from None

    @property
    def kind(self) -> str:
        """Where answers are kept: memory, redis or off."""
        return "off" if self._store is None else "memory" if isinstance(self._store, MemoryStore) else "redis"

    @property
    def faults(self) -> dict[str, int]:
        """Failed calls of the cache by part, since the start."""
        return {} if self._cache is None else asdict(self._cache.faults)

    def age_s(self, entry: Entry) -> float:
        """Seconds since the answer was stored."""
        return max(0.0, self._clock() - entry.created)


def restore(entry: Entry) -> Restored:
    """The chunks and account of a stored answer. Usage is that of the generation; nothing waited or computed now."""
    chunks = tuple(_chunk(index, choice) for index, choice in enumerate(entry.choices))
    thought = sum(chunk.reasoning_tokens for chunk in chunks)
    counts = entry.prompt_tokens, entry.completion_tokens, 0
    usage = Usage(*counts, reasoning_tokens=thought, image_tokens=entry.image_tokens)
    return Restored(chunks, Outcome(usage, 0.0, 0.0))


def _chunk(index: int, choice: StoredChoice) -> Chunk:
    calls, reasoning, stop, thought = _BESIDE.decode(choice.beside) if choice.beside else ((), "", None, 0)
    return Chunk(
        index,
        choice.text,
        _unpack(choice.logprobs),
        _FINISHES.get(choice.finish_reason, "stop"),
        choice.token_ids,
        tool_calls=tuple(ToolCallDelta(at, call.arguments, call.id, call.name) for at, call in enumerate(calls)),
        reasoning=reasoning,
        stop=stop,
        reasoning_tokens=thought,
    )


_FINISHES: Mapping[str, AnswerFinish] = {name: name for name in get_args(AnswerFinish)}
_BESIDE = msgspec.msgpack.Decoder(tuple[tuple[ToolCall, ...], str, str | None, int])


def _pack_beside(choice: Choice) -> bytes:
    # Not every upstream counts what its model thinks.
    if not choice.tool_calls and not choice.reasoning and not choice.reasoning_tokens and choice.stop is None:
        return b""
    return msgspec.msgpack.encode((choice.tool_calls, choice.reasoning, choice.stop, choice.reasoning_tokens))


def _pack(logprobs: tuple[TextLogprob, ...]) -> bytes:
    return msgspec.msgpack.encode(logprobs)


def _unpack(packed: bytes) -> tuple[TextLogprob, ...]:
    return msgspec.msgpack.decode(packed, type=tuple[TextLogprob, ...]) if packed else ()
