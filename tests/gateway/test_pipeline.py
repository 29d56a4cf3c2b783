"""The road with destinations that do as they are told: sharing, caching, leaving, failing."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace

import numpy as np
import pytest
from gateway_fakes import OUTCOME, FakeDestination
from prometheus_client import generate_latest

from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.index import FlatIndex, Vector
from headgate.cache.quota import InsertShare
from headgate.cache.semantic import SemanticRule
from headgate.cache.store.memory import MemoryStore
from headgate.cache.verdict import Entry, Near
from headgate.gateway.answers import Answers
from headgate.gateway.destinations import Facts
from headgate.gateway.pipeline import Road
from headgate.gateway.question import CachePolicy, Question
from headgate.gateway.request import CacheControl, ChatRequest, Chunk, Message, Sampling
from headgate.gateway.routes import Routes
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.metrics import Metrics
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError, server_error
from headgate.routing.tasks import load_tasks

ASK = ChatRequest("chat.completions", "fake", (Message("user", "What is two plus two?"),))
RED, BLUE = Principal("red"), Principal("blue")


class Site:
    """A road over fakes, and what can be seen of it from outside."""

    def __init__(
        self,
        *destinations: FakeDestination,
        cached: bool = True,
        policy: CachePolicy | None = None,
        share: InsertShare | None = None,
    ) -> None:
        self.now = 0.0
        self.metrics = Metrics()
        tiers = {d.id: tier for d in destinations for tier in ("small", "large") if d.id.startswith(tier)}
        self.routes = Routes(destinations, tiers, load_tasks())
        self.store = MemoryStore(1_000_000, lambda: self.now)
        self.answers = Answers(
            self.store if cached else None,
            Fingerprinter(b"0" * 16),
            policy or CachePolicy(ttl_s=60.0),
            clock=lambda: self.now,
            share=share,
        )
        self.road = Road(routes=self.routes, answers=self.answers, metrics=self.metrics)

    def watch_store(self) -> set[str]:
        """From now on collects the keys that anybody asks the store for."""
        asked: set[str] = set()
        get = self.store.get

        async def watched(key: str) -> Entry | None:
            asked.add(key)
            return await get(key)

        self.store.get = watched  # type: ignore[method-assign]
        return asked

    async def ask(self, request: ChatRequest = ASK, principal: Principal = RED) -> tuple[str, str, RequestRecord]:
        """The joined text, the verdict and the record."""
        record = RequestRecord("id", "/v1/chat/completions")
        text = ""
        async with self.road.answer(request, principal, record) as answer:
            while batch := await answer.next_batch():
                text += "".join(chunk.text for chunk in batch)
            assert answer.outcome.usage == OUTCOME.usage or record.verdict != "miss"
        return text, record.verdict, record

    def count(self, line: str) -> bool:
        return line in generate_latest(self.metrics.registry).decode()


async def test_a_miss_is_generated_and_the_next_asker_hits() -> None:
    fake = FakeDestination()
    site = Site(fake)
    assert (await site.ask())[:2] == ("ab", "miss")
    text, verdict, record = await site.ask()
    assert (text, verdict, record.route) == ("ab", "exact", "cache-exact")
    assert (fake.begun, fake.closed) == (1, 1)
    assert site.count('headgate_cache_lookups_total{reason="stored",verdict="exact"} 1.0')
    assert site.count('headgate_generation_tokens_total{model="fake"} 2.0')


async def test_teams_never_share() -> None:
    fake = FakeDestination()
    site = Site(fake)
    await site.ask(principal=RED)
    assert (await site.ask(principal=BLUE))[1] == "miss"
    assert fake.begun == 2


@pytest.mark.parametrize(
    "other",
    [
        replace(ASK, messages=(Message("user", "What is two plus three?"),)),
        replace(ASK, messages=(Message("system", "Be rude."), *ASK.messages)),
        replace(ASK, stop=("4",)),
        replace(ASK, max_tokens=3),
        replace(ASK, n=2),
        replace(ASK, logprobs=0),
        replace(ASK, sampling=Sampling(presence_penalty=1.0)),
        replace(ASK, sampling=Sampling(logit_bias=((3, 1.0),))),
        replace(ASK, endpoint="completions", messages=(), prompt="What is two plus two?"),
    ],
)
async def test_whatever_can_change_the_answer_is_part_of_the_key(other: ChatRequest) -> None:
    site = Site(FakeDestination())
    await site.ask()
    assert (await site.ask(other))[1] == "miss"


@pytest.mark.parametrize(
    "same",
    [
        replace(ASK, stream=True, include_usage=True),
        replace(ASK, sampling=Sampling(temperature=0.0)),
        replace(ASK, sampling=Sampling(temperature=0.0, top_p=0.5, top_k=3, seed=7)),
    ],
)
async def test_what_cannot_change_a_greedy_answer_is_not(same: ChatRequest) -> None:
    site = Site(FakeDestination())
    await site.ask()
    assert (await site.ask(same))[1] == "exact"


async def test_random_answers_are_cached_only_with_a_seed_or_when_asked_to() -> None:
    site = Site(FakeDestination())
    warm = replace(ASK, sampling=Sampling(temperature=0.7))
    assert [(await site.ask(warm))[1] for _ in range(2)] == ["bypass", "bypass"]
    seeded = replace(ASK, sampling=Sampling(temperature=0.7, seed=1))
    assert [(await site.ask(seeded))[1] for _ in range(2)] == ["miss", "exact"]
    opted = replace(warm, cache=CacheControl(max_age_s=60))
    assert [(await site.ask(opted))[1] for _ in range(2)] == ["miss", "exact"]


async def test_the_models_own_default_decides_where_no_temperature_is_given() -> None:
    site = Site(FakeDestination(default_temperature=1.0))
    assert [(await site.ask())[1] for _ in range(2)] == ["bypass", "bypass"]


async def test_cache_control_is_obeyed() -> None:
    fake = FakeDestination()
    site = Site(fake)
    assert (await site.ask(replace(ASK, cache=CacheControl(no_store=True))))[1] == "bypass"
    assert (await site.ask())[1] == "miss", "no-store kept nothing"
    assert (await site.ask(replace(ASK, cache=CacheControl(no_cache=True))))[1] == "bypass"
    assert fake.begun == 3
    assert (await site.ask(replace(ASK, cache=CacheControl(max_age_s=0))))[1] == "miss", "nothing is that young"


async def test_only_if_cached_generates_nothing() -> None:
    fake = FakeDestination()
    site = Site(fake)
    only = replace(ASK, cache=CacheControl(only_if_cached=True))
    with pytest.raises(ApiError) as caught:
        await site.ask(only)
    error = caught.value
    assert (error.status, error.code, fake.begun) == (504, "not_cached", 0)
    assert error.headers == {"x-should-retry": "false", "x-headgate-cache": "miss"}
    assert site.count('headgate_cache_lookups_total{reason="absent",verdict="miss"} 1.0')
    await site.ask()
    assert (await site.ask(only))[:2] == ("ab", "exact")
    for other in (CacheControl(only_if_cached=True, no_store=True), CacheControl(only_if_cached=True, no_cache=True)):
        with pytest.raises(ApiError) as caught:
            await site.ask(replace(ASK, cache=other))
        assert caught.value.headers["x-headgate-cache"] == "bypass"
    assert fake.begun == 1


async def test_only_if_cached_does_not_wait_for_somebody_elses_generation() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = Site(fake)
    leader = asyncio.create_task(site.ask())
    await fake.started.wait()
    with pytest.raises(ApiError, match="only-if-cached"):
        await site.ask(replace(ASK, cache=CacheControl(only_if_cached=True)))
    assert fake.gate is not None
    fake.gate.set()
    assert (await leader)[1] == "miss"


async def test_a_hit_tells_its_key_and_age() -> None:
    site = Site(FakeDestination())
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        key = answer.opened.key
        assert (answer.opened.age_s, answer.opened.why) == (None, "absent")
        while await answer.next_batch():
            pass
    site.now = 7.5
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        assert (answer.opened.key, answer.opened.age_s, answer.opened.why) == (key, 7.5, "stored")
    assert key is not None
    assert len(key) == 32


async def test_identical_requests_in_flight_share_one_generation() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = Site(fake)
    tasks = [asyncio.create_task(site.ask()) for _ in range(5)]
    await fake.started.wait()
    assert fake.gate is not None
    fake.gate.set()
    results = await asyncio.gather(*tasks)
    assert {text for text, _, _ in results} == {"ab"}
    assert sorted(verdict for _, verdict, _ in results) == ["exact"] * 4 + ["miss"]
    assert site.count('headgate_cache_lookups_total{reason="absent",verdict="miss"} 1.0')
    assert fake.begun == 1


class Meaning:
    """Texts are alike by their words, whatever their order and letters' case."""

    name = "words"
    dim = 16

    async def sketch(self, _text: str, _scope: str = "") -> bytes:
        return b""

    async def embed(self, text: str, _scope: str = "") -> Vector:
        vector = np.full(self.dim, 0.01, dtype=np.float32)
        for word in text.lower().rstrip("?").split():
            vector[zlib.crc32(word.encode()) % self.dim] += 1.0
        return vector / np.float32(np.linalg.norm(vector))


