"""What of a request's time is the gateway's, and what its models'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from road_pairs import BROKEN, HELLO, pair, routed
from road_site import RED, Site

from headgate.gateway.road.destinations import Pieces, Prepared
from headgate.gateway.road.request import Chunk
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord


class Busy(FakeDestination):
    """Takes two seconds of its clock before anything comes of it."""

    now: list[float]

    async def generate(self, prepared: Prepared, request_id: str, principal: Principal) -> Pieces:
        self.now[0] += 2
        async for piece in super().generate(prepared, request_id, principal):
            yield piece


def busy(small: Sequence[Chunk | Exception] | None = None, *, cached: bool = False) -> tuple[Site, list[float]]:
    """A site of busy models, whose clock is at 10 s."""
    now = [10.0]
    models = [Busy(d.id, pieces=d.pieces) for d in pair(small)]
    for model in models:
        model.now = now
    return Site(*models, cached=cached, settings=routed(), clock=lambda: now[0]), now


@pytest.mark.parametrize(
    ("model", "small", "takes"), [("small-1", None, 2.0), ("auto", None, 2.0), ("auto", BROKEN, 4.0)]
)
async def test_what_models_take_before_one_answers_is_no_overhead(
    model: str, small: Sequence[Exception] | None, takes: float
) -> None:
    site, now = busy(small)
    record = RequestRecord("id", "/v1/chat/completions", arrived=9.75)
    async with site.road.answer(replace(HELLO, model=model), RED, record) as answer:
        assert (answer.opened_at, record.opened_s) == (10.0, 0.25)
        while await answer.next_batch():
            pass
    assert now == [10.0 + takes]


async def test_the_overhead_of_who_joins_an_answer_is_his_own() -> None:
    site, now = busy(cached=True)
    async with site.road.answer(HELLO, RED, RequestRecord("one", "/v1/chat/completions", arrived=9.5)):
        now[0] = 20.0
        record = RequestRecord("two", "/v1/chat/completions", arrived=19.75)
        async with site.road.answer(HELLO, RED, record) as joined:
            assert (record.verdict, joined.opened_at, record.opened_s) == ("exact", 20.0, 0.25)
