"""Bounded queues: so many of a class wait, nobody longer than wanted, and refusals tell when to come again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from road_site import ASK, RED, Site

from headgate.gateway.road.destinations import Live
from headgate.gateway.road.request import CacheControl, ChatRequest
from headgate.gateway.teams.deadlines import Deadline, deadline_of
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.queues import Queues
from headgate.gateway.teams.sections import SchedulingSection, TeamPolicy
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError
from headgate.routing.price import Load, Rates

RATES = Rates(step_s=0.1, prompt_s=0.001, sequence_s=0.01)
FRESH = replace(ASK, cache=CacheControl(no_store=True), max_tokens=10)


def stands(waiting: int = 0, pending: int = 0) -> Live:
    return Live(Load(4, waiting, pending, max_running=4), RATES, "cpu")


def live(waiting: int = 0, pending: int = 0) -> Callable[[], Live]:
    return lambda: stands(waiting, pending)


def test_each_class_of_each_model_has_so_many_places() -> None:
    queues = Queues(most=2)
    places = [queues.enter("m", "foreground", live(2), 10, None) for _ in range(2)]
    with pytest.raises(ApiError) as caught:
        queues.enter("m", "foreground", live(2), 10, None)
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    queues.enter("m", "background", live(2), 10, None)
    queues.enter("other", "foreground", lambda: None, 10, None)
    places[0].leave()
    places[0].leave()
    assert ("m", "foreground", 1) in queues.standing()
    queues.enter("m", "foreground", live(2), 10, None)


def test_who_would_wait_too_long_is_told_when_it_will_not_be() -> None:
    queues = Queues()
    with pytest.raises(ApiError) as caught:
        queues.enter("m", "foreground", live(8, 1000), 10, max_queue_s=5)
    # 1,000 prompt tokens in two steps beside four sequences, half a step, and nine turns for four places.
    step_s = 0.1 + 0.01 * 4
    queue_s = 1000 * 0.001 + 2 * step_s + 0.5 * step_s + 9 / 4 * 64 * step_s
    assert int(caught.value.headers["retry-after-ms"]) == pytest.approx((queue_s - 5) * 1e3, abs=1)
    assert f"takes about {queue_s:.1f} s, and this team's requests wait at most 5 s" in caught.value.message
    queues.enter("m", "background", live(8, 1000), 10, max_queue_s=5)
    assert queues.enter("m", "foreground", live(), 10, max_queue_s=50).deadline_s == pytest.approx(
        50 + 10 * 0.001 + step_s
    )


def test_interactive_requests_wait_for_their_like_only() -> None:
    queues, busy = Queues(), live(8, 1000)
    place = queues.enter("m", "interactive", busy, 10, max_queue_s=5)
    with pytest.raises(ApiError):
        queues.enter("m", "foreground", busy, 10, max_queue_s=5)
    others = [queues.enter("m", "interactive", busy, 100, None) for _ in range(8)]
    with pytest.raises(ApiError):
        queues.enter("m", "interactive", busy, 10, max_queue_s=5)
    for one in (place, *others):
        one.leave()
    assert queues.enter("m", "interactive", busy, 10, max_queue_s=5).deadline_s is not None


async def test_an_answer_that_does_not_begin_in_time_is_ended() -> None:
    destination = FakeDestination(pieces=FakeDestination.pieces[-1:], gate=asyncio.Event())
    site = Site(destination)
    who = Principal("red", policy=TeamPolicy(scheduling=SchedulingSection(max_queue_s=0.01)))
    with pytest.raises(ApiError, match="did not begin within"):
        await site.ask(FRESH, who)
    assert destination.closed == 1
    destination.gate = None
    await site.ask(FRESH, who)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"x-headgate-timeout-ms": "1500"}, Deadline(1.5, streams=True)),
        ({"x-headgate-timeout-ms": "250", "x-stainless-timeout": "600"}, Deadline(0.25, streams=True)),
        ({"x-stainless-timeout": "600"}, Deadline(600, streams=False)),
        ({"x-stainless-timeout": "NOT_GIVEN", "x-stainless-read-timeout": "7.5"}, Deadline(7.5, streams=False)),
        ({"x-stainless-read-timeout": "None"}, None),
        ({"x-stainless-timeout": "0"}, None),
    ],
)
def test_clients_say_how_long_they_wait(headers: dict[str, str], expected: Deadline | None) -> None:
    assert deadline_of(CIMultiDict(headers)) == expected


@given(st.text(max_size=12).filter(lambda text: not text.strip().isdecimal()) | st.sampled_from(["0", "010", "1" * 10]))
def test_a_time_that_is_no_milliseconds_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        deadline_of(CIMultiDict({"x-headgate-timeout-ms": text}))
    assert (caught.value.status, caught.value.param) == (400, "x-headgate-timeout-ms")


def test_who_would_be_in_the_queue_when_his_client_gives_up_is_told_at_once() -> None:
    queues = Queues()
    with pytest.raises(ApiError) as caught:
        queues.enter("m", "background", live(8, 1000), 10, None, left_s=5)
    expected_s = queues.expected_s("background")
    assert (caught.value.status, caught.value.code, caught.value.fault) == (503, "overloaded", False)
    assert int(caught.value.headers["retry-after-ms"]) == pytest.approx((expected_s - 5) * 1e3, abs=1)
    assert ("m", "background", 0) in queues.standing()
    queues.enter("m", "background", live(8, 1000), 10, None, left_s=expected_s + 1)


def waiting(destination: FakeDestination) -> tuple[Site, asyncio.Event]:
    """A model whose answer begins when the event is set."""
    destination.pieces, destination.gate = FakeDestination.pieces[-1:], asyncio.Event()
    return Site(destination), destination.gate


async def ask(
    site: Site,
    seconds: float,
    *,
    streams: bool = True,
    request: ChatRequest = FRESH,
    record: RequestRecord | None = None,
) -> str:
    record = RequestRecord("id", "/v1/chat/completions") if record is None else record
    record.arrived = time.monotonic()
    record.deadline = Deadline(seconds, streams)
    text = ""
    async with site.road.answer(request, RED, record) as answer:
        while batch := await answer.next_batch():
            text += "".join(chunk.text for chunk in batch)
    return text


async def test_who_gave_up_is_taken_out_of_the_queue_and_pays_nothing() -> None:
    destination = FakeDestination()
    site, gate = waiting(destination)
    with pytest.raises(ApiError) as caught:
        await ask(site, 0.2)
    assert (caught.value.status, caught.value.code, destination.closed) == (408, "deadline_exceeded", 1)
    assert int(caught.value.headers["retry-after-ms"]) > 0
    assert not site.count('headgate_usage_requests_total{cause="cancelled"')
    assert site.routes.breakers["fake"].state == "closed", "the model is no worse for it"
    gate.set()
    assert await ask(site, 0.2) == "b", "what begins in time comes to its end"


async def test_a_stream_is_not_bound_by_what_an_official_client_waits_for_a_reply() -> None:
    site, gate = waiting(FakeDestination())
    stream = asyncio.create_task(ask(site, 0.0, streams=False, request=replace(FRESH, stream=True)))
    with pytest.raises(ApiError, match="did not begin within"):
        await ask(site, 0.01, streams=False)
    gate.set()
    assert await stream == "b"


async def test_who_gives_up_leaves_the_answer_to_those_that_joined_him() -> None:
    destination = FakeDestination()
    site, gate = waiting(destination)
    first = asyncio.create_task(ask(site, 0.02, request=ASK))
    await destination.started.wait()
    patient = asyncio.create_task(ask(site, 60, request=ASK))
    with pytest.raises(ApiError, match="did not begin within"):
        await ask(site, 0.01, request=ASK)
    with pytest.raises(ApiError, match="did not begin within"):
        await first
    gate.set()
    assert await patient == "b"
    assert destination.begun == 1


async def test_who_is_refused_for_his_haste_takes_nobody_along() -> None:
    site = Site(FakeDestination(stands=stands(8, 1000)))
    hasty, patient = await asyncio.gather(
        ask(site, 1, request=ASK), ask(site, 1e6, request=ASK), return_exceptions=True
    )
    assert isinstance(hasty, ApiError)
    assert (hasty.status, patient) == (503, "ab")


async def test_who_would_wait_too_long_for_one_model_is_answered_by_another() -> None:
    small, large = FakeDestination("small-1"), FakeDestination("large-1")
    small.stands, large.stands = stands(), stands(8, 1000)
    site = Site(small, large)
    record = RequestRecord("id", "/v1/chat/completions")
    assert await ask(site, 5, request=replace(FRESH, model="auto"), record=record) == "ab"
    assert (record.model, record.route, small.begun) == ("small-1", "fallback:overloaded", 1)
    with pytest.raises(ApiError, match="takes about"):
        await ask(site, 5, request=replace(FRESH, model="large-1"))