ALIKE = replace(ASK, messages=(Message("user", "what is two plus two"),))
UNLIKE = replace(ASK, messages=(Message("user", "What is two plus three?"),))


def understanding(fake: FakeDestination, wait_s: float = 30.0) -> Site:
    site = Site(fake, policy=CachePolicy(wait_s=wait_s))
    site.answers.understand(Meaning(), FlatIndex(Meaning.dim), SemanticRule(), None)
    return site


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_similar_question_waits_for_the_answer_on_its_way() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = understanding(fake)
    leader = asyncio.create_task(site.ask())
    await fake.started.wait()
    other = asyncio.create_task(site.ask(ALIKE))
    await turns()
    assert fake.begun == 1, "it waits"
    assert fake.gate is not None
    fake.gate.set()
    assert (await leader)[1] == "miss"
    assert (await other)[:2] == ("ab", "semantic")
    assert fake.begun == 1
    assert site.count('headgate_cache_waits_total{result="served"} 1.0')
    assert site.count('headgate_cache_lookups_total{reason="awaited",verdict="semantic"} 1.0')


async def test_both_at_once_are_one_generation_too() -> None:
    fake = FakeDestination()
    site = understanding(fake)
    found = await asyncio.gather(site.ask(), site.ask(ALIKE))
    assert sorted(verdict for _, verdict, _ in found) == ["miss", "semantic"]
    assert fake.begun == 1


