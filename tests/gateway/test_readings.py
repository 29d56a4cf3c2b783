"""Bodies that come again: read once for one principal, and never kept when they are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from multidict import CIMultiDict, CIMultiDictProxy
from road_site import RED, Site

from headgate.gateway.readings import LONGEST, Reading, Readings
from headgate.gateway.request import CacheControl, ChatRequest
from headgate.gateway.teams.keys import Principal
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.chat import parse_chat
from headgate.gateway.wire.errors import ApiError

BODY = json.dumps({"model": "fake", "messages": [{"role": "user", "content": "What is two plus two?"}]}).encode()


class Reader:
    """Readings, and how often a body was in fact read."""

    def __init__(self, readings: Readings | None = None) -> None:
        self.readings = Readings() if readings is None else readings
        self.count = 0

    def read(self, body: bytes = BODY, principal: Principal = RED, **headers: str) -> Reading:
        named = CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}))
        return self.readings.read(body, named, principal, self.parse)

    def parse(self, body: bytes, control: CacheControl, session: str | None) -> ChatRequest:
        self.count += 1
        return parse_chat(body, control, session)


def test_a_body_that_comes_again_is_read_once() -> None:
    reader = Reader()
    assert reader.read() is reader.read()
    assert reader.count == 1


def test_what_is_beside_a_body_is_part_of_what_it_asks() -> None:
    reader = Reader()
    plain = reader.read()
    assert reader.read(x_headgate_session="a").request.session == "a"
    assert reader.read(cache_control="no-store").request.cache.no_store
    assert reader.read() is plain
    assert not plain.request.cache.no_store
    assert reader.count == 3


def test_nobody_is_given_what_was_read_for_another() -> None:
    reader = Reader()
    reloaded = Principal("red")
    assert reloaded == RED
    assert len({id(reader.read(principal=who)) for who in (RED, replace(RED, key_id="k"), Principal("blue"))}) == 3
    assert reader.read(principal=reloaded).principal is reloaded
    assert reader.count == 4, "a reload makes principals anew"


def test_nothing_is_kept_of_what_is_refused_or_long() -> None:
    reader = Reader()
    for _ in range(2):
        with pytest.raises(ApiError):
            reader.read(b'{"model": "fake"}')
        with pytest.raises(ApiError):
            reader.read(cache_control="max-age=soon")
        reader.read(BODY + b" " * LONGEST)
    assert len(reader.readings) == 0


def test_the_oldest_go_beyond_the_bound() -> None:
    reader = Reader(Readings(3 * (len(BODY) + 2048)))
    bodies = [BODY.replace(b"two plus", b"%d plus" % i) for i in range(3)]
    for body in bodies:
        reader.read(body)
    reader.read(bodies[0])
    reader.read(BODY)
    assert (reader.count, len(reader.readings)) == (4, 3)
    reader.read(bodies[0])
    assert reader.count == 4, "it was used last"
    reader.read(bodies[1])
    assert reader.count == 5


async def test_another_epoch_finds_nothing_of_the_older_for_a_body_that_was_read_before() -> None:
    site, reading = Site(FakeDestination()), Reader().read()

    async def ask() -> str:
        record = RequestRecord("id", "/v1/chat/completions")
        async with site.road.answer(reading.request, RED, record, reading) as answer:
            while await answer.next_batch():
                pass
        return record.verdict

    assert [await ask() for _ in range(3)] == ["miss", "exact", "exact"]
    await site.answers.turn_epoch("next")
    assert [await ask() for _ in range(2)] == ["miss", "exact"]
    await site.answers.turn_epoch("")
    assert await ask() == "exact"
    site.now = 61.0
    assert await ask() == "miss", "its time is over"
