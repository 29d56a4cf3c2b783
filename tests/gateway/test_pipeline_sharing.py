"""What requests share on the road: generations in flight, answers of similar questions, and what teams do not."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace

import numpy as np
import pytest
from gateway_fakes import FakeDestination
from road_site import ASK, BLUE, RED, Site

from headgate.cache.index import FlatIndex, Vector
from headgate.cache.quota import InsertShare
from headgate.cache.semantic import SemanticRule
from headgate.cache.verdict import Near
from headgate.gateway.caching.question import CachePolicy, Question
from headgate.gateway.road.request import CacheControl, ChatRequest, Chunk, Draft, Message, Sampling
from headgate.gateway.teams.keys import Principal
from headgate.gateway.wire.errors import ApiError, server_error


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


async def test_nobody_waits_for_what_nobody_waits_for() -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = Site(fake)
    batch = asyncio.create_task(site.ask(replace(ASK, priority="background")))
    await fake.started.wait()
    user = asyncio.create_task(site.ask())
    beside = asyncio.create_task(site.ask(replace(ASK, priority="background")))
    for _ in range(100):
        await asyncio.sleep(0)
    assert fake.gate is not None
    fake.gate.set()
    assert [(await task)[1] for task in (batch, user, beside)] == ["miss", "miss", "exact"]
    assert fake.begun == 2, "batches share among themselves"
    assert (await site.ask())[1] == "exact", "and leave their answers to everybody"


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


async def test_users_whom_a_key_invents_give_it_no_further_share() -> None:
    policy, share = CachePolicy(ttl_s=60.0, share="user"), InsertShare(0.5, 3600.0, lambda: 0.0, most=5)
    site = Site(FakeDestination(), policy=policy, share=share)
    for principal in (Principal("red", "one"), Principal("red", "two"), Principal("blue", "one")):
        for number in range(8):
            await site.ask(replace(ASK, user=f"user {number}"), principal)
    assert site.count('headgate_cache_stores_total{result="kept"} 15.0')
    assert site.count('headgate_cache_stores_total{result="share"} 9.0')


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


async def test_a_near_answer_is_the_draft_of_one_that_has_none() -> None:
    fake = FakeDestination()
    site = understanding(fake)
    await site.ask()
    assert (await site.ask(UNLIKE))[1] == "near"
    own = Draft("prediction", "five")
    assert (await site.ask(replace(UNLIKE, max_tokens=9, draft=own)))[1] == "miss", "other settings, other neighbours"
    await site.ask(replace(ASK, max_tokens=9))
    other = replace(UNLIKE, messages=(Message("user", "What is two plus four?"),), max_tokens=9, draft=own)
    assert (await site.ask(other))[1] == "near"
    near = Draft("near", "ab", "fake", (1, 2))
    assert fake.drafts == [None, near, own, near, own]
    assert site.count('headgate_drafted_tokens_total{end="accepted",model="fake",source="near"} 0.0')


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
