"""How long look-ups take: exact ones, and similar ones in a scope of many entries, embedding included."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from headgate.bench.cache.intents import Share
from headgate.bench.cache.kept import KeptEmbedder
from headgate.bench.cache.wording import draw_wording, render
from headgate.cache.answers import AnswerCache
from headgate.cache.embedding.comparator import Comparator
from headgate.cache.embedding.embedder import Embedder, SentenceEmbedder
from headgate.cache.embedding.sentence_model import Vector, default_folder
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.guards import compare, reading_of, sealed, unsealed
from headgate.cache.hnsw import HnswIndex
from headgate.cache.judge import Judge
from headgate.cache.semantic import CANDIDATES, SemanticRule
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Hit, StoredChoice

_SCOPE = "team"
_PIECE = 500
_RECALL = 400
_REMEMBERED = 8192
"""Readings that a judge remembers."""
_LARGE_ENOUGH = 8_000_000_000
_ANSWER = (StoredChoice("An answer of the usual length, more or less.", "stop"),)


@dataclass(frozen=True, slots=True)
class Asking:
    """How much is asked.

    Attributes:
        warm: look-ups before the first that is timed.
        alone: look-ups of each kind, one at a time: exact, by meaning, and in parts.
        together: look-ups under way at once afterwards.
        rounds: times as many of these.
    """

    warm: int = 50
    alone: int = 1_000
    together: int = 32
    rounds: int = 32

    @property
    def questions(self) -> int:
        """Asked in words of their own."""
        return self.warm + 2 * self.alone + self.together * self.rounds


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds, unless it says otherwise.

    Attributes:
        entries: stored in the one scope that is searched, each of another text.
        tokens: of the asked texts, wordpieces on average, the marks at both ends included.
        fill_s: that storing them took, the index settled.
        exact_p50: of an exact hit.
        exact_p99: the same.
        semantic_p50: of a look-up by meaning, embedding included, one at a time.
        semantic_p99: the same.
        hits: share of these look-ups that were hits.
        embed_p50: of the embedding alone.
        index_p50: of the search alone.
        guards_p50: of the guards alone, of one paraphrase.
        guards_p99: likewise.
        per_second: look-ups by meaning a second, many at a time.
        charged_bytes: of an entry beyond question and answer, as the store counts against its bound.
        resident_bytes: the same, by what the process has grown; what is remembered of the last texts is not counted.
        recall: share of the asked texts for which the index finds the closest.
        encoder: what computes the embeddings.
    """

    entries: int
    tokens: float
    fill_s: float
    exact_p50: float
    exact_p99: float
    semantic_p50: float
    semantic_p99: float
    hits: float
    embed_p50: float
    index_p50: float
    guards_p50: float
    guards_p99: float
    per_second: float
    charged_bytes: float
    resident_bytes: float
    recall: float
    encoder: str


@dataclass(frozen=True, slots=True)
class Filled:
    """A cache full of answers, and questions to ask it: none of them stored as it is worded, none asked before.

    `charged` and `resident` are bytes of an entry beyond its question and answer, `took` seconds.
    """

    cache: AnswerCache
    embedder: SentenceEmbedder
    index: HnswIndex
    bucket: str
    comparator: Comparator
    entries: int
    charged: float
    resident: float
    took: float
    stored: list[str]
    asked: list[str]


_USUAL = Asking()


async def measure(
    judge: Judge, shares: Sequence[Share], entries: int, folder: Path | None = None, asking: Asking = _USUAL
) -> Latency:
    """Fills a cache and asks it; every text is embedded when it is asked, as its first asking would be.

    Args:
        judge: decides what is served.
        shares: of the intents that the questions are drawn from.
        entries: stored; at least as many as there are questions.
        folder: keeps what is stored of every text for the next run; None: nothing does.
        asking: how much is asked.
    """
    return await timed(await fill(judge, shares, entries, folder, asking), asking)


async def fill(
    judge: Judge, shares: Sequence[Share], entries: int, scratch: Path | None = None, asking: Asking = _USUAL
) -> Filled:
    """A cache of so many entries in one scope, each of a question in words of its own.

    Every asked question is stored in another wording. `scratch` keeps the embeddings for the next run.
    """
    start = time.perf_counter()
    folder = default_folder()
    assert folder is not None
    # It remembers next to nothing, so that what the process grows by is the entries.
    embedder = SentenceEmbedder(folder, comparator=judge.comparator, cache_size=2 * _PIECE)
    await embedder.load()
    index = HnswIndex(embedder.dim)
    store = MemoryStore(_LARGE_ENOUGH, time.time)
    store.beside(lambda: index.bytes_used)
    cache = AnswerCache(
        store, Fingerprinter(b"sixteen bytes or more"), index, embedder, time.time, SemanticRule(), judge
    )
    stored, asked, others = _questions(shares, entries, asking.questions)
    texts = [*stored, *others]
    source: Embedder = embedder
    if scratch is not None:
        source = kept = KeptEmbedder(embedder, judge.comparator, texts, scratch)
        await kept.make()
    # What this one remembers of the stored texts goes with it.
    writer = Judge(judge.comparator, judge.model, judge.thresholds, judge.embedder, judge.floor)
    cache.understand(source, index, SemanticRule(), writer)
    # Word lists, and as many readings as are remembered: what is there once is no entry's.
    for text in texts[-_REMEMBERED:]:
        writer.seal(text, _SCOPE)
    gc.collect()
    before = _resident_bytes()
    for at in range(0, len(texts), _PIECE):
        part = texts[at : at + _PIECE]
        if scratch is None:
            await asyncio.gather(*(source.embed(text, _SCOPE) for text in part))
        for text in part:
            await _store(cache, text, await source.embed(text, _SCOPE))
    await index.settle()
    gc.collect()
    grown = _resident_bytes() - before
    cache.understand(embedder, index, SemanticRule(), judge)
    del writer
    gc.collect()
    own = sum(len(text.encode()) for text in texts) / len(texts) + len(_ANSWER[0].text)
    return Filled(
        cache,
        embedder,
        index,
        (await cache.lookup(_query(texts[0]), semantic=False)).fingerprint.bucket,
        judge.comparator,
        len(texts),
        store.bytes_used / len(texts) - own,
        grown / len(texts) - own,
        time.perf_counter() - start,
        stored,
        asked,
    )


