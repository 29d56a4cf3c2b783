import hashlib
import logging

import numpy as np
import pytest

from headgate.cache.answers import AnswerCache
from headgate.cache.fingerprint import CacheQuery, Fingerprinter
from headgate.cache.index import FlatIndex, Vector
from headgate.cache.semantic import SemanticRule, barred
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, Hit, Miss, Near, StoredChoice

DIM = 64


class BagEmbedder:
    """Texts with the same letters are close: enough to steer similarity by hand."""

    name = "bag"
    dim = DIM

    def __init__(self) -> None:
        self.calls = 0
        self.broken = False

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed(self, text: str, _scope: str = "") -> Vector:
        self.calls += 1
        if self.broken:
            raise OSError("no model")
        vector = np.zeros(DIM, np.float32)
        vector[0] = 0.01
        for word in text.lower().strip("?! ").split():
            vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % DIM] += 1.0
        return vector / np.float32(np.linalg.norm(vector))


class World:
    def __init__(self, rule: SemanticRule | None = None, max_bytes: int = 1 << 20) -> None:
        self.now = 1000.0
        self.embedder = BagEmbedder()
        self.memory = MemoryStore(max_bytes, lambda: self.now)
        self.index = FlatIndex(DIM)
        self.memory.beside(lambda: self.index.bytes_used)
        self.prints = Fingerprinter(b"0123456789abcdef")
        self.cache = AnswerCache(self.memory, self.prints, self.index, self.embedder, lambda: self.now, rule)

    async def answer(self, query: CacheQuery, text: str, ttl: float = 100.0, semantic: bool = True) -> Entry | None:
        found = await self.cache.lookup(query, semantic=semantic)
        return await self.cache.store(
            found.fingerprint,
            query,
            choices=(StoredChoice(text, "stop"),),
            model="large",
            prompt_tokens=3,
            completion_tokens=5,
            device_s=0.25,
            vector=found.vector,
            findable=semantic,
            ttl=ttl,
        )


def ask(
    text: str, *, scope: str = "team", model: str = "auto", revision: str = "r", context: bytes = b"{}"
) -> CacheQuery:
    return CacheQuery(scope, model, revision, context, text)


FRANCE = "What is the capital of France"


async def test_the_same_request_is_an_exact_hit_without_an_embedding() -> None:
    world = World()
    entry = await world.answer(ask(FRANCE), "Paris")
    calls = world.embedder.calls
    found = await world.cache.lookup(ask(FRANCE))
    assert found.verdict == Hit("exact", entry, 1.0)
    assert found.vector is None
    assert world.embedder.calls == calls
    assert entry is not None
    assert (entry.created, entry.expires, entry.device_s) == (1000.0, 1100.0, 0.25)


async def test_other_words_for_the_same_question_are_a_semantic_hit() -> None:
    world = World()
    entry = await world.answer(ask(FRANCE), "Paris")
    found = await world.cache.lookup(ask("what is the capital of france?"))
    assert isinstance(found.verdict, Hit)
    assert (found.verdict.kind, found.verdict.entry) == ("semantic", entry)
    assert found.verdict.similarity == pytest.approx(1.0, abs=1e-6)
    assert found.vector is not None
    assert found.vector.shape == (DIM,)


async def test_a_guard_makes_it_near_and_says_which() -> None:
    world = World()
    await world.answer(ask("Name 5 rivers of the north of Spain"), "...")
    found = await world.cache.lookup(ask("Name 6 rivers of the north of Spain"))
    assert isinstance(found.verdict, Near)
    assert found.verdict.reason == "numbers"
    assert found.verdict.similarity > 0.8


async def test_other_words_are_near_while_they_are_close_and_a_miss_below_that() -> None:
    text = "please tell me what the very old capital of France is"
    for near, expected in ((0.3, "bound"), (0.99, None)):
        world = World(SemanticRule(near_similarity=near))
        await world.answer(ask(FRANCE), "Paris")
        verdict = (await world.cache.lookup(ask(text))).verdict
        if expected is None:
            assert verdict == Miss()
        else:
            assert isinstance(verdict, Near)
            assert verdict.reason == expected


