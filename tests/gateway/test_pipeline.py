"""The road with destinations that do as they are told: sharing, caching, leaving, failing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gateway_fakes import OUTCOME, FakeDestination
from road_site import ASK, BLUE, CLASSIFIER, RED, Site

from headgate.gateway.road.destinations import Facts
from headgate.gateway.road.request import CacheControl, ChatRequest, Chunk, Message, Sampling
from headgate.gateway.routing.routes import Routes
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError


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


async def test_an_answer_that_nobody_shares_ends_together_with_its_last_text() -> None:
    chunks = (Chunk(0, "a"), Chunk(0, "b"), Chunk(0, "c", finish_reason="stop"))
    site = Site(FakeDestination(pieces=chunks), cached=False)
    batches = []
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        while not answer.ended:
            batches.append(await answer.next_batch())
        assert answer.outcome == OUTCOME
        assert await answer.next_batch() == []
    assert batches == [[chunks[0]], [chunks[1]], [chunks[2]]]


async def test_choices_that_nobody_shares_come_as_one_batch() -> None:
    chunks = (Chunk(0, "a", finish_reason="stop"), Chunk(1, "b", finish_reason="stop"))
    site = Site(FakeDestination(pieces=chunks), cached=False)
    async with site.road.answer(replace(ASK, n=2), RED, RequestRecord("id", "e")) as answer:
        await asyncio.sleep(0)
        assert await answer.next_batch() == list(chunks)
        assert answer.ended


@pytest.mark.parametrize("shared", [True, False])
async def test_who_leaves_ends_the_work_done_for_him_alone(shared: bool) -> None:
    fake = FakeDestination(gate=asyncio.Event())
    site = Site(fake, cached=shared)
    asking = asyncio.create_task(site.ask())
    await fake.started.wait()
    assert fake.closed == 0
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert (fake.begun, fake.closed) == (1, 1)
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        assert [chunk.text for chunk in await answer.next_batch()] == ["a"]
        assert (fake.begun, fake.closed) == (2, 1)
    assert (fake.begun, fake.closed) == (2, 2)


async def test_the_account_is_known_only_at_the_end() -> None:
    site = Site(FakeDestination())
    async with site.road.answer(ASK, RED, RequestRecord("id", "e")) as answer:
        with pytest.raises(RuntimeError, match="not ended"):
            _ = answer.outcome


async def test_names_lead_to_destinations() -> None:
    small, large = FakeDestination("small-1"), FakeDestination("large-1")
    routes = Routes([small, large], {"small-1": "small", "large-1": "large"}, CLASSIFIER)
    for name, expected, reason in [("small", small, "tier:small"), ("large", large, "tier:large")]:
        route = (await routes.plan(replace(ASK, model=name), None, RED)).route
        assert (route.model, route.reason) == (expected.id, reason)
    assert (await routes.plan(replace(ASK, model="large-1"), None, RED)).route.reason == "requested"
    code = replace(ASK, model="auto", messages=(Message("user", "Write a python function `def add(a, b):`"),))
    assert (await routes.plan(code, None, RED)).route.model == "large-1"
    with pytest.raises(ApiError) as caught:
        routes.candidates("gpt-9")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert "small-1" in caught.value.message


async def test_a_prompt_longer_than_the_router_guessed_goes_where_it_fits() -> None:
    tight = FakeDestination("small-1", prompt_tokens=200)
    roomy = FakeDestination("large-1", facts=Facts(1000), prompt_tokens=200)
    site = Site(tight, roomy)
    _, _, record = await site.ask(replace(ASK, model="small"))
    assert (record.model, record.route) == ("large-1", "fallback:context")
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


@pytest.mark.parametrize("counted", [0, 3])
async def test_a_hit_restores_what_was_thought_counted_or_not(counted: int) -> None:
    thinks = Chunk(0, "Four.", finish_reason="stop", reasoning="Two and two.", reasoning_tokens=counted)
    other = Chunk(1, "4", finish_reason="stop", reasoning="Hm.")
    site = Site(FakeDestination(pieces=(thinks, other)))
    request = replace(ASK, n=2)
    await site.ask(request)
    async with site.road.answer(request, RED, RequestRecord("id", "e")) as answer:
        assert await answer.next_batch() == [thinks, other]
        await answer.next_batch()
        assert answer.outcome.usage.reasoning_tokens == counted