def _questions(shares: Sequence[Share], entries: int, wanted: int) -> tuple[list[str], list[str], list[str]]:
    """So many questions in one wording, the same in another, and others: the first and the last are `entries`."""
    rng = random.Random(0)
    pairs: dict[str, str] = {}
    others: dict[str, None] = {}
    taken: set[str] = set()
    while len(pairs) < wanted or len(others) < entries - wanted:
        share = rng.choice(shares)
        question = share.draw(rng.choice(share.intents), rng)
        first, second = (render(question, draw_wording(question.intent, rng)) for _ in range(2))
        # About twenty wordpieces, as the marks at both ends count.
        if len(pairs) < wanted and 13 <= len(second.split()) <= 17 and first != second and not {first, second} & taken:
            pairs[second] = first
            taken |= {first, second}
        elif len(others) < entries - wanted and first not in taken:
            others[first] = None
            taken.add(first)
    return list(pairs.values()), list(pairs), list(others)


async def timed(filled: Filled, asking: Asking = _USUAL) -> Latency:
    """Asks a filled cache, and closes it."""
    cache, embedder, asked = filled.cache, filled.embedder, iter(filled.asked)
    for text in islice(asked, asking.warm):
        await cache.lookup(_query(text))
    exact = [await _timed(cache, text) for text in filled.stored[: asking.alone]]
    semantic, hits = [], 0
    for text in islice(asked, asking.alone):
        start = time.perf_counter()
        hits += isinstance((await cache.lookup(_query(text))).verdict, Hit)
        semantic.append(time.perf_counter() - start)
    embedding, searching, vectors, tokens = [], [], [], []
    for text in islice(asked, asking.alone):
        start = time.perf_counter()
        vector = await embedder.embed(text, _SCOPE)
        done = time.perf_counter()
        filled.index.search(filled.bucket, vector, CANDIDATES)
        searching.append(time.perf_counter() - done)
        embedding.append(done - start)
        vectors.append(vector)
        tokens.append(filled.comparator.packed_tokens(await embedder.sketch(text, _SCOPE)) + 2)
    guards = [_guarded(*pair) for pair in zip(filled.stored, filled.asked, strict=True)]
    rest = list(asked)
    start = time.perf_counter()
    await _concurrently(cache, rest, asking.together)
    per_second = len(rest) / (time.perf_counter() - start)
    recall = await filled.index.recall(filled.bucket, np.stack(vectors[:_RECALL]))
    await embedder.close()
    await filled.index.close()
    return Latency(
        entries=filled.entries,
        tokens=float(np.mean(tokens)),
        fill_s=filled.took,
        exact_p50=float(np.median(exact)),
        exact_p99=float(np.quantile(exact, 0.99)),
        semantic_p50=float(np.median(semantic)),
        semantic_p99=float(np.quantile(semantic, 0.99)),
        hits=hits / len(semantic),
        embed_p50=float(np.median(embedding)),
        index_p50=float(np.median(searching)),
        guards_p50=float(np.median(guards)),
        guards_p99=float(np.quantile(guards, 0.99)),
        per_second=per_second,
        charged_bytes=filled.charged,
        resident_bytes=filled.resident,
        recall=recall,
        encoder=embedder.kind,
    )


def _resident_bytes() -> int:
    """What this process has in memory, files left out, after the allocator has given back what it can."""
    with contextlib.suppress(AttributeError):
        # Of glibc.
        ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _query(text: str) -> CacheQuery:
    return CacheQuery(_SCOPE, "auto", "revision", b"{}", text)


async def _store(cache: AnswerCache, text: str, vector: Vector) -> None:
    query = _query(text)
    found = await cache.lookup(query, semantic=False)
    await cache.store(
        found.fingerprint,
        query,
        choices=_ANSWER,
        model="small",
        prompt_tokens=20,
        completion_tokens=12,
        device_s=0.1,
        vector=vector,
        ttl=3600.0,
    )


def _guarded(stored: str, asked: str) -> float:
    """Seconds of the guards on an entry as it is kept, for a paraphrase that was just read; of most pairs they take
    less, for the first guard that forbids ends it."""
    seal, reading = sealed(reading_of(stored), stored), reading_of(asked).foreseen()
    start = time.perf_counter()
    kept = unsealed(seal, stored)
    assert kept is not None
    compare(kept, reading, whole=False)
    return time.perf_counter() - start


async def _timed(cache: AnswerCache, text: str) -> float:
    start = time.perf_counter()
    found = await cache.lookup(_query(text))
    took = time.perf_counter() - start
    assert isinstance(found.verdict, Hit)
    return took


async def _concurrently(cache: AnswerCache, texts: list[str], together: int) -> None:
    """Always so many look-ups under way, as long as there are texts."""
    waiting = iter(texts)

    async def client() -> None:
        for text in waiting:
            await cache.lookup(_query(text))

    await asyncio.gather(*(client() for _ in range(together)))