async def test_a_request_that_accepts_fewer_errors_than_the_rule_promises_is_served_nothing_by_meaning() -> None:
    world = World(SemanticRule(max_error=0.02))
    await world.answer(ask(FRANCE), "Paris")
    asked = ask("what is the capital of france?")
    assert isinstance((await world.cache.lookup(asked, max_error=0.02)).verdict, Hit)
    held_back = (await world.cache.lookup(asked, max_error=0.01)).verdict
    assert isinstance(held_back, Near)
    assert held_back.reason == "max_error"
    assert isinstance((await world.cache.lookup(ask(FRANCE), max_error=0.01)).verdict, Hit)
    with pytest.raises(ValueError, match="max_error is 0"):
        await world.cache.lookup(asked, max_error=0.0)


async def test_a_worse_candidate_is_served_when_the_closest_is_held_back() -> None:
    world = World()
    await world.answer(ask("in 12 of those towns does the river flow north"), "no")
    right = await world.answer(ask("please in 11 of those towns does the river flow north"), "yes")
    verdict = (await world.cache.lookup(ask("in 11 of those towns does the river flow north please please"))).verdict
    assert isinstance(verdict, Hit)
    assert verdict.entry == right


@pytest.mark.parametrize(
    "other",
    [
        ask(FRANCE, scope="rival"),
        ask(FRANCE, model="small"),
        ask(FRANCE, revision="r2"),
        ask(FRANCE, context=b'{"seed":1}'),
    ],
)
async def test_nothing_crosses_tenant_model_revision_or_context(other: CacheQuery) -> None:
    world = World()
    await world.answer(ask(FRANCE), "Paris")
    assert (await world.cache.lookup(other)).verdict == Miss()


async def test_expired_and_too_old_answers_are_not_served_in_either_way() -> None:
    world = World()
    await world.answer(ask(FRANCE), "Paris", ttl=100)
    for text in (FRANCE, FRANCE + "?"):
        world.now = 1050.0
        assert isinstance((await world.cache.lookup(ask(text), max_age=50)).verdict, Hit)
        assert (await world.cache.lookup(ask(text), max_age=49)).verdict == Miss()
        assert (await world.cache.lookup(ask(text), max_age=0)).verdict == Miss()
    world.now = 1100.0
    for text in (FRANCE + "?", FRANCE):
        assert (await world.cache.lookup(ask(text))).verdict == Miss()
    assert len(world.index) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What is the weather in Rome", "time_sensitive"),
        ("what's today's date", "time_sensitive"),
        ("What time is it in Rome", "time_sensitive"),
        ("Who won the match this week", "time_sensitive"),
        ("the latest release of the kernel", "time_sensitive"),
        ("What is the stock price of Acme", "time_sensitive"),
        ("?!", "empty"),
        ("word " * 300, "length"),
        ("What is the capital of France", None),
        ("How do I reset my password", None),
    ],
)
async def test_some_texts_are_never_semantic_hits(text: str, reason: str | None) -> None:
    assert barred(text, SemanticRule()) == reason
    world = World()
    await world.answer(ask(text), "an answer")
    assert isinstance((await world.cache.lookup(ask(text))).verdict, Hit)
    again = (await world.cache.lookup(ask(text + " "))).verdict
    if reason is None:
        assert isinstance(again, Hit)
    else:
        assert isinstance(again, Near)
        assert again.reason == reason


async def test_without_semantic_nothing_is_embedded_and_the_answer_stays_exact() -> None:
    world = World()
    await world.answer(ask(FRANCE), "Paris", semantic=False)
    assert world.embedder.calls == 0
    assert isinstance((await world.cache.lookup(ask(FRANCE), semantic=False)).verdict, Hit)
    assert (await world.cache.lookup(ask(FRANCE + "?"))).verdict == Miss()


async def test_eviction_reaches_the_index() -> None:
    room = World()
    for text in ("one apple", "two pears"):
        await room.answer(ask(text), "x")
    world = World(max_bytes=room.memory.bytes_used)
    for text in ("one apple", "two pears", "six plums"):
        await world.answer(ask(text), "x")
    assert len(world.index) == len(world.memory) == 2


async def test_purging_reaches_the_index() -> None:
    world = World()
    await world.answer(ask("six plums"), "x")
    await world.answer(ask("ten dates", scope="rival"), "x")
    assert len(world.index) == len(world.memory) == 2
    assert await world.cache.purge_tagged(world.prints.scope_tag("rival")) == 1
    assert await world.cache.purge_tagged(world.prints.scope_tag("rival")) == 0
    found = await world.cache.lookup(ask("six plums"))
    assert await world.cache.purge_key(found.fingerprint.exact_key)
    assert not await world.cache.purge_key(found.fingerprint.exact_key)
    assert len(world.index) == len(world.memory) == 0


