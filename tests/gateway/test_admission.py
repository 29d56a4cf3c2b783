"""What requests take of limits on the road, and what they get back: whole, cancelled, failed, joined, cached."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from road_site import ASK, Site

from headgate.gateway.road.destinations import Facts
from headgate.gateway.road.request import CacheControl, Chunk
from headgate.gateway.teams.admission import Admission
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import (
    BudgetsSection,
    KeyLimitsSection,
    LimitsSection,
    TeamPolicy,
    UserLimitsSection,
)
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError, server_error

FRESH = replace(ASK, cache=CacheControl(no_store=True), max_tokens=10)


def team(**limits: object) -> Principal:
    return Principal("red", "laptop", policy=TeamPolicy(limits=LimitsSection.model_validate(limits)))


def tokens_left(record: RequestRecord) -> int:
    assert record.standing is not None
    level = record.standing().tokens
    assert level is not None
    return level.remaining


async def test_a_whole_answer_costs_what_it_used_and_an_answer_from_the_cache_nothing() -> None:
    site, who = Site(FakeDestination()), team(tokens_per_minute=1000)
    _, verdict, record = await site.ask(ASK, who)
    assert (verdict, tokens_left(record)) == ("miss", 993)
    _, verdict, record = await site.ask(ASK, who)
    assert (verdict, tokens_left(record)) == ("exact", 993)


async def test_tokens_are_set_aside_before_the_answer_and_given_back_after() -> None:
    gate = asyncio.Event()
    site, who = Site(FakeDestination(gate=gate)), team(tokens_per_minute=100)
    record = RequestRecord("id", "/v1/chat/completions")
    async with site.road.answer(FRESH, who, record) as answer:
        assert tokens_left(record) == 85
        gate.set()
        while await answer.next_batch():
            pass
        assert tokens_left(record) == 93


async def test_an_answer_that_is_left_costs_its_prompt_and_what_came_of_it() -> None:
    destination = FakeDestination(
        pieces=(Chunk(0, "a", token_ids=(1, 2, 3)), Chunk(0, "b", finish_reason="stop")), gate=asyncio.Event()
    )
    site, who = Site(destination), team(tokens_per_minute=100)
    record = RequestRecord("id", "/v1/chat/completions")
    async with site.road.answer(FRESH, who, record) as answer:
        await answer.next_batch()
    assert tokens_left(record) == 92


async def test_a_request_that_was_left_before_anything_came_costs_nothing() -> None:
    destination = FakeDestination(pieces=(Chunk(0, "b", finish_reason="stop"),), gate=asyncio.Event())
    site, who = Site(destination), team(tokens_per_minute=100)
    record = RequestRecord("id", "/v1/chat/completions")
    async with site.road.answer(FRESH, who, record):
        pass
    assert tokens_left(record) == 100


async def test_a_failed_answer_gives_back_what_it_did_not_use() -> None:
    site, who = Site(FakeDestination(pieces=(server_error(),))), team(tokens_per_minute=100)
    record = RequestRecord("id", "/v1/chat/completions")
    with pytest.raises(ApiError) as caught:
        async with site.road.answer(FRESH, who, record) as answer:
            await answer.next_batch()
    assert caught.value.status == 500
    assert tokens_left(record) == 100


async def test_a_refused_reservation_says_what_would_fit_and_when() -> None:
    site, who = Site(FakeDestination()), team(tokens_per_minute=20)
    await site.ask(FRESH, who)
    with pytest.raises(ApiError) as caught:
        await site.ask(FRESH, who)
    error = caught.value
    assert (error.status, error.type, error.code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert "team 'red' on tokens per minute: limit 20, used 7" in error.message
    assert int(error.headers["Retry-After"]) == 60
    assert 59_000 < int(error.headers["retry-after-ms"]) <= 60_000
    with pytest.raises(ApiError) as caught:
        await site.ask(replace(FRESH, max_tokens=16), who)
    assert (caught.value.param, caught.value.headers) == ("max_tokens", {"x-should-retry": "false"})


async def test_who_joins_pays_nothing_and_is_not_refused_by_the_limit_of_whom_he_joins() -> None:
    gate = asyncio.Event()
    site, who = Site(FakeDestination(gate=gate)), team(tokens_per_minute=200)
    first = asyncio.create_task(site.ask(ASK, who))
    second = asyncio.create_task(site.ask(ASK, who))
    poor = Principal("red", "phone", policy=TeamPolicy(limits=LimitsSection(tokens_per_minute=1)))
    await asyncio.sleep(0)
    gate.set()
    assert {(await first)[1], (await second)[1]} == {"miss", "exact"}
    assert tokens_left((await second)[2]) == 193

    other = replace(ASK, model="fake", max_tokens=5)
    refused, served = await asyncio.gather(site.ask(other, poor), site.ask(other, who), return_exceptions=True)
    assert isinstance(refused, ApiError)
    assert not isinstance(served, BaseException)
    assert served[1] == "miss"


async def test_requests_and_places_are_counted_for_team_and_end_user() -> None:
    gate = asyncio.Event()
    site = Site(FakeDestination(gate=gate))
    who = team(concurrency=2, per_user=UserLimitsSection(requests_per_minute=1))
    tasks = [asyncio.create_task(site.ask(replace(FRESH, user=user), who)) for user in ("ann", "bob")]
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="team 'red' on requests at the same time: limit 2, used 2"):
        await site.ask(replace(FRESH, user="cleo"), who)
    gate.set()
    await asyncio.gather(*tasks)
    with pytest.raises(ApiError, match="user 'ann' on requests per minute: limit 1, used 1"):
        await site.ask(replace(FRESH, user="ann"), who)
    await site.ask(replace(FRESH, user="cleo"), who)


async def test_a_key_is_within_its_own_limits_and_its_teams_and_the_tighter_one_is_told() -> None:
    site, policy = (
        Site(FakeDestination()),
        TeamPolicy(limits=LimitsSection(tokens_per_minute=30, requests_per_minute=4)),
    )
    laptop = Principal("red", "laptop", policy=policy, limits=KeyLimitsSection(tokens_per_minute=25))
    phone = Principal("red", "phone", policy=policy, limits=KeyLimitsSection(requests_per_minute=1))
    _, _, record = await site.ask(FRESH, laptop)
    assert tokens_left(record) == 25 - 7
    _, _, record = await site.ask(FRESH, phone)
    assert tokens_left(record) == 30 - 14
    assert record.standing is not None
    requests = record.standing().requests
    assert requests is not None
    assert (requests.limit, requests.remaining) == (1, 0)
    for who, said in ((phone, "key 'phone' on requests per minute: limit 1, used 1"), (laptop, "team 'red' on tokens")):
        with pytest.raises(ApiError, match=said):
            await site.ask(replace(FRESH, max_tokens=12), who)
    assert tokens_left(record) == 16, "what was refused took nothing"


async def test_caps_name_the_parameter_and_an_open_length_is_within_them() -> None:
    site, who = Site(FakeDestination(facts=Facts(100))), team(max_tokens=8, max_n=2, max_context_tokens=12)
    for request, param in (
        (replace(FRESH, max_tokens=9), "max_tokens"),
        (replace(FRESH, n=3), "n"),
        (replace(FRESH, max_tokens=8), "max_tokens"),
    ):
        with pytest.raises(ApiError) as caught:
            await site.ask(request, who)
        assert (caught.value.status, caught.value.param) == (400, param)
    await site.ask(replace(FRESH, max_tokens=7), who)


@pytest.mark.parametrize("on_exceed", ["block", "downgrade", "queue"])
async def test_a_budget_of_which_nothing_is_left_turns_as_it_says(on_exceed: str) -> None:
    budgets = BudgetsSection.model_validate({"daily_usd": 0, "on_exceed": on_exceed})
    who = Principal("red", policy=TeamPolicy(budgets=budgets))
    with await Admission().enter(FRESH, who, RequestRecord("id", "")) as ticket:
        found = (ticket.request.model, ticket.request.priority)
    assert found == {
        "block": ("fake", "foreground"), "downgrade": ("small", "foreground"), "queue": ("fake", "background"),
    }[on_exceed]  # fmt: skip


async def test_what_the_small_model_said_in_vain_counts() -> None:
    site = Site(FakeDestination("small"), FakeDestination("large"))
    record = RequestRecord("id", "/v1/chat/completions")
    who = team(tokens_per_minute=1000)
    async with site.road.answer(replace(FRESH, model="auto"), who, record) as answer:
        while await answer.next_batch():
            pass
    assert tokens_left(record) == 993
