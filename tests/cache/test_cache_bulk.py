"""Many texts beside look-ups: turns, bounds and what happens to who leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from headgate.cache.embedding.bulk import Bulk, BulkFullError, Spent
from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.sentence_model import Vector, default_folder


class Passes:
    """Counts a pass when it is let through; the vector of a text is its length."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []
        self.gate = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def passages(self, texts: Sequence[str]) -> tuple[list[Vector], float]:
        self.made.append(list(texts))
        await self.gate.acquire()
        if self.error is not None:
            raise self.error
        return [np.array([len(text)], np.float32) for text in texts], 1.0


def bulk(passes: Passes, *, waiting: int = 1000) -> Bulk:
    return Bulk(passes, max_waiting_tokens=waiting, pass_tokens=4)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_pass_is_bounded_and_requests_take_turns() -> None:
    passes = Passes()
    made = bulk(passes)
    long = asyncio.create_task(made.embed(list("abcdefgh"), [2] * 8))
    await turns()
    short = asyncio.create_task(made.embed(["Z"], [2]))
    passes.gate.release()
    passes.gate.release()
    await turns()
    assert short.done()
    assert not long.done()
    assert passes.made[:2] == [["a", "b"], ["c", "Z"]]
    for _ in range(5):
        passes.gate.release()
    assert len(await long) == 8
    assert [text for batch in passes.made for text in batch if text != "Z"] == list("abcdefgh")
    assert all(len(batch) <= 2 for batch in passes.made)
    assert made.waiting_tokens == 0


async def test_a_pass_is_of_one_class_and_tells_each_request_its_share() -> None:
    passes, users, batch = Passes(), Spent(), Spent()
    made = bulk(passes, waiting=12)
    first = asyncio.create_task(made.embed(list("abcd"), [3] * 4, 2, batch))
    await turns()
    with pytest.raises(BulkFullError):
        await made.embed(["e"], [4], 2)
    second = asyncio.create_task(made.embed(["X", "Y", "Z"], [1, 3, 4], 0, users))
    await turns()
    assert (made.queue_s(0), made.queue_s(2)) == (made.seconds(8), made.seconds(8 + 9))
    for _ in range(6):
        passes.gate.release()
    await asyncio.gather(first, second)
    assert passes.made == [["a"], ["X", "Y"], ["Z"], ["b"], ["c"], ["d"]]
    assert (users.tokens, users.seconds, batch.tokens, batch.seconds) == (8, 2.0, 12, 4.0)


async def test_a_text_longer_than_a_pass_goes_alone() -> None:
    passes = Passes()
    passes.gate = asyncio.Semaphore(10)
    vectors = await bulk(passes).embed(["aa", "b", "ccc"], [2, 9, 2])
    assert [float(v[0]) for v in vectors] == [2, 1, 3]
    assert passes.made == [["aa"], ["b"], ["ccc"]]


async def test_too_much_waiting_is_refused_with_when_to_come_back() -> None:
    passes = Passes()
    made = bulk(passes, waiting=20)
    first = asyncio.create_task(made.embed(["a"] * 6, [4] * 6))
    await turns()
    assert made.waiting_tokens == 20
    with pytest.raises(BulkFullError) as caught:
        await made.embed(["x"], [1])
    assert caught.value.retry_after_s >= 1
    for _ in range(6):
        passes.gate.release()
    assert len(await first) == 6
    passes.gate.release()
    assert len(await made.embed(["x"], [100])) == 1, "who finds nothing waiting is taken"


async def test_who_leaves_takes_his_texts_along() -> None:
    passes = Passes()
    made = bulk(passes)
    leaving = asyncio.create_task(made.embed(["a", "b", "c"], [4] * 3))
    staying = asyncio.create_task(made.embed(["x", "y"], [4] * 2))
    await turns()
    leaving.cancel()
    await turns()
    assert made.waiting_tokens == 8
    for _ in range(4):
        passes.gate.release()
    assert len(await staying) == 2
    assert [text for batch in passes.made for text in batch] == ["a", "x", "y"]


async def test_a_pass_that_fails_fails_its_requests_only() -> None:
    passes = Passes()
    made = bulk(passes)
    broken = asyncio.create_task(made.embed(["a", "b"], [4] * 2))
    await turns()
    other = asyncio.create_task(made.embed(["x"], [4]))
    passes.error = RuntimeError("no memory")
    passes.gate.release()
    with pytest.raises(RuntimeError, match="no memory"):
        await broken
    passes.error = None
    passes.gate.release()
    assert len(await other) == 1
    assert made.waiting_tokens == 0


async def test_closing_lets_nobody_wait() -> None:
    passes = Passes()
    made = bulk(passes)
    waiting = asyncio.create_task(made.embed(["a", "b"], [4] * 2))
    await turns()
    await made.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_look_up_does_not_wait_for_the_texts_of_others() -> None:
    folder = default_folder()
    if folder is None:
        pytest.skip("the embedding package is not installed")
    embedder = SentenceEmbedder(folder)
    await embedder.load()
    made = Bulk(embedder, max_waiting_tokens=1_000_000)
    texts = [f"{number} " + "words " * 100 for number in range(60)]
    many = asyncio.create_task(made.embed(texts, embedder.lengths(texts)))
    await turns()
    vector = await embedder.embed("a question")
    assert not many.done(), "some fifteen passes were left"
    assert made.waiting_tokens > 0
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
    assert len(await many) == 60
    await made.close()
    await embedder.close()
