"""The embedding model that clients may ask: which one it is, how it comes up, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headgate.cache.embedding.bulk import Bulk, BulkFullError, Spent
from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import Vector
from headgate.engine.request import Priority
from headgate.gateway.embedding.embedding_model import model_folder, once_files_open
from headgate.gateway.lifecycle import Lifecycle
from headgate.gateway.road.request import ChatRequest, Usage
from headgate.gateway.settings import EmbeddingsSection
from headgate.gateway.teams.admission import Admission, Ticket
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.overrides import scheduled
from headgate.gateway.teams.retries import Key, Retry
from headgate.gateway.teams.tabs import Attempt, Tab
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError, invalid, model_not_found, overloaded

logger = logging.getLogger("headgate.gateway")

PART = "embeddings"

_RANKS: Mapping[Priority, int] = {"interactive": 0, "foreground": 1, "background": 2}


@dataclass(frozen=True, slots=True)
class Embedding:
    """A request for vectors: of which model, and whose."""

    model: str
    principal: Principal
    record: RequestRecord
    user: str | None = None
    priority: Priority = "foreground"
    """Background: nobody waits for them. Otherwise they have the class of their team."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of unit norm in the order of the texts, and how many tokens were read."""

    vectors: list[Vector]
    tokens: int


class Embeddings:
    """An embedding model as a part of the server."""

    def __init__(self, section: EmbeddingsSection, lifecycle: Lifecycle, admission: Admission) -> None:
        """Find the model; it is read by `load`. `admission` lets requests in and counts their tokens.

        Raises:
            ValueError: it is demanded and cannot be had.
        """
        self._section = section
        self._lifecycle = lifecycle
        self._admission = admission
        self._folder, self._why = model_folder("embeddings", section.enabled, ("folder", section.folder), section.id)
        self._own: SentenceEmbedder | None = None
        self._embedder: SentenceEmbedder | None = None
        self._bulk: Bulk | None = None
        self._settled = asyncio.Event()
        lifecycle.set(PART, "loading" if self._folder else "off", self._why, required=False)

    @property
    def id(self) -> str | None:
        """The name clients ask for; None where there is no model."""
        return None if self._folder is None else self._section.id

    @property
    def longest(self) -> int | None:
        """Tokens of a text at most; None until the model is loaded."""
        return None if self._embedder is None else self._embedder.longest

    async def load(self, loaded: SentenceEmbedder | None, folder: Path | None) -> None:
        """Read the model, or take that of the semantic cache, which is loaded from `folder`, where it is the same."""
        if self._folder is None:
            return
        try:
            if loaded is not None and folder == self._folder:
                embedder = loaded
            else:
                self._own = embedder = SentenceEmbedder(self._folder, cache_size=0)
                await once_files_open(embedder.load, partial(self._lifecycle.set, PART, "loading", required=False))
        except ValueError as error:
            logger.warning("nothing can be embedded for clients: %s", error)
            self._why = str(error)
            self._lifecycle.set(PART, "failed", self._why, required=False)
        else:
            self._bulk = Bulk(embedder, max_waiting_tokens=self._section.max_waiting_tokens)
            self._embedder = embedder
            self._lifecycle.set(PART, "ready", self._why, required=False)
        finally:
            self._settled.set()

    async def close(self) -> None:
        """End what is computed, and the model's thread if it is its own."""
        if self._bulk is not None:
            await self._bulk.close()
        if self._own is not None:
            await self._own.close()

    def known(self, name: str) -> str:
        """The name, if it is the model's; ApiError 404 otherwise."""
        if self.id is None or name != self.id:
            raise model_not_found(name, self.id or f"no embedding model ({self._why})")
        return name

    async def embed(self, request: Embedding, texts: Sequence[str], *, cut: bool, wait_s: float) -> Embedded:
        """The vectors of texts.

        Args:
            request: whose they are.
            texts: none of them empty.
            cut: read the beginning of a text that is too long, instead of refusing it.
            wait_s: how long to wait for a model that is still loading.

        ApiError 404 for another name, 400 for too many texts and for one that is too long, 429 beyond the team's
        limits, 503 while the model loads and where too much waits, 408 where they do not come while the client waits.
        """
        name = self.known(request.model)
        if len(texts) > self._section.max_inputs:
            message = f"Invalid 'input': expected at most {self._section.max_inputs} texts, but got {len(texts)}."
            raise invalid(message, "input", "array_above_max_length")
        embedder, bulk = await self._loaded(wait_s)
        # Megabytes of text take tenths of a second.
        read = await asyncio.to_thread(embedder.lengths, texts, cut=True)
        longest = embedder.longest
        for at, tokens in enumerate(read):
            if not cut and tokens == longest:
                (length,) = await asyncio.to_thread(embedder.lengths, texts[at : at + 1])
                if length > longest:
                    raise _too_long(name, at if len(texts) > 1 else None, length, longest)
        asked = scheduled(
            ChatRequest("embeddings", name, user=request.user, priority=request.priority), request.principal
        )
        try:
            with await self._admission.enter(asked, request.principal, request.record) as ticket:
                request.record.admitted_s = time.monotonic() - request.record.arrived
                tab, made = await self._tab(request), False
                ticket.attempt = Attempt(tab)
                try:
                    vectors = await self._computed(request, ticket, bulk, texts, read)
                    made = True
                finally:
                    self._leave(request, tab, made=made)
        except ApiError as error:
            self._admission.failed(request.principal, error)
            raise
        return Embedded(vectors, sum(read))

    async def _computed(
        self, request: Embedding, ticket: Ticket, bulk: Bulk, texts: Sequence[str], lengths: Sequence[int]
    ) -> list[Vector]:
        """The vectors, paid for; who leaves pays for what was computed by then."""
        rank, tokens, spent = _RANKS[ticket.request.priority], sum(lengths), Spent()
        _check_queue(request, ticket, bulk.queue_s(rank))
        charge = await ticket.reserve(request.model, tokens, 0, bulk.seconds(tokens))
        try:
            vectors = await ticket.in_time(bulk.embed(texts, lengths, rank, spent))
            await charge.settled(Usage(tokens, 0, 0), spent.seconds)
            return vectors
        except BulkFullError as error:
            message = f"Too many texts wait to be embedded; there is room in about {error.retry_after_s} s."
            raise overloaded(message, error.retry_after_s) from None
        except (asyncio.CancelledError, ApiError):
            if spent.tokens:
                charge.settle(Usage(spent.tokens, 0, 0), spent.seconds, "cancelled")
            raise
        finally:
            charge.drop()

    async def _tab(self, request: Embedding) -> Tab:
        """That of the request as it was sent before. Vectors are not kept: they are computed again, and billed once."""
        retry = request.record.retry
        return Tab() if retry is None else await self._admission.tabs.take(_key(request, retry), retry)

    def _leave(self, request: Embedding, tab: Tab, *, made: bool) -> None:
        if (retry := request.record.retry) is not None:
            self._admission.tabs.leave(_key(request, retry), retry, tab, had=made)

    async def _loaded(self, wait_s: float) -> tuple[SentenceEmbedder, Bulk]:
        try:
            async with asyncio.timeout(wait_s):
                await self._settled.wait()
        except TimeoutError:
            raise overloaded("The embedding model is still loading.") from None
        if self._embedder is None or self._bulk is None:
            raise overloaded(f"The embedding model could not be loaded: {self._why}.", 60)
        return self._embedder, self._bulk


def _key(request: Embedding, retry: Retry) -> Key:
    return (request.principal.team, request.principal.key_id, retry.name, "vectors")


def _check_queue(request: Embedding, ticket: Ticket, queue_s: float) -> None:
    """ApiError 503 where the queue takes longer than its team wants, or than its client waits."""
    wanted = None if ticket.request.priority == "background" else request.principal.policy.scheduling.max_queue_s
    longest = min((s for s in (wanted, ticket.left_s()) if s is not None), default=None)
    if longest is not None and queue_s > longest:
        message = (
            f"The queue for '{request.model}' takes about {queue_s:.1f} s, and this request waits at most "
            f"{max(longest, 0.0):.1f} s."
        )
        raise overloaded(message, queue_s - longest)


def _too_long(name: str, at: int | None, length: int, longest: int) -> ApiError:
    param = "input" if at is None else f"input[{at}]"
    message = (
        f"Invalid '{param}': {length} tokens. The model '{name}' reads at most {longest}. Shorten the text, or send "
        "'truncate_prompt_tokens': -1 to have its beginning embedded."
    )
    return invalid(message, param, "context_length_exceeded")
