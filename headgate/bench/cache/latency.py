"""How long look-ups take: exact ones, and similar ones in a scope of many entries, embedding included."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass

import numpy as np

from headgate.bench.cache.intents import Share
from headgate.bench.cache.wording import draw_wording, render
from headgate.cache.answers import AnswerCache
from headgate.cache.comparator import Sketch
from headgate.cache.embedder import SentenceEmbedder, Vector, default_folder
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.hnsw import HnswIndex
from headgate.cache.judge import Judge
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, Hit, StoredChoice

_QUERIES = 400
_TOGETHER = 32
_BATCHES = 12
_LARGE_ENOUGH = 8_000_000_000
_SPREAD = 0.05
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
        recall: share of the closest that the index finds.
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


def measure(judge: Judge, share: Share, entries: int) -> Latency:
    """Fills a cache and asks it. Texts are of the share's intents; most stored vectors are these texts' with noise."""
    return asyncio.run(_measure(judge, share, entries))


async def _measure(judge: Judge, share: Share, entries: int) -> Latency:
    folder = default_folder()
    assert folder is not None
    embedder = SentenceEmbedder(folder, comparator=judge.comparator, cache_size=0)
    await embedder.load()
    index = HnswIndex(embedder.dim)
    store = MemoryStore(_LARGE_ENOUGH, time.time)
    cache = AnswerCache(
        store,
        Fingerprinter(b"sixteen bytes or more"),
        index,
        embedder,
        time.time,
        SemanticRule(),
        judge,
    )
    rng, noise = random.Random(0), np.random.default_rng(0)
    stored: list[str] = []
    asked: list[str] = []
    while len(asked) < _QUERIES + _TOGETHER * _BATCHES:
        question = share.draw(rng.choice(share.intents), rng)
        first, second = (render(question, draw_wording(question.intent, rng)) for _ in range(2))
        # About twenty wordpieces, as the marks at both ends count.
        if 13 <= len(second.split()) <= 17:
            stored.append(first)
            asked.append(second)
    vectors = await asyncio.gather(*(embedder.embed(text) for text in stored))
    for text, vector in zip(stored, vectors, strict=True):
        await _store(cache, text, vector)
    # What a full scope holds besides: entries about as close to the questions as other questions of one intent are.
    bucket = (await cache.lookup(_query(stored[0]), semantic=False)).fingerprint.bucket
    made = [await embedder.sketch(text) for text in stored]
    for number in range(entries - len(stored)):
        at = number % len(stored)
        vector = vectors[at] + _SPREAD * noise.standard_normal(embedder.dim).astype(np.float32)
        vector /= np.linalg.norm(vector)
        entry = Entry(f"other-{number}", stored[at], _ANSWER, "small", 20, 12, 0.1, 0.0, math.inf, made[at])
        await store.put(entry, frozenset())
        index.add(entry.key, bucket, vector)
    await index.settle()
    for text in asked[:20]:
        await cache.lookup(_query(text))
    exact = [await _timed(cache, text) for text in stored[:_QUERIES]]
    semantic, hits = [], 0
    for text in asked[:_QUERIES]:
        start = time.perf_counter()
        hits += isinstance((await cache.lookup(_query(text))).verdict, Hit)
        semantic.append(time.perf_counter() - start)
    embedding = []
    for text in asked[:_QUERIES]:
        start = time.perf_counter()
        await embedder.embed(text)
        embedding.append(time.perf_counter() - start)
    rest = asked[_QUERIES:]
    start = time.perf_counter()
    await _concurrently(cache, rest)
    per_second = len(rest) / (time.perf_counter() - start)
    sketches = [await embedder.sketch(text) for text in asked[:50]]
    unpacked = [sketch for packed in sketches if (sketch := Sketch.from_bytes(packed, judge.comparator.width))]
    recall = await index.recall(bucket, np.stack(vectors[:50]))
    await embedder.close()
    await index.close()
    return Latency(
        entries=entries,
        tokens=float(np.mean([len(sketch.ids) + 2 for sketch in unpacked])),
        exact_p50=float(np.median(exact)),
        semantic_p50=float(np.median(semantic)),
        semantic_p99=float(np.quantile(semantic, 0.99)),
        hits=hits / _QUERIES,
        embed_p50=float(np.median(embedding)),
        per_second=per_second,
        entry_bytes=2 * embedder.dim + 140 + float(np.mean([len(packed) for packed in sketches])),
        recall=recall,
    )


def _query(text: str) -> CacheQuery:
    return CacheQuery("team", "auto", "revision", b"{}", text)


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