@pytest.mark.parametrize(
    "other",
    [
        UNLIKE,
        replace(ALIKE, cache=CacheControl(max_error=0.0)),
        replace(ALIKE, cache=CacheControl(no_cache=True)),
        replace(ALIKE, max_tokens=3),
    ],
)
async def test_nobody_waits_for_an_answer_they_would_not_be_served(other: ChatRequest) -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = understanding(fake)
    tasks = [asyncio.create_task(site.ask()), asyncio.create_task(site.ask(other))]
    await turns()
    assert fake.begun == 2
    tasks.append(asyncio.create_task(site.ask(ALIKE, BLUE)))
    await turns()
    assert fake.begun == 3, "and none of them of another team's"
    assert fake.gate is not None
    fake.gate.set()
    await asyncio.gather(*tasks)


async def test_the_wait_is_bounded_and_then_one_goes_on_by_oneself() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = understanding(fake, wait_s=0.001)
    tasks = [asyncio.create_task(site.ask()), asyncio.create_task(site.ask(ALIKE))]
    async with asyncio.timeout(20):
        while fake.begun < 2:  # noqa: ASYNC110  the wait itself is what is tested
            await asyncio.sleep(0)
    assert site.count('headgate_cache_waits_total{result="timeout"} 1.0')
    assert fake.gate is not None
    fake.gate.set()
    assert sorted([(await task)[1] for task in tasks]) == ["miss", "miss"]