async def test_what_the_index_takes_is_charged() -> None:
    world = World()
    query = ask("one apple")
    taken = world.index.row_bytes((await world.cache.lookup(query)).fingerprint.bucket)
    await world.answer(query, "x")
    found = world.memory.bytes_used
    bare = World()
    bare.cache = AnswerCache(bare.memory, bare.prints, None, None, lambda: bare.now)
    await bare.answer(query, "x")
    assert found == bare.memory.bytes_used + taken


async def test_an_answer_without_lifetime_or_room_is_not_kept() -> None:
    world = World(max_bytes=700)
    assert await world.answer(ask("a"), "x", ttl=0) is None
    assert await world.answer(ask("a"), "x" * 1000) is None
    assert len(world.index) == 0


class BrokenStore(MemoryStore):
    async def get(self, key: str) -> Entry | None:
        raise ConnectionError(f"no store for {key}")

    async def put(self, entry: Entry, tags: frozenset[str]) -> bool:
        raise ConnectionError(f"no store for {entry.key} {tags}")


class BrokenIndex(FlatIndex):
    def add(self, key: str, bucket: str, vector: Vector) -> None:
        raise RuntimeError(f"no index for {key} {bucket} {vector.shape}")

    def search(self, bucket: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        raise RuntimeError(f"no index for {bucket} {vector.shape} {k}")

    def remove(self, key: str) -> None:
        raise RuntimeError(f"no index for {key}")


async def test_a_broken_part_costs_the_hit_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world = World()
    world.embedder.broken = True
    assert await world.answer(ask(FRANCE), "Paris") is not None
    assert (await world.cache.lookup(ask(FRANCE + "?"))).verdict == Miss("embedder")
    assert isinstance((await world.cache.lookup(ask(FRANCE))).verdict, Hit)
    assert world.cache.faults.embedder == 3, "two look-ups, and the storing between them"

    prints = Fingerprinter(b"0123456789abcdef")
    world = World()
    world.cache = AnswerCache(world.memory, prints, BrokenIndex(DIM), world.embedder, lambda: world.now)
    assert await world.answer(ask(FRANCE), "Paris") is not None
    assert isinstance((await world.cache.lookup(ask(FRANCE))).verdict, Hit)
    assert (await world.cache.lookup(ask(FRANCE + "?"))).verdict == Miss("index")
    assert await world.cache.purge_tagged(world.prints.scope_tag("team")) == 1
    assert world.cache.faults.index == 4

    world = World()
    world.cache = AnswerCache(BrokenStore(1000, lambda: 0.0), prints, world.index, world.embedder, lambda: world.now)
    assert await world.answer(ask(FRANCE), "Paris") is None
    assert world.cache.faults.store == 2
    assert "without its store: ConnectionError: no store for" in caplog.text


async def test_a_key_that_only_the_index_knows_is_dropped() -> None:
    world = World()
    found = await world.cache.lookup(ask(FRANCE))
    assert found.vector is not None
    world.index.add("ghost", found.fingerprint.bucket, found.vector)
    assert (await world.cache.lookup(ask(FRANCE))).verdict == Miss()
    assert len(world.index) == 0


@pytest.mark.parametrize(("accepted", "near"), [(0.0, 0.5), (1.0, 0.5), (0.02, -0.1), (0.02, 1.5)])
def test_impossible_bounds_are_refused(accepted: float, near: float) -> None:
    with pytest.raises(ValueError, match="is accepted"):
        SemanticRule(max_error=accepted, near_similarity=near)


async def test_an_answer_stored_again_without_a_vector_is_found_exactly_only() -> None:
    world = World()
    await world.answer(ask(FRANCE), "Paris")
    found = await world.cache.lookup(ask(FRANCE))
    assert found.vector is None
    await world.answer(ask(FRANCE), "Par", semantic=False)
    assert isinstance((await world.cache.lookup(ask(FRANCE))).verdict, Hit)
    assert (await world.cache.lookup(ask("what is the capital of france?"))).verdict == Miss()
