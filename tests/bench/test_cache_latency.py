from pathlib import Path

import pytest

from headgate.bench.cache.intents import deal
from headgate.bench.cache.latency import Asking, fill, measure, timed
from headgate.cache.answers import Lookup
from headgate.cache.fingerprint import CacheQuery
from headgate.cache.judge import Judge

ASKING = Asking(warm=2, alone=6, together=4, rounds=3)
ENTRIES = 60


async def test_each_question_is_stored_in_other_words_asked_once_and_embedded_for_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, shares = Judge.load(), list(deal(0).values())
    filled = await fill(judge, shares, ENTRIES, tmp_path, ASKING)
    assert filled.entries == ENTRIES == await filled.cache.count() == len(filled.index)
    assert len(filled.stored) == len(filled.asked) == ASKING.questions == 26
    assert len({*filled.stored, *filled.asked}) == 2 * ASKING.questions

    looked_up: list[str] = []
    lookup = filled.cache.lookup

    async def spy(query: CacheQuery) -> Lookup:
        looked_up.append(query.text)
        return await lookup(query)

    monkeypatch.setattr(filled.cache, "lookup", spy)
    found = await timed(filled, ASKING)
    warm, semantic, embedded, together = filled.asked[:2], filled.asked[2:8], filled.asked[8:14], filled.asked[14:]
    assert looked_up[:14] == [*warm, *filled.stored[:6], *semantic]
    assert sorted(looked_up[14:]) == sorted(together)
    assert {*embedded}.isdisjoint(looked_up)

    assert found.entries == ENTRIES
    assert 0.0 < found.exact_p50 <= found.exact_p99
    assert 0.0 < found.semantic_p50 <= found.semantic_p99
    assert 0.0 < found.guards_p50 <= found.guards_p99
    assert min(found.embed_p50, found.index_p50, found.per_second) > 0.0
    # About twenty, as the marks at both ends count; a bucket that small is compared with one by one.
    assert 15.0 <= found.tokens <= 25.0
    assert found.recall == 1.0
    # A sketch of some eighteen wordpieces, a vector, a seal, and what the store keeps of an entry.
    assert 18 * (2 + judge.comparator.width // 2) + 4 * 384 < found.charged_bytes < 4000
    # Some of them are found by the judge that is shipped.
    assert 0.0 < found.hits <= 1.0

    # What was embedded is kept for the next run.
    (kept,) = tmp_path.iterdir()  # noqa: ASYNC240  one file
    written = kept.stat().st_mtime_ns
    again = await measure(judge, shares, ENTRIES, tmp_path, ASKING)
    assert kept.stat().st_mtime_ns == written
    assert (again.hits, again.tokens, again.charged_bytes) == (found.hits, found.tokens, found.charged_bytes)