async def test_a_neighbour_that_fails_or_is_cut_off_serves_nobody_else() -> None:
    for pieces in ((Chunk(0, "a"), server_error("the step failed")), (Chunk(0, "a", finish_reason="length"),)):
        fake = FakeDestination(gate=asyncio.Event(), pieces=pieces)
        site = understanding(fake)
        leader = asyncio.create_task(site.ask())
        await fake.started.wait()
        other = asyncio.create_task(site.ask(ALIKE))
        await turns()
        assert (fake.begun, fake.gate is not None) == (1, True)
        fake.pieces = FakeDestination().pieces
        assert fake.gate is not None
        fake.gate.set()
        await asyncio.wait([leader])
        assert (await other)[:2] == ("ab", "miss")
        assert fake.begun == 2
        assert site.count('headgate_cache_waits_total{result="other"} 1.0')


async def test_who_asks_only_for_stored_answers_waits_for_none() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = understanding(fake)
    leader = asyncio.create_task(site.ask())
    await fake.started.wait()
    with pytest.raises(ApiError, match="only-if-cached"):
        await site.ask(replace(ALIKE, cache=CacheControl(only_if_cached=True)))
    assert fake.gate is not None
    fake.gate.set()
    await leader


async def test_a_key_that_makes_more_than_its_share_stores_no_more() -> None:
    site = Site(FakeDestination(), share=InsertShare(0.5, 3600.0, lambda: 0.0))
    noisy, quiet = Principal("red", "noisy"), Principal("red", "quiet")
    await site.ask(replace(ASK, max_tokens=999), quiet)
    for number in range(1, 103):
        await site.ask(replace(ASK, max_tokens=number), noisy)
    assert site.count('headgate_cache_stores_total{result="share"} 2.0')
    assert (await site.ask(replace(ASK, max_tokens=100), quiet))[1] == "exact"
    assert (await site.ask(replace(ASK, max_tokens=101), quiet))[1] == "miss"


@pytest.mark.parametrize("control", [CacheControl(no_cache=True), CacheControl(max_error=0.0)])
async def test_an_answer_that_was_not_looked_for_by_meaning_is_found_by_it(control: CacheControl) -> None:
    site = understanding(FakeDestination())
    for _ in range(2):
        await site.ask(replace(ASK, cache=control))
    assert (await site.ask(ALIKE))[1] == "semantic"


async def test_a_near_answer_comes_with_its_tokens_for_a_draft() -> None:
    site = understanding(FakeDestination())
    await site.ask()
    question = site.answers.question(UNLIKE, RED, [FakeDestination()])
    assert isinstance(question, Question)
    found = await site.answers.look_up(question)
    assert isinstance(found.verdict, Near)
    assert [choice.token_ids for choice in found.verdict.entry.choices] == [(1, 2)]


async def test_a_look_up_touches_nothing_of_another_team() -> None:
    """What another team's answers do not take part in cannot be told from how long it takes."""
    site = understanding(FakeDestination())
    await site.ask(principal=RED)
    touched = site.watch_store()
    for request in (ASK, ALIKE):
        assert (await site.ask(request, BLUE))[1] in ("miss", "semantic")
    mine = touched.copy()
    touched.clear()
    await site.ask(principal=RED)
    assert mine
    assert mine.isdisjoint(touched)


async def test_a_leader_who_leaves_does_not_take_the_others_with_him() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = Site(fake)
    leader = asyncio.create_task(site.ask())
    await fake.started.wait()
    follower = asyncio.create_task(site.ask())
    await asyncio.sleep(0)
    leader.cancel()
    await asyncio.wait([leader])
    assert fake.closed == 0
    assert fake.gate is not None
    fake.gate.set()
    assert (await follower)[0] == "ab"


async def test_the_last_one_out_closes_the_generation() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = Site(fake)
    for request in (ASK, replace(ASK, sampling=Sampling(temperature=1.0))):
        task = asyncio.create_task(site.ask(request))
        await fake.started.wait()
        fake.started.clear()
        task.cancel()
        await asyncio.wait([task])
        assert fake.closed == fake.begun
    fake.gate = None
    assert (await site.ask())[1] == "miss", "half an answer was kept"


