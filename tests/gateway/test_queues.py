"""Bounded queues: so many of a class wait, nobody longer than wanted, and refusals tell when to come again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from road_site import ASK, Site

from headgate.gateway.destinations import Live
from headgate.gateway.request import CacheControl
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.queues import Queues
from headgate.gateway.teams.sections import SchedulingSection, TeamPolicy
from headgate.gateway.wire.errors import ApiError
from headgate.routing.price import Load, Rates

RATES = Rates(step_s=0.1, prompt_s=0.001, sequence_s=0.01)
FRESH = replace(ASK, cache=CacheControl(no_store=True), max_tokens=10)


def live(waiting: int = 0, pending: int = 0) -> Live:
    return Live(Load(4, waiting, pending, max_running=4), RATES, "cpu")


def test_each_class_of_each_model_has_so_many_places() -> None:
    queues = Queues(most=2)
    places = [queues.enter("m", "foreground", live(2), 10, None) for _ in range(2)]
    with pytest.raises(ApiError) as caught:
        queues.enter("m", "foreground", live(2), 10, None)
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    queues.enter("m", "background", live(2), 10, None)
    queues.enter("other", "foreground", None, 10, None)
    places[0].leave()
    places[0].leave()
    assert queues.waiting("m", "foreground") == 1
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
