"""Requests that come again: the answer that was made is given again, and nobody pays for it twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gateway_fakes import FakeDestination
from multidict import CIMultiDict
from road_site import ASK, Site

from headgate.gateway.destinations import Outcome
from headgate.gateway.events import Opened
from headgate.gateway.request import CacheControl, Usage
from headgate.gateway.teams.keys import Principal
from headgate.gateway.teams.retries import Retries, Whole, retry_of
from headgate.gateway.telemetry.record import RequestRecord
from headgate.gateway.wire.errors import ApiError

FRESH = replace(ASK, cache=CacheControl(no_store=True))
RED = Principal("red", "laptop")


async def ask(site: Site, body: bytes = b"{}", who: Principal = RED, **headers: str) -> RequestRecord:
    record = RequestRecord("id", "/v1/chat/completions")
    record.retry = retry_of(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}), body)
    async with site.road.answer(FRESH, who, record) as answer:
        while await answer.next_batch():
            pass
    return record


async def test_an_official_clients_retry_gets_the_answer_that_was_lost() -> None:
    destination = FakeDestination()
    site = Site(destination)
    first = await ask(site, x_stainless_retry_count="0")
    again = await ask(site, x_stainless_retry_count="1")
    assert (first.verdict, again.verdict, destination.begun) == ("bypass", "exact", 1)
    assert site.count('headgate_cache_lookups_total{reason="retry",verdict="exact"} 1.0')
    await ask(site, x_stainless_retry_count="0")
    assert destination.begun == 2


async def test_only_the_same_key_and_body_are_the_same_request() -> None:
    destination = FakeDestination()
    site = Site(destination)
    await ask(site)
    await ask(site, b"{ }", x_stainless_retry_count="1")
    await ask(site, who=Principal("red", "phone"), x_stainless_retry_count="1")
    assert destination.begun == 3


async def test_an_idempotency_key_stands_for_its_body() -> None:
    destination = FakeDestination()
    site = Site(destination)
    await ask(site, idempotency_key="a")
    await ask(site, idempotency_key="a")
    assert destination.begun == 1
    with pytest.raises(ApiError) as caught:
        await ask(site, b"{ }", idempotency_key="a")
    assert (caught.value.status, caught.value.code) == (422, "idempotency_key_reused")
    await ask(site, b"{ }", idempotency_key="b")
    assert destination.begun == 2


async def test_a_retry_waits_for_the_answer_in_the_making() -> None:
    destination = FakeDestination(gate=asyncio.Event())
    site = Site(destination)
    first = asyncio.create_task(ask(site))
    await destination.started.wait()
    second = asyncio.create_task(ask(site, x_stainless_retry_count="1"))
    await asyncio.sleep(0)
    assert destination.gate is not None
    destination.gate.set()
    assert (await first).verdict == "bypass"
    assert (await second).verdict == "exact"
    assert destination.begun == 1


async def test_an_answer_that_was_left_is_made_anew() -> None:
    destination = FakeDestination(gate=asyncio.Event())
    site = Site(destination)
    first = asyncio.create_task(ask(site))
    await destination.started.wait()
    second = asyncio.create_task(ask(site, x_stainless_retry_count="1"))
    await asyncio.sleep(0)
    first.cancel()
    assert destination.gate is not None
    destination.gate.set()
    assert (await second).verdict == "bypass"
    assert destination.begun == 2


async def test_answers_are_forgotten_after_a_while_and_beyond_a_size() -> None:
    now = 0.0
    retries = Retries(window_s=10, most_tokens=100, clock=lambda: now)
    retry = retry_of(CIMultiDict(), b"{}")
    opened = Opened("miss", "absent", "m", "f", "r")
    whole = Whole(opened, (), Outcome(Usage(1, 60, 0), 0.0, 0.0), 0.0)
    for place in range(2):
        key = ("red", None, b"", place)
        assert retries.begin(key, retry)
        retries.end(key, whole)
    assert len(retries) == 1
    assert await retries.find(("red", None, b"", 1), retry) is whole
    now = 10.0
    assert await retries.find(("red", None, b"", 1), retry) is None