async def test_a_failing_generation_fails_all_who_share_it_and_is_not_kept() -> None:
    fake = FakeDestination(pieces=(Chunk(0, "a"), server_error("the step failed")))
    site = Site(fake)
    results = await asyncio.gather(*(site.ask() for _ in range(3)), return_exceptions=True)
    assert [type(r) for r in results] == [ApiError] * 3
    fake.pieces = FakeDestination().pieces
    assert (await site.ask())[:2] == ("ab", "miss")


async def test_what_piled_up_comes_as_one_batch() -> None:
    words = [Chunk(0, str(i)) for i in range(5)]
    site = Site(FakeDestination(pieces=(*words, Chunk(0, "", finish_reason="stop"))))
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        # The listener lags: everything is produced before it looks.
        await asyncio.sleep(0.01)
        batch = await answer.next_batch()
        assert [chunk.text for chunk in batch] == ["0", "1", "2", "3", "4", ""]
        assert answer.ended, "the account was there as well, so that it goes out with the last text"
        assert await answer.next_batch() == []


async def test_a_next_batch_that_is_cancelled_loses_nothing() -> None:
    gate = asyncio.Event()
    site = Site(FakeDestination(gate=gate))
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        assert [c.text for c in await answer.next_batch()] == ["a"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await answer.next_batch()
        gate.set()
        assert [c.text for c in await answer.next_batch()] == ["b"]


async def test_the_account_is_known_only_at_the_end() -> None:
    site = Site(FakeDestination())
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        with pytest.raises(RuntimeError, match="not ended"):
            _ = answer.outcome


async def test_names_lead_to_destinations() -> None:
    small, large = FakeDestination("small-1"), FakeDestination("large-1")
    routes = Routes([small, large], {"small-1": "small", "large-1": "large"}, load_tasks())
    for name, expected, reason in [("small", small, "tier:small"), ("large", large, "tier:large")]:
        route = await routes.choose(replace(ASK, model=name), None)
        assert (route.model, route.reason) == (expected.id, reason)
    assert (await routes.choose(replace(ASK, model="large-1"), None)).reason == "requested"
    code = replace(ASK, model="auto", messages=(Message("user", "Write a python function `def add(a, b):`"),))
    assert (await routes.choose(code, None)).model == "large-1"
    with pytest.raises(ApiError) as caught:
        routes.candidates("gpt-9")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert "small-1" in caught.value.message


async def test_a_prompt_longer_than_the_router_guessed_goes_where_it_fits() -> None:
    tight = FakeDestination("small-1", prompt_tokens=200)
    roomy = FakeDestination("large-1", facts=Facts(1000), prompt_tokens=200)
    site = Site(tight, roomy)
    _, _, record = await site.ask(replace(ASK, model="small"))
    assert (record.model, record.route) == ("large-1", "context")
    with pytest.raises(ApiError) as caught:
        await Site(tight).ask(replace(ASK, model="small"))
    assert caught.value.code == "context_length_exceeded"


async def test_without_a_cache_every_request_is_generated() -> None:
    fake = FakeDestination()
    site = Site(fake, cached=False)
    assert [(await site.ask())[1] for _ in range(2)] == ["bypass", "bypass"]
    assert fake.begun == 2


async def test_a_hit_restores_logprobs_and_choices() -> None:
    from headgate.engine.text.stream import TextLogprob, TopLogprob

    logprob = TextLogprob("a", (97,), -0.5, (TopLogprob("a", (97,), -0.5),))
    pieces = (Chunk(1, "x", (logprob,), "length", (3,)), Chunk(0, "a", (logprob,), "stop", (1,)))
    site = Site(FakeDestination(pieces=pieces))
    request = replace(ASK, n=2, logprobs=1)
    await site.ask(request)
    async with site.road.answer(request, RED, RequestRecord("id", "e")) as answer:
        batch = await answer.next_batch()
        assert sorted(batch, key=lambda c: c.index) == [pieces[1], pieces[0]]
        await answer.next_batch()
        assert answer.outcome.usage.completion_tokens == OUTCOME.usage.completion_tokens
