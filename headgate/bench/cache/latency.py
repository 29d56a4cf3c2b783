"""How long look-ups take: exact ones, and similar ones in a scope of many entries, embedding included."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass
from itertools import islice

import numpy as np

from headgate.bench.cache.intents import Share
from headgate.bench.cache.wording import draw_wording, render
from headgate.cache.answers import AnswerCache
from headgate.cache.embedder import SentenceEmbedder, Vector, default_folder
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.hnsw import HnswIndex
from headgate.cache.judge import Judge
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, Hit, StoredChoice

_SCOPE = "team"
_QUERIES = 400
_WARM = 20
_TOGETHER = 32
_BATCHES = 12
_TEXTS = 6_000
_LARGE_ENOUGH = 8_000_000_000
_ANSWER = (StoredChoice("An answer of the usual length, more or less.", "stop"),)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds, unless it says otherwise.

    Attributes:
        entries: stored in the one scope that is searched.
        tokens: of the asked texts, wordpieces on average.
        exact_p50: of an exact hit.
        semantic_p50: of a look-up by meaning, embedding included, one at a time.
        semantic_p99: the same.
        hits: share of these look-ups that were hits.
        embed_p50: of the embedding alone.
        per_second: look-ups by meaning a second, 32 at a time.
        entry_bytes: of vector, links and sketch for an entry.
        recall: share of the asked texts for which the index finds the closest.
    """

    entries: int
    tokens: float
    exact_p50: float
    semantic_p50: float
    semantic_p99: float
    hits: float
    embed_p50: float
    per_second: float
    entry_bytes: float
    recall: float


@dataclass(frozen=True, slots=True)
class Filled:
    """A cache full of answers, and questions to ask it: none of them stored as it is worded, none asked before."""

    cache: AnswerCache
    embedder: SentenceEmbedder
    index: HnswIndex
    bucket: str
    entries: int
    width: int
    stored: list[str]
    asked: list[str]


async def measure(judge: Judge, share: Share, entries: int) -> Latency:
    """Fills a cache and asks it; every text is embedded when it is asked, as its first asking would be."""
    return await timed(await fill(judge, share, entries))


async def fill(judge: Judge, share: Share, entries: int) -> Filled:
    """A cache of so many entries in one scope.

    Every asked question is stored in another wording. The other entries are 6,000 more questions of the share's intents
    and, beyond these, vectors halfway between two texts of one intent: they lie where texts do, which noise does not.
    """
    folder = default_folder()
    assert folder is not None
    embedder = SentenceEmbedder(folder, comparator=judge.comparator)
    await embedder.load()
    index = HnswIndex(embedder.dim)
    store = MemoryStore(_LARGE_ENOUGH, time.time)
    cache = AnswerCache(
        store, Fingerprinter(b"sixteen bytes or more"), index, embedder, time.time, SemanticRule(), judge
    )
    rng = random.Random(0)
    stored: dict[str, str] = {}
    asked: dict[str, None] = {}
    others: dict[str, str] = {}
    while len(asked) < _WARM + 2 * _QUERIES + _TOGETHER * _BATCHES or len(others) < min(_TEXTS, entries):
        question = share.draw(rng.choice(share.intents), rng)
        first, second = (render(question, draw_wording(question.intent, rng)) for _ in range(2))
        # About twenty wordpieces, as the marks at both ends count.
        if 13 <= len(second.split()) <= 17 and first != second and len(asked) < len(others):
            stored[first], asked[second] = question.intent.name, None
        else:
            others[first] = question.intent.name
    asked_only = [text for text in asked if text not in stored and text not in others]
    known = list((stored | others).items())[: max(entries, len(stored))]
    by_intent: dict[str, list[Vector]] = {}
    for start in range(0, len(known), 500):
        part = known[start : start + 500]
        for (text, intent), vector in zip(
            part, await asyncio.gather(*(embedder.embed(text, _SCOPE) for text, _ in part)), strict=True
        ):
            await _store(cache, text, vector)
            by_intent.setdefault(intent, []).append(vector)
    bucket = (await cache.lookup(_query(known[0][0]), semantic=False)).fingerprint.bucket
    sketch = await embedder.sketch(known[0][0], _SCOPE)
    intents = sorted(intent for intent, own in by_intent.items() if len(own) > 1)
    for number in range(entries - len(known)):
        one, other = rng.sample(by_intent[rng.choice(intents)], 2)
        vector = one + rng.uniform(0.2, 0.8) * (other - one)
        vector /= np.linalg.norm(vector)
        entry = Entry(f"other-{number}", known[0][0], _ANSWER, "small", 20, 12, 0.1, 0.0, math.inf, sketch)
        await store.put(entry, frozenset())
        index.add(entry.key, bucket, vector)
        if number % 1000 == 0:
            await asyncio.sleep(0)
    await index.settle()
    return Filled(
        cache, embedder, index, bucket, max(entries, len(known)), judge.comparator.width, list(stored), asked_only
    )


async def timed(filled: Filled) -> Latency:
    """Asks a filled cache, and closes it."""
    cache, embedder, asked = filled.cache, filled.embedder, iter(filled.asked)
    for text in islice(asked, _WARM):
        await cache.lookup(_query(text))
    exact = [await _timed(cache, text) for text in filled.stored[:_QUERIES]]
    semantic, hits = [], 0
    for text in islice(asked, _QUERIES):
        start = time.perf_counter()
        hits += isinstance((await cache.lookup(_query(text))).verdict, Hit)
        semantic.append(time.perf_counter() - start)
    embedding, vectors, packed = [], [], []
    for text in islice(asked, _QUERIES // 2):
        start = time.perf_counter()
        vectors.append(await embedder.embed(text, _SCOPE))
        embedding.append(time.perf_counter() - start)
        packed.append(await embedder.sketch(text, _SCOPE))
    rest = list(asked)
    start = time.perf_counter()
    await _concurrently(cache, rest)
    per_second = len(rest) / (time.perf_counter() - start)
    recall = await filled.index.recall(filled.bucket, np.stack(vectors))
    await embedder.close()
    await filled.index.close()
    return Latency(
        entries=filled.entries,
        tokens=float(np.mean([len(one) / (2 + filled.width) + 2 for one in packed])),
        exact_p50=float(np.median(exact)),
        semantic_p50=float(np.median(semantic)),
        semantic_p99=float(np.quantile(semantic, 0.99)),
        hits=hits / len(semantic),
        embed_p50=float(np.median(embedding)),
        per_second=per_second,
        entry_bytes=_vector_bytes(embedder.dim) + float(np.mean([len(one) for one in packed])),
        recall=recall,
    )


def _vector_bytes(dim: int) -> float:
    """What the index keeps of an entry: its half-precision vector, its links, and where it is."""
    return 2 * dim + 140


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


async def _timed(cache: AnswerCache, text: str) -> float:
    start = time.perf_counter()
    found = await cache.lookup(_query(text))
    took = time.perf_counter() - start
    assert isinstance(found.verdict, Hit)
    return took


async def _concurrently(cache: AnswerCache, texts: list[str]) -> None:
    """Always 32 look-ups under way, as long as there are texts."""
    waiting = iter(texts)

    async def client() -> None:
        for text in waiting:
            await cache.lookup(_query(text))

    await asyncio.gather(*(client() for _ in range(_TOGETHER)))
