"""Bodies that come again: read once for one principal, and never kept when they are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from gateway_fakes import FakeDestination
from msgspec.structs import replace as replaced
from multidict import CIMultiDict, CIMultiDictProxy
from prometheus_client import generate_latest
from road_site import RED, Site

from headgate.cache.fingerprint import Fingerprinter
from headgate.cache.store.base import Store
from headgate.cache.store.memory import MemoryStore
from headgate.gateway.caching.answers import Answers
from headgate.gateway.caching.question import CachePolicy
from headgate.gateway.edge.body_cache import LONGEST, OVERHEAD, Reading, Readings
from headgate.gateway.pipeline import Road
from headgate.gateway.road.request import CacheControl, ChatRequest
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.sections import LimitsSection, TeamPolicy
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
    reader = Reader(Readings(3 * (len(BODY) + OVERHEAD)))
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


class Elsewhere:
    """A store that has to be waited for, as one in another process: nothing of it is at hand."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def told(record: RequestRecord) -> dict[str, Any]:
    """What a reply's headers, the log and the ledger are made of, but for how long things took."""
    times = ("arrived", "admitted_s", "opened_s", "first_token_s", "total_s", "standing", "chosen", "opened")
    opened = record.opened
    return {name: getattr(record, name) for name in RequestRecord.__struct_fields__ if name not in times} | {
        "opened": None
        if opened is None
        else replaced(opened, looked_s=None, planned_s=None, asked_at=None, chosen=None)
    }


async def test_what_is_at_hand_is_told_counted_and_limited_as_what_is_looked_up() -> None:
    limited = Principal("red", key_id="k", policy=TeamPolicy(limits=LimitsSection(requests_per_minute=25)))
    bodies: list[dict[str, Any]] = [{}, {}, {"stream": True}, {"user": "ann"}, {"n": 2}, {"n": 2}, {"seed": 1}]
    steering = [{}, {"cache_control": "no-cache"}, {"cache_control": "max-age=30"}, {"cache_control": "only-if-cached"}]
    asks = [(body, headers) for body in bodies for headers in steering]
    seen = []
    for short in (True, False):
        site, reader = Site(FakeDestination()), Reader()
        if not short:
            store = cast(Store, Elsewhere(site.store))
            answers = Answers(store, Fingerprinter(b"0" * 16), CachePolicy(ttl_s=60.0), clock=lambda: site.now)  # noqa: B023
            site.road = Road(routes=site.routes, answers=answers, metrics=site.metrics, admission=site.admission)
        replies: list[Any] = []
        for body, headers in asks:
            reading = reader.read(json.dumps({**json.loads(BODY), **body}).encode(), limited, **headers)
            record = RequestRecord("id", "/v1/chat/completions")
            try:
                kept = reading if short else None
                async with site.road.answer(reading.request, limited, record, kept) as answer:
                    while batch := await answer.next_batch():
                        replies.append(batch)
                    replies.append(answer.outcome)
            except ApiError as error:
                replies.append((error.status, error.code))
            assert record.standing is not None
            standing = record.standing().requests
            replies.append((told(record), None if standing is None else (standing.limit, standing.remaining)))
            site.now += 1.0
        lines = generate_latest(site.metrics.registry).decode().splitlines()
        seen.append((replies, [line for line in lines if "seconds" not in line]))
    assert seen[0] == seen[1]
    assert any("exact" in str(reply) for reply in seen[0][0])
    assert (429, "rate_limit_exceeded") in seen[0][0]
