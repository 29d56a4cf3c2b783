"""Failing over and checking answers, over destinations that do as they are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from gateway_fakes import OUTCOME, FakeDestination
from road_pairs import BROKEN, HELLO, MATHS, pair, routed, sure, told
from road_site import RED, Site

from headgate.gateway.configuration.routing import PolicySection
from headgate.gateway.road.destinations import Facts, Live
from headgate.gateway.road.request import Chunk, Message
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import CURRENT, RequestRecord
from headgate.gateway.wire.errors import ApiError, overloaded, server_error
from headgate.routing.price import Load, Rates


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (server_error(), "failed"),
        (overloaded("The server is shutting down."), "overloaded"),
        (ValueError("a bug"), "failed"),
    ],
)
async def test_a_destination_that_dies_before_it_says_anything_is_replaced(failure: Exception, cause: str) -> None:
    small, large = pair((failure,))
    site = Site(small, large)
    assert await told(site) == ("large", "large-1", f"fallback:{cause}")
    assert (small.begun, small.closed, large.begun, large.closed) == (1, 1, 1, 1)
    assert site.count(f'headgate_routes_total{{model="large-1",reason="fallback:{cause}"}} 1.0')
    assert site.count('headgate_route_escalations_total{kind="fallback",model="large-1"} 1.0')


async def test_who_stands_in_for_a_better_model_answers_for_the_moment_only() -> None:
    small, large = pair()
    well, large.pieces = large.pieces, BROKEN
    site = Site(small, large)
    for request in (replace(MATHS, model="large"), MATHS):
        large.pieces = BROKEN
        record = RequestRecord("id", "/v1/chat/completions")
        async with site.road.answer(request, RED, record) as answer:
            assert (answer.opened.reason, answer.opened.key) == ("fallback:failed", None)
            while await answer.next_batch():
                pass
        large.pieces = well
        assert (await told(site, request))[:2] == ("large", "large-1")
        assert (await told(site, request))[2] == "cache-exact"
    assert site.count('headgate_cache_stores_total{result="fallback"} 2.0')


async def test_who_is_good_enough_or_the_only_one_that_can_answer_is_remembered() -> None:
    small, large = pair(BROKEN)
    site = Site(small, large)
    assert (await told(site))[1:] == ("large-1", "fallback:failed")
    assert (await told(site))[1:] == ("large-1", "cache-exact")
    small, large = pair(prompt_tokens=200)
    site = Site(small, large)
    assert (await told(site, replace(HELLO, model="small")))[1:] == ("large-1", "fallback:context")
    assert (await told(site, replace(HELLO, model="small")))[1:] == ("large-1", "cache-exact")


async def test_the_route_says_what_kept_the_model_that_was_chosen() -> None:
    chosen, other, large = (FakeDestination(name, pieces=BROKEN) for name in ("small-1", "small-2", "large-1"))
    other.pieces, large.pieces = (overloaded("busy"),), (Chunk(0, "large", finish_reason="stop"),)
    assert await told(Site(chosen, other, large)) == ("large", "large-1", "fallback:failed")


async def test_after_something_was_said_a_failure_is_told() -> None:
    small, large = pair((Chunk(0, "a"), server_error("a step failed")))
    with pytest.raises(ApiError, match="a step failed"):
        await told(Site(small, large))
    assert large.begun == 0


async def test_where_all_fail_the_last_one_says_so_and_who_names_a_model_is_not_sent_elsewhere() -> None:
    small, large = pair(BROKEN)
    large.pieces = (server_error("so did this one"),)
    with pytest.raises(ApiError, match="so did this one"):
        await told(Site(small, large))
    small, large = pair(BROKEN)
    with pytest.raises(ApiError, match="a step failed"):
        await told(Site(small, large), replace(HELLO, model="small-1"))
    assert large.begun == 0


async def test_a_destination_that_keeps_failing_is_left_alone_until_a_trial_succeeds() -> None:
    small, large = pair(BROKEN)
    site = Site(small, large, cached=False, settings=routed(breaker={"failures": 2, "open_s": 5}))
    assert [(await told(site))[2] for _ in range(3)] == ["fallback:failed", "fallback:failed", "fallback:down"]
    assert small.begun == 2
    assert site.count('headgate_route_breaker_state{model="small-1"} 2.0')
    site.now += 5
    assert site.count('headgate_route_breaker_state{model="small-1"} 1.0')
    assert (await told(site))[2] == "fallback:failed"
    site.now += 10
    small.pieces = (Chunk(0, "well again", finish_reason="stop"),)
    assert await told(site) == ("well again", "small-1", "task:chit_chat")
    assert site.count('headgate_route_breaker_state{model="small-1"} 0.0')


@pytest.mark.parametrize(
    ("doubtful", "well", "route"),
    [
        (sure(-5.0), sure(-0.01), "escalated"),
        ([Chunk(0, "~", finish_reason="stop")], [Chunk(0, "0", finish_reason="stop")], "handed_over"),
    ],
)
async def test_a_trial_whose_answer_is_not_given_is_a_success_all_the_same(
    doubtful: Sequence[Chunk], well: Sequence[Chunk], route: str
) -> None:
    small, large = pair(BROKEN, facts=Facts(100, hand_over="~"))
    settings = routed(breaker={"failures": 1, "open_s": 5}, cascade={"enabled": route == "escalated"})
    site = Site(small, large, cached=False, settings=settings)
    assert (await told(site))[2] == "fallback:failed"
    site.now += 5
    small.pieces = doubtful
    assert (await told(site))[2] == f"cascade:{route}"
    assert site.count('headgate_route_breaker_state{model="small-1"} 0.0')
    small.pieces = well
    assert (await told(site))[:2] == ("0", "small-1")


async def test_failures_of_requests_that_name_the_model_count_too() -> None:
    small, large = pair(BROKEN)
    site = Site(small, large, cached=False, settings=routed(breaker={"failures": 1}))
    with pytest.raises(ApiError):
        await told(site, replace(HELLO, model="small-1"))
    assert (await told(site))[2] == "fallback:down"


async def test_what_a_client_asks_wrongly_opens_no_breaker() -> None:
    small, large = pair(prompt_tokens=200)
    site = Site(small, large, settings=routed(breaker={"failures": 1}))
    assert (await told(site))[2] == "fallback:context"
    assert site.count('headgate_route_breaker_state{model="small-1"} 0.0')


async def test_who_is_silent_too_long_keeps_the_request() -> None:
    small, large = pair(gate=asyncio.Event())
    site = Site(small, large, settings=routed(takeover_s=0.01))
    async with site.road.answer(HELLO, RED, RequestRecord("id", "e")) as answer:
        assert answer.opened.model == "small-1"
        assert small.gate is not None
        small.gate.set()
        assert [chunk.text for chunk in await answer.next_batch()] == ["small"]
    assert large.begun == 0


@pytest.mark.parametrize("tokens", [(-0.1, -0.2), (-0.1,) * 19 + (-9.0,)])
async def test_a_sure_answer_stands(tokens: tuple[float, ...]) -> None:
    small, large = pair(sure(*tokens))
    site = Site(small, large, settings=routed(cascade={"enabled": True}))
    text, model, route = await told(site)
    assert (text, model, route) == ("".join(str(at) for at in range(len(tokens))), "small-1", "cascade:kept")
    assert large.begun == 0


async def test_an_unsure_answer_is_replaced_before_anything_is_said_and_both_are_accounted_for() -> None:
    small, large = pair(sure(-0.1, -3.0, -3.0))
    site = Site(small, large, settings=routed(cascade={"enabled": True}))
    async with site.road.answer(HELLO, RED, RequestRecord("id", "e")) as answer:
        assert (answer.opened.model, answer.opened.reason) == ("large-1", "cascade:escalated")
        assert [chunk.text for chunk in await answer.next_batch()] == ["large"]
        assert await answer.next_batch() == []
        usage = answer.outcome.usage
    assert (usage.completion_tokens, usage.rejected_tokens) == (2 * OUTCOME.usage.completion_tokens, 2)
    assert answer.outcome.device_s == 2 * OUTCOME.device_s
    assert (small.closed, large.closed) == (1, 1)
    for model in ("small-1", "large-1"):
        assert site.count(f'headgate_generation_tokens_total{{model="{model}"}} 2.0')
    assert site.count('headgate_route_escalations_total{kind="cascade",model="large-1"} 1.0')
    assert await told(site) == ("large", "large-1", "cache-exact"), "what was given is what is kept"


async def test_what_was_computed_counts_where_a_client_leaves_before_the_end() -> None:
    small, large = pair(sure(-0.1, -3.0, -3.0))
    large.pieces = (Chunk(0, "a", token_ids=(1, 2, 3)), Chunk(0, "b", token_ids=(4,), finish_reason="stop"))
    large.gate = asyncio.Event()
    site = Site(small, large, cached=False, settings=routed(cascade={"enabled": True}))
    async with site.road.answer(HELLO, RED, RequestRecord("id", "e")) as answer:
        assert [chunk.text for chunk in await answer.next_batch()] == ["a"]
        for _ in range(10):
            await asyncio.sleep(0)
    assert (small.closed, large.closed) == (1, 1)
    for model, prompt, generated in (("small-1", 5, 2), ("large-1", 5, 3)):
        assert site.count(f'headgate_prompt_tokens_total{{model="{model}"}} {prompt}.0')
        assert site.count(f'headgate_generation_tokens_total{{model="{model}"}} {generated}.0')


@pytest.mark.parametrize(("small", "end"), [(BROKEN, "failed"), (sure(-5.0, -5.0), "unsure")])
async def test_what_was_tried_in_vain_is_noted_with_its_time(small: Sequence[Chunk | Exception], end: str) -> None:
    site = Site(*pair(small), settings=routed(cascade={"enabled": True}))
    record = RequestRecord("id", "e", arrived=time.monotonic())
    CURRENT.set(record)
    async with site.road.answer(HELLO, RED, record) as answer:
        assert answer.opened.model == "large-1"
    ((model, told, began, ended),) = [(f.model, f.end, f.began, f.ended) for f in record.failed]
    assert (model, told) == ("small-1", end)
    assert record.arrived <= began <= ended <= time.monotonic()


async def test_what_is_held_back_is_bounded() -> None:
    small, large = pair([*sure(-0.1, -0.1, -0.1), *sure(-9.0, -9.0)], gate=asyncio.Event())
    small.pieces[2].finish_reason = None  # type: ignore[union-attr]
    site = Site(small, large, settings=routed(cascade={"enabled": True, "hold_tokens": 3}))
    async with site.road.answer(HELLO, RED, RequestRecord("id", "e")) as answer:
        assert answer.opened.reason == "cascade:kept", "decided by three tokens, with more to come"
    small, large = pair([*sure(-0.1, -0.1), *sure(-9.0)], gate=asyncio.Event())
    small.pieces[1].finish_reason = None  # type: ignore[union-attr]
    site = Site(small, large, settings=routed(cascade={"enabled": True, "hold_ms": 10}))
    site.road = type(site.road)(routes=site.routes, answers=site.answers, metrics=site.metrics)
    async with site.road.answer(HELLO, RED, RequestRecord("id", "e")) as answer:
        assert answer.opened.reason == "cascade:kept", "decided by what there was in time"
    assert small.closed == 1


async def test_an_unsure_answer_is_better_than_none() -> None:
    small, large = pair(sure(-5.0, -5.0))
    large.pieces = BROKEN
    assert await told(Site(small, large, settings=routed(cascade={"enabled": True}))) == (
        "01",
        "small-1",
        "cascade:kept",
    )


async def test_log_probabilities_that_nobody_asked_for_are_not_shown() -> None:
    for logprobs, shown in ((None, 0), (0, 1)):
        small, large = pair(sure(-0.1))
        site = Site(small, large, settings=routed(cascade={"enabled": True}))
        async with site.road.answer(replace(HELLO, logprobs=logprobs), RED, RequestRecord("id", "e")) as answer:
            (chunk,) = await answer.next_batch()
            assert len(chunk.logprobs) == shown


@pytest.mark.parametrize("cascade", [False, True])
async def test_who_leaves_while_answers_are_held_back_ends_all_work(cascade: bool) -> None:
    small, large = pair([*sure(-0.1), *sure(-0.1)], gate=asyncio.Event())
    small.pieces[0].finish_reason = None  # type: ignore[union-attr]
    if not cascade:
        small.pieces = small.pieces[1:]
    site = Site(small, large, settings=routed(cascade={"enabled": cascade}))
    asking = asyncio.create_task(told(site))
    await small.started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (small.closed, large.begun) == (1, 0)


async def test_the_budget_of_escalations_is_kept() -> None:
    small, large = pair()
    site = Site(small, large, cached=False, settings=routed(escalations=0.0))
    assert await told(site, MATHS) == ("small", "small-1", "budget")
    assert (await told(site, replace(MATHS, model="large")))[1] == "large-1"


async def test_teams_and_keys_have_policies_of_their_own() -> None:
    site = Site(*pair(), settings=routed())
    red = Principal("red", "k1", models=frozenset({"small-1"}))
    blue = Principal("blue", "k2", routing=PolicySection(escalations=0))
    assert (await told(site, MATHS, red))[1:] == ("small-1", "fallback:not_allowed")
    assert (await told(site, MATHS, blue))[1:] == ("small-1", "budget")
    assert (await told(site, MATHS, Principal("blue", "k3")))[1] == "large-1"
    with pytest.raises(ApiError, match=r"'large-1' may not be used with this key\. Available: small-1") as caught:
        await told(site, replace(MATHS, model="large-1"), red)
    assert caught.value.status == 403
    with pytest.raises(ApiError, match=r"'gpt' does not exist\. Available: auto, small, large, small-1\."):
        await told(site, replace(MATHS, model="gpt"), red)


async def test_a_crowded_model_sends_who_has_a_choice_elsewhere_and_conversations_stay() -> None:
    rates = Rates(0.01, 0.001, 0.001)
    small, large = pair()
    large.stands = Live(Load(), Rates(0.03, 0.003, 0.003), "b")
    small.stands = Live(Load(), rates, "a")
    site = Site(small, large, cached=False, settings=routed(sessions={"switch_gain": 0.9}))
    assert (await told(site))[1:] == ("small-1", "task:chit_chat")
    small.stands = Live(Load(running=60, waiting=20, pending_tokens=5000), rates, "a")
    other = replace(HELLO, messages=(Message("user", "Hello there!"),))
    assert (await told(site, other))[1:] == ("large-1", "price")
    assert (await told(site, replace(other, session="new")))[1:] == ("large-1", "price")
    small.stands = Live(Load(running=8), rates, "a")
    assert (await told(site))[1:] == ("small-1", "sticky")
    assert site.count('headgate_route_price_ratio_count{model="small-1"} 2.0')


async def test_a_conversation_with_tools_goes_where_they_are_understood() -> None:
    small, large = pair(lacks=frozenset({"tools"}))
    messages = (Message("user", "Hello!"), Message("tool", "hi", tool_call_id="1"), Message("user", "Hello!"))
    assert (await told(Site(small, large), replace(HELLO, messages=messages)))[2] == "fallback:lacks_tools"


async def test_the_roomiest_says_what_does_not_fit() -> None:
    small, large = pair(prompt_tokens=2000)
    large.prompt_tokens, large.facts = 2000, Facts(1000)
    with pytest.raises(ApiError, match="maximum context length is 1000 tokens"):
        await told(Site(small, large))


async def test_another_of_the_tier_takes_over_first_and_its_answer_is_checked_as_well() -> None:
    small, large = pair(BROKEN)
    twin = FakeDestination("small-2", pieces=sure(-0.1))
    models = [{"id": name, "path": "x", "tier": name.split("-")[0]} for name in ("small-1", "small-2", "large-1")]
    settings = Settings(models=models, routing={"cascade": {"enabled": True}})
    assert await told(Site(small, twin, large, settings=settings)) == ("0", "small-2", "fallback:failed")
    assert large.begun == 0
    twin.pieces = sure(-3.0)
    assert await told(Site(small, twin, large, settings=settings)) == ("large", "large-1", "cascade:escalated")
