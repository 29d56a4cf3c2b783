"""What a small model leaves to the large one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from gateway_fakes import FakeDestination
from road_pairs import BROKEN, HELLO, pair, routed, sure, told
from road_site import RED, Site

from headgate.engine.sampling.params import SamplingParams
from headgate.gateway.road.destinations import Facts, Pieces, Prepared, Read
from headgate.gateway.road.request import ChatRequest, Chunk, ToolCallDelta
from headgate.gateway.settings import Settings
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord
from headgate.routing.types import Quality, RouteFeatures


def leaving(**routing: Any) -> Settings:
    """The small model says when a request is not for it."""
    settings = routed(**routing)
    small, large = settings.models
    return settings.model_copy(update={"models": (small.model_copy(update={"hand_over": "Not me."}), large)})


def spoken(*texts: str) -> list[Chunk]:
    pieces = [Chunk(0, text, token_ids=(at,)) for at, text in enumerate(texts)]
    pieces[-1].finish_reason = "stop"
    return pieces


@pytest.mark.parametrize("said", [("Not me.",), ("N", "ot me", "."), ("Not", " me. Ask", " somebody"), ("Not m",)])
async def test_a_small_model_may_leave_a_request_to_the_large_one(said: tuple[str, ...]) -> None:
    small, large = pair(spoken(*said))
    site = Site(small, large, settings=leaving())
    assert await told(site) == ("large", "large-1", "cascade:handed_over")
    assert (small.closed, large.closed) == (1, 1)
    assert await told(site) == ("large", "large-1", "cache-exact"), "what was given is what is kept"


@pytest.mark.parametrize("said", [("Note:", " me too."), ("No", "", "pe"), ("Hello! ", "Not me.")])
async def test_other_answers_of_a_small_model_stand(said: tuple[str, ...]) -> None:
    small, large = pair(spoken(*said))
    assert await told(Site(small, large, settings=leaving())) == ("".join(said), "small-1", "task:chit_chat")
    assert large.begun == 0


async def test_an_answer_that_is_no_hand_over_is_given_as_soon_as_that_is_clear() -> None:
    small, large = pair([*spoken("No", "body", "knows")], gate=asyncio.Event())
    site = Site(small, large, settings=leaving(takeover_s=60))
    # Held back until it ends, or for as long as may be, it would not be there in time.
    async with asyncio.timeout(10), site.road.answer(HELLO, RED, RequestRecord("id", "e")) as answer:
        assert answer.opened.model == "small-1"
    assert large.begun == 0


async def test_a_request_is_handed_over_only_where_the_router_may_choose_and_somebody_answers() -> None:
    small, large = pair(spoken("Not me."))
    for model in ("small-1", "small"):
        site = Site(small, large, settings=leaving())
        assert (await told(site, replace(HELLO, model=model)))[:2] == ("Not me.", "small-1")
    assert (await told(Site(small, large, settings=leaving(escalations=0.0))))[:2] == ("Not me.", "small-1")
    assert (await told(Site(small, large, settings=leaving()), replace(HELLO, n=2)))[1] == "small-1"
    assert large.begun == 0
    large.pieces = BROKEN
    assert await told(Site(small, large, settings=leaving())) == ("Not me.", "small-1", "cascade:kept")


class Student(FakeDestination):
    """Begins with its mark where it may, and answers where it may not."""

    async def prepare(self, request: ChatRequest, read: Read | None = None) -> Prepared:
        prepared = await super().prepare(request, read)
        return msgspec.structs.replace(prepared, sampling=SamplingParams(begin_suppress_tokens=(9,)))

    async def generate(self, prepared: Prepared, request_id: str, principal: Principal) -> Pieces:
        self.pieces = spoken("its own answer" if prepared.sampling.begin_suppress_tokens else "~")
        async with aclosing(super().generate(prepared, request_id, principal)) as pieces:
            async for piece in pieces:
                yield piece


def taught() -> tuple[Student, FakeDestination]:
    return Student("small-1", facts=Facts(100, hand_over="~")), pair()[1]


async def test_a_checkpoint_says_how_it_hands_over_and_may_only_where_somebody_else_can_answer() -> None:
    assert await told(Site(*taught())) == ("large", "large-1", "cascade:handed_over")
    for model in ("small-1", "small"):
        assert (await told(Site(*taught()), replace(HELLO, model=model)))[:2] == ("its own answer", "small-1")
    spent = routed(escalations=0.0)
    assert (await told(Site(*taught(), settings=spent)))[:2] == ("its own answer", "small-1")
    small, large = routed().models
    never = routed().model_copy(update={"models": (small.model_copy(update={"hand_over": False}), large)})
    assert await told(Site(*taught(), settings=never)) == ("its own answer", "small-1", "task:chit_chat")
    large_one = routed().model_copy(update={"models": (small, large.model_copy(update={"id": "other"}))})
    assert (await told(Site(taught()[0], settings=large_one)))[0] == "its own answer"


class Keeping:
    """Estimates that would have the small model answer whatever it hands over, or nothing of that."""

    wants_state = False

    def __init__(self, kept: float) -> None:
        self.kept = kept

    def estimate(self, _features: RouteFeatures, _task: str) -> Quality:
        return Quality(0.9, 1.0, "embedding", kept=self.kept)


async def test_a_request_is_not_handed_over_where_the_small_models_own_answer_will_do() -> None:
    small, large = taught()
    site = Site(small, large, quality=Keeping(0.8), cached=False)
    assert await told(site) == ("its own answer", "small-1", "quality:small")
    assert (small.begun, large.begun) == (1, 0)
    assert await told(Site(*taught(), quality=Keeping(0.2))) == ("large", "large-1", "cascade:handed_over")
    # One that says so in words can not be kept from it.
    small, large = pair(spoken("Not me."))
    leaves = Site(small, large, settings=leaving(), quality=Keeping(0.8))
    assert await told(leaves) == ("large", "large-1", "cascade:handed_over")


async def test_who_handed_over_answers_after_all_where_the_large_model_fails() -> None:
    small, large = taught()
    large.pieces = BROKEN
    assert await told(Site(small, large, cached=False)) == ("its own answer", "small-1", "cascade:kept")
    assert (small.begun, small.closed, large.closed) == (2, 2, 1)


async def test_thoughts_and_calls_are_no_hand_over() -> None:
    for first in (Chunk(0, "", reasoning="Not me."), Chunk(0, "", tool_calls=(ToolCallDelta(0, "{}", "id", "f"),))):
        small, large = pair([first, *spoken("Not me.")])
        assert (await told(Site(small, large, settings=leaving())))[1] == "small-1"


@pytest.mark.parametrize("unsure", [True, False])
async def test_an_answer_that_stands_only_because_nobody_else_answered_is_not_remembered(unsure: bool) -> None:
    small, large = pair(sure(-3.0)) if unsure else taught()
    well, large.pieces = large.pieces, BROKEN
    site = Site(small, large, settings=routed(cascade={"enabled": unsure}))
    assert (await told(site))[1:] == ("small-1", "cascade:kept")
    large.pieces = well
    assert (await told(site))[:2] == ("large", "large-1")
    assert (await told(site))[2] == "cache-exact"
